"""Mutated configs end in a plan or in an error that explains itself: no traceback, no hang, no signal, and no unbounded memory."""

import os
import random
import re
import resource
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import main
from pipeline.store import downloads
from stages.errors import StageError
from tests.pipeline.config.mutations import mutated

ROOT = Path(__file__).resolve().parents[3]
NAMES = (
    "demo.yaml",
    "quickstart.yaml",
    "summarization.yaml",
    "sweeps/orders.yaml",
    "sweeps/candidates.yaml",
    "multi30k/aggressive.yaml",
    "multi30k/lattice.yaml",
    "papers/aspec-ja-en-double-token.yaml",
)
SECONDS = 60
"""Time in which each command has to end."""
MEMORY_MIB = 512
"""Memory by which the process may grow."""


def offline(url: str, path: Path) -> dict[str, Any]:
    raise StageError(f"{url}: could not be downloaded: no network")


def too_long(number: int, frame: object) -> None:
    raise RuntimeError(f"no end after {SECONDS} seconds")


def texts_with_data(folder: Path) -> dict[str, str]:
    """Return the shipped configs, after writing them and short files in place of the text that they name into a folder."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    for config in (folder / "configs").rglob("*.yaml"):
        for name in re.findall(r"\bdata/[\w./-]+\.\w\w\b", config.read_text()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("a b c\nd e\n")
    return {name: (folder / "configs" / name).read_text() for name in NAMES}


def outcome(code: int, error: str) -> str:
    """Return `planned`, `refused`, `offline`, or what must not happen: `traceback` or `failed`."""
    if "Traceback" in error or (code != 0 and not error.strip()):
        return "traceback"
    return "offline" if "no network" in error else {0: "planned", 2: "refused"}.get(code, "failed")


def test_the_configs_are_planned_before_they_are_mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in texts_with_data(tmp_path):
        assert main(["plan", f"configs/{name}", "--set", f"store.path={tmp_path / 'store'}"]) == 0, name


@pytest.mark.slow
def test_mutated_configs_are_planned_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`FEWSTEP_MUTATIONS` is the number of configs, and `FEWSTEP_MUTATIONS_SEED` the first seed."""
    count, first = int(os.environ.get("FEWSTEP_MUTATIONS", "100")), int(os.environ.get("FEWSTEP_MUTATIONS_SEED", "0"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "copy_from_url", offline)
    signal.signal(signal.SIGALRM, too_long)
    texts, outcomes, failures = texts_with_data(tmp_path), Counter[str](), list[str]()
    started, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + count):
        chance = random.Random(seed)
        name = chance.choice(NAMES)
        data, overrides = mutated(texts[name], list(texts.values()), chance)
        config = tmp_path / "configs" / name
        config.with_name("mutated.yaml").write_bytes(data)
        options = [*overrides, f"store.path={tmp_path / 'store'}", "store.mirror=''"]
        signal.alarm(SECONDS)
        code = main(["plan", str(config.with_name("mutated.yaml")), *(part for one in options for part in ("--set", one))])
        signal.alarm(0)
        error = capsys.readouterr().err
        outcomes[found := outcome(code, error)] += 1
        if found in ("traceback", "failed"):
            failures.append(f"seed {seed}: exit code {code}: {error[-1500:]}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) >> 10
    with capsys.disabled():
        print(f"\n{count} configs from seed {first}: {dict(outcomes)}, {time.monotonic() - started:.0f} s, {grown} MiB")
    assert not failures, f"{len(failures)} of {count}\n" + "\n".join(failures)
    assert grown < MEMORY_MIB
    assert min(outcomes["planned"], outcomes["refused"]) > count // 10
