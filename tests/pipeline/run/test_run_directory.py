"""The directory of a run, and the origins of its text."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.plan.fingerprint import canonical
from pipeline.plan.step import Step
from pipeline.run.origins import origins, provenance
from pipeline.run.run_directory import Run, find_run
from pipeline.store.artifacts import Store
from stages.artifacts import ExternalFile
from stages.errors import ArtifactError, DataError
from tests.pipeline.run_specs import manifest, plan_entry, run_spec


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "runs" / "demo-1")
    run.create(run_spec(*map(plan_entry, ("a:x", "b:x", "c:x"))))
    return run


def test_events_are_folded_into_states(run: Run) -> None:
    run.write_event("run_started", attempt="1")
    run.write_event("step_hit", step="a:x", directory="a/1", origin="other")
    run.write_event("step_started", step="b:x", step_attempt="1-1", directory="b/2.partial")
    run.write_event("step_retried", step="b:x", step_attempt="1-1", error="lost")
    run.write_event("step_started", step="b:x", step_attempt="1-2", directory="b/2.partial")
    run.write_event("step_done", step="b:x", directory="b/2", seconds=3.0)
    run.write_event("step_failed", step="c:x", error="boom")
    run.write_event("run_finished", status="failed")
    state = run.state()
    assert [s.status for s in state.steps.values()] == ["hit", "done", "failed"]
    assert state.steps["a:x"].origin == "other"
    assert state.steps["b:x"].attempts == ["1-1", "1-2"]
    assert (state.steps["b:x"].directory, state.steps["b:x"].seconds) == ("b/2", 3.0)
    assert (state.steps["c:x"].error, state.status) == ("boom", "failed")


def test_attempts_of_a_driver_that_outlives_its_lease_count_once(run: Run) -> None:
    """Two drivers share a run. Driver 1 starts another attempt after driver 2 has begun, loses it, and reports that too late."""
    run.write_event("run_started", attempt="1")
    run.write_event("step_started", step="a:x", step_attempt="1-1", directory="a/1.partial")
    run.write_event("step_retried", step="a:x", step_attempt="1-1", error="a worker died")
    run.write_event("run_started", attempt="2", first=False)
    run.write_event("step_started", step="a:x", step_attempt="1-2", directory="a/2.partial")
    run.write_event("step_waiting", step="a:x", error="another driver works on it")
    state = run.state()
    assert (state.steps["a:x"].status, state.retried) == ("running", 1)
    run.write_event("step_started", step="a:x", step_attempt="2-1", directory="a/3.partial")
    assert run.state().retried == 2
    run.write_event("step_retried", step="a:x", step_attempt="1-2", error="another driver holds the lease")
    state = run.state()
    assert (state.steps["a:x"].status, state.retried) == ("running", 2)
    run.write_event("step_done", step="a:x", step_attempt="2-1", directory="a/3", seconds=1.0)
    assert (run.state().steps["a:x"].attempts, run.state().retried) == (["1-1", "1-2", "2-1"], 2)


def test_a_new_start_resets_unfinished_steps(run: Run) -> None:
    run.write_event("run_started", attempt="1")
    run.write_event("step_started", step="a:x", step_attempt="1-1", directory="a/1.partial")
    run.write_event("step_done", step="a:x", directory="a/1", seconds=1.0)
    run.write_event("step_started", step="b:x", step_attempt="1-1", directory="b/1.partial")
    run.write_event("run_started", attempt="2")
    run.write_event("step_hit", step="a:x", directory="a/1")
    assert [s.status for s in run.state().steps.values()] == ["done", "pending", "pending"]


def test_an_incomplete_last_line_is_skipped(run: Run) -> None:
    run.write_event("run_started", attempt="1")
    with (run.path / "events.jsonl").open("a") as file:
        file.write('{"time": 1, "eve')
    assert len(run.events()) == 1
    assert run.state().status == "running"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\n"])
def test_separators_in_messages_do_not_end_a_line(separator: str, run: Run) -> None:
    run.write_event("run_started", attempt="1")
    run.write_event("step_failed", step="a:x", error=f"one{separator}two")
    run.write_event("step_skipped", step="b:x", error="needs a:x")
    states = run.state().steps
    assert (states["a:x"].status, states["a:x"].error) == ("failed", f"one{separator}two")
    assert states["b:x"].status == "skipped"


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "null", "3", '"text"', "{}", "[" * 5000, "\xff{"),
        *('{"event": 3, "time": 1}', '{"event": "run_started"}', '{"event": "run_started", "time": 1, "lost": 3}'),
        *('{"event": "run_finished", "time": 1}', '{"event": "step_failed", "time": 1}'),
        '{"event": "step_started", "time": 1, "step": "a:x"}',
        '{"event": "step_done", "time": 1, "step": "a:x", "seconds": "3"}',
    ],
)
def test_lines_that_are_no_events_are_skipped(line: str, run: Run) -> None:
    run.write_event("run_started", attempt="1")
    with (run.path / "events.jsonl").open("a", encoding="latin-1") as file:
        file.write(f"{line}\n")
    run.write_event("step_failed", step="a:x", error="reason")
    assert run.state().steps["a:x"].status == "failed"
    assert len(run.events()) == 2


def test_latest_refers_to_the_newest_run(run: Run, tmp_path: Path) -> None:
    assert find_run(tmp_path, "latest") == Run(run.path.resolve())
    assert find_run(tmp_path, str(run.path)) == Run(run.path.resolve())
    with pytest.raises(DataError, match=r"nosuch: expected a run of .* \(demo-1\)"):
        find_run(tmp_path, "nosuch")
    data = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**data, "config": {"systems": {"shallow": {}}}}))
    with pytest.raises(DataError, match="got neither; shallow is a system of demo-1: state the run before it"):
        find_run(tmp_path, "shallow")


def test_another_schema_is_refused(run: Run) -> None:
    data = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**data, "schema": 0}))
    with pytest.raises(ArtifactError, match="expected schema 1, got 0"):
        _ = run.spec


@dataclass(frozen=True)
class Inputs:
    text: tuple[ExternalFile, ...]


def step(*files: ExternalFile) -> Step:
    return cast(Step, SimpleNamespace(inputs=Inputs(files)))


def test_downloaded_files_and_those_of_imported_networks_are_listed(tmp_path: Path) -> None:
    local, remote = ExternalFile(Path("a"), "1"), ExternalFile(Path("b"), "2", origin="sacrebleu:wmt14/full")
    assert origins(step(local), tmp_path) == []
    listed = {"name": "text.1", "from": "sacrebleu:wmt14/full", "sha256": "2", "licence": "unknown"}
    assert origins(step(local, remote), tmp_path) == [listed]
    origin: dict[str, Any] = {"kind": "marian", "name": "opus-mt-en-de", "files": {"vocab.json": "3"}, "licence": "apache-2.0"}
    (tmp_path / "system.json").write_text(json.dumps({"origin": origin}))
    found = origins(step(local), tmp_path)
    assert found == [{"name": "vocab.json", "from": "marian:opus-mt-en-de", "sha256": "3", "licence": "apache-2.0"}]


def test_licences_that_are_stated_are_listed_with_the_files_of_this_machine(tmp_path: Path) -> None:
    own, remote = ExternalFile(Path("d/a.en"), "1", licence="CC0"), ExternalFile(Path("b"), "2", origin="hf:x", licence="MIT")
    assert [(file["from"], file["licence"]) for file in origins(step(own, remote), tmp_path)] == [("a.en", "CC0"), ("hf:x", "MIT")]
    assert canonical(Inputs((own,))) == canonical(Inputs((ExternalFile(Path("a"), "1"),)))


def unlicensed(directory: Path) -> tuple[list[str], bool]:
    found = provenance(directory)
    return found.unlicensed, found.complete


def artifact(store: Path, stage: str, digit: str, inputs: str = "", **origin: str) -> Path:
    """Write the manifest of an artifact that was made from those of other digits, and from files with these licences."""
    directory = store / stage / (32 * digit)
    directory.mkdir(parents=True)
    files = [{"name": "text", "from": name, "sha256": "1", "licence": licence} for name, licence in origin.items()]
    named = {f"input{other}": 32 * other for other in inputs} | {"text.digest": 64 * "1", "text.member": "a.en"}
    (directory / "manifest.json").write_text(json.dumps({"inputs": named, "origin": files}))
    return directory


def test_unknown_licences_are_found_in_all_steps_before_a_system(tmp_path: Path) -> None:
    artifact(tmp_path, "corpus", "a", europarl="unknown", news="CC0")
    artifact(tmp_path, "corpus", "b", wmt14="unknown")  # of a test set, from which no system is made
    artifact(tmp_path, "encode", "c", inputs="a")
    artifact(tmp_path, "train", "d", inputs="c")
    system = artifact(tmp_path, "system", "e", inputs="dc")
    assert unlicensed(system) == (["europarl"], True)
    origin = {"kind": "fairseq", "name": "model.pt", "files": {"model.pt": "3", "dict": "4"}, "licence": "unknown"}
    (system / "system.json").write_text(json.dumps({"origin": origin}))
    assert unlicensed(system) == (["europarl", "fairseq:model.pt"], True)
    licensed = artifact(tmp_path, "system", "f", inputs="a0")
    assert unlicensed(licensed) == (["europarl"], False), "a step that the store has deleted"
    copied = tmp_path / "elsewhere/deep/copy"
    copied.mkdir(parents=True)
    (copied / "system.json").write_text(json.dumps({"origin": origin}))
    assert unlicensed(copied) == (["fairseq:model.pt"], False)


def test_an_origin_is_no_part_of_fingerprints() -> None:
    named, plain = (Inputs((ExternalFile(Path("a"), "1", origin=origin),)) for origin in ("https://example.org/a", ""))
    assert canonical(named) == canonical(plain)
    assert named == plain


def test_manifests_of_earlier_versions_state_no_origin(tmp_path: Path) -> None:
    store = Store(tmp_path)
    artifact = tmp_path / "corpus/0"
    artifact.mkdir(parents=True)
    earlier = asdict(manifest("corpus:train", "0"))
    del earlier["origin"]
    (artifact / "manifest.json").write_text(json.dumps(earlier))
    found = store.manifest(artifact)
    assert found is not None
    assert found.origin == []
