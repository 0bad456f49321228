"""Histories of all fault classes, and seeds that found defects. `python -m tests.simulation` runs more of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import durable
from pipeline.store import attempts
from pipeline.store.lease import Lease
from tests.simulation.histories import CLASSES, History, run_histories

FAST, MANY = 25, 800
"""Histories of each class in fast and in exhaustive tests."""
ROOT = Path(__file__).parents[2]

FOUND = {
    "a process that slept between taking a lease and its first rename took the directory of the next holder": ("nfs", 211),
    "gc deleted files of an attempt that began after it had looked at the leases": ("gc", 27),
    "gc failed when a directory vanished while it was listed": ("gc", 30),
    "a manifest with an altered key ended in a traceback": ("rot", 19),
    "a lease with an altered key ended in a traceback": ("rot", 13),
    "a step failed because its driver slept while another driver took it over": ("names", 455),
    "a training began although its artifact had come from the mirror meanwhile": ("mirror", 784),
    "an attempt that took a directory back did not see a file in it that a paused attempt had open": ("nfs", 102003),
    "a step failed because checkpoints of its input were removed while the input was verified": ("gc", 439),
    "a step failed because gc removed checkpoints of its input while the input was verified": ("gc", 4),
    "an artifact was lost with its store, whose directory another driver had made and not synced": ("everything", 500743),
    "an artifact that was damaged while a step began ended in a traceback": ("rot", 25),
}
"""Defects of the pipeline, and the history that found each of them."""


@pytest.mark.parametrize("kind", CLASSES)
def test_invariants_hold_in_short_histories(kind: str) -> None:
    _, violations = run_histories(kind, range(FAST))
    assert violations == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", CLASSES)
def test_invariants_hold_in_many_histories(kind: str) -> None:
    counts, violations = run_histories(kind, range(FAST, MANY))
    assert violations == {}
    assert counts["histories"] == MANY - FAST


@pytest.mark.parametrize("defect", FOUND)
def test_histories_that_found_a_defect(defect: str) -> None:
    kind, seed = FOUND[defect]
    assert History(kind, seed).run()["histories"] == 1


def test_a_history_depends_on_its_seed_alone() -> None:
    """Neither the hash seed nor other histories change it."""
    code = "from tests.simulation.histories import run_histories; print(sorted(run_histories('everything', range(3))[0].items()))"
    outputs = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert "power cuts" in outputs.pop()


def violations(kind: str, histories: int = 60, first: int = 0) -> str:
    return " ".join(run_histories(kind, range(first, first + histories))[1].values())


def test_artifacts_that_are_not_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "sync_tree", lambda *arguments, **options: None)
    found = (violations("reorder", first=first) for first in range(0, 600, 60))  # rare, so that a call more or less moves it
    assert any("the manifest names result, which is damaged" in text for text in found)


def test_directories_that_are_not_synced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "make_directory", lambda path, disk: path.mkdir(parents=True, exist_ok=True))
    assert "is lost" in violations("power")


def test_a_shared_directory_of_attempts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """This was the design before each attempt had a directory of its own."""
    from pipeline.store import artifacts
    from tests.simulation import programs

    for module in (attempts, artifacts, programs):
        monkeypatch.setattr(
            module, "partial_directory", lambda directory, attempt: directory.with_name(f"{directory.name}.partial")
        )
    monkeypatch.setattr(attempts, "_take_over", lambda path, partial, host: None)
    assert "which lost its lease, writes to" in violations("pause")


def test_a_lease_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "check", lambda lease: None)
    monkeypatch.setattr(attempts, "_take_over", lambda path, partial, host: None)
    assert "has begun" in violations("pause")


def test_leases_that_compare_clocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter whose clock is ahead finds the lease of a holder that is at work expired."""
    monkeypatch.setattr(Lease, "_is_free", lambda lease, content: bool(content) and lease.owner.encode() not in content)
    assert violations("clock", 120) != ""
