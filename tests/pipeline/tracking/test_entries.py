"""The child run of each system and search, with its scores and its speed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.run.run_directory import Run
from pipeline.tracking.entries import Entries
from pipeline.tracking.publisher import publish
from tests.pipeline.run_specs import plan_entry, run_spec
from tests.pipeline.tracking.recorded_run import Browser, Settings

CONFIG: dict[str, Any] = {
    "name": "demo",
    "languages": {"source": "en", "target": "de"},
    "corpus": {"test": {"one": {}, "two": {}}},
    "teacher": {"family": "stepwise", "data": "raw", "encoder_layers": 6, "training": {"updates": 700}},
    "systems": {
        "auto": {"use": "teacher", "search": {"greedy": {"strategy": "greedy", "engine": "auto", "precision": "int8"}}},
        "graph": {
            "family": "dag",
            "data": "distilled",
            "graph_factor": 4,
            "search": {"beam-beam_size9": {"strategy": "beam", "engine": "torch", "precision": "float32"}},
        },
    },
    "evaluation": {"baseline": "auto/greedy"},
}
ENTRIES = ("auto/greedy", "graph/beam-beam_size9")
STEPS = [
    *(f"corpus:{name}" for name in ("train", "one", "two")),
    *(f"{stage}:{entry}:{test}" for entry in ENTRIES for test in ("one", "two") for stage in ("decode", "score")),
    "benchmark:all:two",
]


def commit(run: Run, step: str, files: dict[str, Any], finished: float) -> None:
    """Finish a step with JSON files."""
    entry = next(entry for entry in run.spec["plan"] if entry["step"] == step)
    path = run.store / entry["stage"] / entry["fingerprint"]
    for name, value in {**files, "manifest.json": {"finished": finished, "environment": {"gpus": 0.0}}}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(json.dumps(value))
    run.write_event("step_started", step=step, step_attempt="a-1", directory=str(path.relative_to(run.store)))
    run.write_event("step_done", step=step, directory=str(path.relative_to(run.store)), seconds=1.0)


@pytest.fixture
def run(store: Path) -> Run:
    """Return a run with all scores; nothing is timed yet."""
    run = Run(store / "runs" / "demo-1")
    plan = [plan_entry(step, fingerprint=f"{index:032x}") for index, step in enumerate(STEPS)]
    run.create(run_spec(*plan, config=CONFIG, store=str(store)))
    run.heartbeat.touch()
    run.write_event("run_started", attempt="a")
    for step in STEPS:
        if step.startswith("corpus"):
            commit(run, step, {"text.json": {"rows": 7}}, 10.0)
        elif step.startswith("decode"):
            commit(run, step, {"decode.json": {}}, 20.0)
        elif step.startswith("score"):
            bleu = 40.0 + len(step)
            commit(run, step, {"scores.json": {"bleu": {"score": bleu, "signature": "s"}, "chrf": {"score": 60.0}}}, 30.0)
    return run


def benchmark(run: Run) -> None:
    speed = {
        entry: {
            "latency_ms": {"median": 2.5 + index, "p95": 4.0, "rounds": [2.0]},
            "sentences_per_second": {"median": 300.0},
            "latency_ratio": {"median": 1.5},
        }
        for index, entry in enumerate(ENTRIES)
    }
    commit(run, "benchmark:all:two", {"records/benchmark.json": {"entries": speed}}, 50.0)
    run.write_event("run_finished", status="done")


def test_an_entry_holds_scores_and_speed_with_comparable_names(run: Run, settings: Settings) -> None:
    benchmark(run)
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    entries = {name: seen.runs[f"entry:{name}"] for name in ENTRIES}
    auto, graph = entries.values()
    assert auto.data.metrics == {
        "bleu": 40.0 + len("score:auto/greedy:two"),
        "chrf": 60.0,
        "one/bleu": 40.0 + len("score:auto/greedy:one"),
        "one/chrf": 60.0,
        "latency_ms": 2.5,
        "latency_p95_ms": 4.0,
        "latency_ratio": 1.5,
        "throughput": 300.0,
    }
    assert graph.data.metrics["latency_ms"] == 3.5
    assert set(graph.data.metrics) == set(auto.data.metrics)
    search = {"search.strategy": "greedy", "search.engine": "auto", "search.precision": "int8"}
    teacher = {"use": "teacher", "family": "stepwise", "data": "raw", "encoder_layers": "6", "training.updates": "700"}
    assert auto.data.params == {**search, **{f"system.{name}": value for name, value in teacher.items()}}
    graphs = {name: value for name, value in graph.data.params.items() if name.startswith("system.")}
    assert graphs == {"system.family": "dag", "system.data": "distilled", "system.graph_factor": "4"}
    expected = {
        "kind": "entry", "system": "auto", "family": "stepwise", "search": "greedy", "strategy": "greedy", "engine": "native",
        "precision": "int8", "data": "raw", "source_language": "en", "target_language": "de", "language_pair": "en-de",
        "test": "two", "baseline": "true",
    }  # fmt: skip
    assert {name: auto.data.tags.get(f"fewstep.{name}") for name in expected} == expected
    assert {name: graph.data.tags[f"fewstep.{name}"] for name in ("family", "engine", "data", "baseline")} == {
        "family": "dag",
        "engine": "torch",
        "data": "distilled",
        "baseline": "false",
    }
    assert "latency of single sentences in ms" in graph.data.tags["mlflow.note.content"]
    assert {r.data.tags["mlflow.parentRunId"] for r in entries.values()} == {seen.runs["run"].info.run_id}
    assert {r.info.status for r in entries.values()} == {"FINISHED"}
    assert {r.info.run_name for r in entries.values()} == set(ENTRIES)


def test_texts_are_datasets_with_digests(run: Run, settings: Settings) -> None:
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    found = {item.dataset.name: item for item in seen.runs["run"].inputs.dataset_inputs}
    assert {name: item.dataset.digest for name, item in found.items()} == {
        f"tests/{name}": f"{index:032x}" for index, name in enumerate(("train", "one", "two"))
    }
    assert {name: item.tags[0].value for name, item in found.items()} == {
        "tests/train": "training",
        "tests/one": "test",
        "tests/two": "test",
    }
    one = found["tests/one"].dataset
    assert json.loads(one.source) == {"artifact": f"corpus/{1:032x}"}
    assert json.loads(one.profile) == {"rows": 7}
    entry = seen.runs["entry:auto/greedy"]
    assert {item.dataset.name for item in entry.inputs.dataset_inputs} == {"tests/one", "tests/two"}


def test_restarts_do_not_duplicate_entries(run: Run, settings: Settings) -> None:
    publish(run.path, settings)
    early = Browser(settings.uri, run)
    assert early.runs["entry:auto/greedy"].info.status == "RUNNING"
    assert "latency_ms" not in early.runs["entry:auto/greedy"].data.metrics
    memory = run.path / "mlflow.json"
    (run.path / "mlflow.json").write_text(json.dumps({**json.loads(memory.read_text()), "servers": []}))  # as if killed
    benchmark(run)
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    assert seen.count == early.count + 1, "the step of the benchmark"
    assert seen.runs["entry:auto/greedy"].info.run_id == early.runs["entry:auto/greedy"].info.run_id
    assert seen.points("entry:auto/greedy", "bleu") == [(0, 40.0 + len("score:auto/greedy:two"))]
    assert seen.points("entry:auto/greedy", "latency_ms") == [(0, 2.5)]
    before = seen.everything()
    publish(run.path, settings)
    assert Browser(settings.uri, run).everything() == before


def test_an_entry_of_a_run_that_ended_early_is_killed(run: Run, settings: Settings) -> None:
    run.write_event("run_finished", status="failed")
    publish(run.path, settings)
    assert Browser(settings.uri, run).statuses()["entry:auto/greedy"] == "KILLED"


def test_tags_hold_mean_and_deviation_over_seeds(store: Path) -> None:
    search = {"greedy": {"strategy": "greedy"}}
    names = ("graph", "graph-seed2", "graph-seed5", "other")
    config = {**CONFIG, "seeds": [1, 2, 5], "systems": {name: {"family": "dag", "search": search} for name in names}}
    steps = [f"score:{name}/greedy:one" for name in names]
    plan = [plan_entry(step, fingerprint=f"{n:032x}") for n, step in enumerate(steps)]
    run = Run(store / "runs" / "seeds-1")
    run.create(run_spec(*plan, run_id="seeds-1", name="s", config=config, store=str(store)))
    run.write_event("run_started", attempt="a")
    for number, step in enumerate(steps):
        if number == 2:  # one seed is not scored yet
            assert "fewstep.seeds.bleu" not in tags_of(run)["graph"]
        commit(run, step, {"scores.json": {"bleu": {"score": 30.0 + number, "signature": "s"}}}, 30.0)
    tags = tags_of(run)
    assert (tags["graph"]["fewstep.seeds"], tags["graph"]["fewstep.seeds.bleu"]) == ("3", "31.0000 ± 1.0000")
    assert not any(name.startswith("fewstep.seeds") for system in names[1:] for name in tags[system])


def tags_of(run: Run) -> dict[str, dict[str, str]]:
    return {entry.system: entry.tags for entry in Entries(run, run.state())}
