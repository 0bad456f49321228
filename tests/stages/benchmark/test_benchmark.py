"""The benchmark stage, and the baseline that each entry is compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import stages.shared.decoding.systems
from fewstep.config.options import Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from stages.artifacts import System, Text
from stages.benchmark import STAGE, BenchmarkConfig, BenchmarkInputs
from stages.benchmark.summary import matched_baseline
from stages.benchmark.timing import Output, Translate
from stages.context import StepContext
from stages.errors import DataError, StageError
from stages.shared.shards import shard_path, write_shard
from stages.workers import LocalWorkers, Resources

# ---- the stage


class Echo:
    """Copies its source. A search takes as many steps a token as its beam is wide."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self) -> None:
        self.decoder = self

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[7] * len(line.split()) for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return ["x" for _ in ids]

    def prepare(self, sources: Sequence[list[int]], search: Any = None, threads: int | None = None) -> Sequence[list[int]]:
        return sources

    def decode(self, prepared: Sequence[list[int]], search: StepwiseSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        return [[Hypothesis(ids, 0.0, len(ids) * search.beam_size)] for ids in prepared]


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: BenchmarkConfig) -> tuple[StepContext, list[Path]]:
    loaded: list[Path] = []

    def load_system(directory: Path, device: str = "cpu") -> Echo:
        loaded.append(directory)
        return Echo()

    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", load_system)
    (tmp_path / "out").mkdir(exist_ok=True)
    context = StepContext(
        directory=tmp_path / "out",
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=tmp_path / "cache",
    )
    sources = ["a b", "", "a b c", " ", *["a b c d"] * 6]
    table = pa.table({"id": [10 + row for row in range(10)], "source": sources, "target": sources})
    write_shard(shard_path(tmp_path / "text", 0), table, context)
    systems = {"base": System(tmp_path / "base", "b"), "new": System(tmp_path / "new", "n")}
    STAGE.run(BenchmarkInputs(systems, Text(tmp_path / "text", "t")), config, context)
    return context, loaded


def searches(*entries: str) -> dict[str, StepwiseSearch]:
    return {entry: StepwiseSearch(strategy="beam", beam_size=int(entry[-1])) for entry in entries}


def test_entries_are_timed_on_the_same_sentences_in_interleaved_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = searches("base/beam1", "base/beam2", "new/beam3")
    config = BenchmarkConfig(searches=entries, baseline="base/beam2", sentences=4, rounds=2, batch_sizes=(2, 3), memory=False)
    context, loaded = run(tmp_path, monkeypatch, config)
    assert loaded == [tmp_path / "base", tmp_path / "new"]
    record: dict[str, Any] = json.loads(context.records("benchmark.json").read_text())
    assert [(one["round"], one["entry"]) for one in record["timings"]] == [(n, entry) for n in range(2) for entry in entries]
    assert list(record["entries"]) == sorted(entries)
    assert record["entries"]["base/beam2"]["latency_ratio"]["median"] == 1.0
    assert record["entries"]["new/beam3"]["decoder_calls_per_sentence"] == 3 * (2 + 4 + 4 + 4) / 4
    for key in ("device", "cpu", "threads", "precision", "torch", "load_average"):
        assert key in record["environment"]
    for name in ("benchmark", "benchmark-references", "benchmark-lengths"):
        table = json.loads(context.records("tables", f"{name}.json").read_text())
        assert [row[0] for row in table["rows"]] == list(entries)
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert record["protocol"]["reference_entries"] == ["base/beam1", "base/beam2"]
    assert record["protocol"]["matched_baselines"] == {"base/beam1": "base/beam1", "base/beam2": "base/beam2", "new/beam3": None}
    alike = json.loads(context.records("tables", "benchmark.json").read_text())
    assert [row[alike["columns"].index("Like for like")] for row in alike["rows"]] == ["1.00x", "1.00x", "-"]
    assert set(record["entries"]["base/beam2"]["batches"]) == {"2", "3"}
    assert [(part["min_tokens"], part["max_tokens"]) for part in record["by_length"]] == [(2, 2), (4, 4), (4, 4), (4, 4)]


def test_the_result_holds_what_was_timed_but_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BenchmarkConfig(searches=searches("base/beam1"), baseline="base/beam1", sentences=4, rounds=2, memory=False)
    context, _ = run(tmp_path, monkeypatch, config)
    first = (context.directory / "systems.json").read_bytes()
    result = json.loads(first)
    assert result["sentences"] == [10, 14, 16, 18]
    assert result["searches"]["base/beam1"]["beam_size"] == 1
    assert [path.name for path in context.directory.iterdir() if path.name != "records"] == ["systems.json"]
    run(tmp_path, monkeypatch, config)
    assert (context.directory / "systems.json").read_bytes() == first


def test_ctranslate2_is_a_reference_entry_and_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "base/beam1": StepwiseSearch(strategy="beam", beam_size=1),
        "new/greedy-ct2-int8": StepwiseSearch(engine="ctranslate2", precision="int8"),
        "new/greedy": StepwiseSearch(),
    }
    config = BenchmarkConfig(searches=entries, baseline="base/beam1", sentences=4, rounds=2, memory=False)
    open_processes: list[tuple[Path, StepwiseSearch]] = []

    @contextmanager
    def in_its_process(directory: Path, system: Any, search: StepwiseSearch, threads: int) -> Iterator[Translate]:
        open_processes.append((directory, search))
        yield lambda lines: Output(len(lines), len(lines), seconds=0.25 * len(lines))
        open_processes.pop()

    monkeypatch.setattr("stages.benchmark.run.ctranslate2_translator", in_its_process)
    context, _ = run(tmp_path, monkeypatch, config)
    record = json.loads(context.records("benchmark.json").read_text())
    assert open_processes == []
    times = [one["latencies_ms"] for one in record["timings"] if one["entry"] == "new/greedy-ct2-int8"]
    assert times == [[250.0] * 4] * 2, "the process times itself"
    assert record["protocol"]["reference_entries"] == ["base/beam1", "new/greedy-ct2-int8"]
    assert record["entries"]["new/greedy-ct2-int8"]["relative_to"]["new/greedy-ct2-int8"]["latency_ratio"] == 1.0
    assert "ctranslate2" in record["environment"]
    monkeypatch.setattr("stages.shared.decoding.searches.find_spec", lambda name: None)
    with pytest.raises(StageError, match=r"pip install ctranslate2"):
        run(tmp_path, monkeypatch, config)


def test_unknown_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"expected systems among \['base', 'new'\], got \['old'\]"):
        run(tmp_path, monkeypatch, BenchmarkConfig(searches=searches("old/beam1"), baseline="old/beam1"))
    with pytest.raises(DataError, match=r"benchmark.baseline: expected one of \['new/beam1'\], got 'base'"):
        run(tmp_path, monkeypatch, BenchmarkConfig(searches=searches("new/beam1"), baseline="base"))


# ---- baselines


BASELINES = {
    search.label: search
    for search in (
        StepwiseSearch(),
        StepwiseSearch(strategy="beam"),
        StepwiseSearch(strategy="beam", beam_threshold=1.0),
        StepwiseSearch(precision="int8"),
        StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)),
        StepwiseSearch(engine="torch"),
        StepwiseSearch(strategy="sample", n_best=5),
    )
}


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (StepwiseSearch(deduplicate=True, ngram_weight=0.3), "greedy"),
        (StepwiseSearch(strategy="beam", ngram_weight=0.2, length_penalty=2.0), "beam"),
        (StepwiseSearch(strategy="beam", beam_threshold=1.0), "beam-beam_threshold1"),
        (StepwiseSearch(strategy="beam", beam_threshold=2.0), None),
        (StepwiseSearch(strategy="beam", beam_size=4), None),
        (StepwiseSearch(engine="torch"), "greedy-torch"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=200)), None),
        (StepwiseSearch(shortlist=Shortlist(tokens=300)), None),
        (StepwiseSearch(engine="ctranslate2"), None),
        (DagSearch(strategy="lookahead"), "greedy"),
        (DagSearch(strategy="joint-viterbi", precision="int8"), "greedy-int8"),
        (DagSearch(strategy="beam"), "beam"),
        (DagSearch(strategy="greedy", engine="torch"), "greedy-torch"),
        (DagSearch(strategy="sample"), "sample-n_best5"),
        (LatticeSearch(), "greedy"),
        (LatticeSearch(precision="bfloat16"), None),
        (AggressiveSearch(draft_precision="int8"), "greedy"),
        (AggressiveSearch(verifier_precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
    ],
)
def test_the_matched_baseline_has_the_same_workload(search, expected):
    assert matched_baseline(search, BASELINES) == expected
