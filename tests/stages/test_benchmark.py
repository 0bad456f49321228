"""The benchmark stage: its entries, their timing, and the baseline that each is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import stages.shared.decoding.systems
from fewstep.config.options import Shortlist
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from models.bundle.directory import load_system
from stages.artifacts import System, Text
from stages.benchmark import STAGE, BenchmarkConfig, BenchmarkInputs
from stages.benchmark.rivals.ctranslate2_entry import ctranslate2_translator, longest_output
from stages.benchmark.summary import by_length, by_sentence, matched_baseline, summarise
from stages.benchmark.timing import LEAD_IN, STRETCH, Output, RoundTimings, Translate, measure, sized_batches
from stages.context import StepContext
from stages.errors import DataError, StageError
from stages.shared.shards import shard_path, write_shard
from stages.shared.statistics import evenly_spaced, percentile
from tests.stages.steps import context_in

# ---- the stage


class Echo:
    """Copies its source. A search takes as many steps a token as its beam is wide."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)
    masks = ()

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
    context = context_in(tmp_path / "out")
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
    for name, size in (("model.safetensors", 3000), ("parts/source.spm", 40)):
        (tmp_path / "new" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "new" / name).write_bytes(bytes(size))
    context, loaded = run(tmp_path, monkeypatch, config)
    assert loaded == [tmp_path / "base", tmp_path / "new"]
    record: dict[str, Any] = json.loads(context.records("benchmark.json").read_text())
    assert [(one["round"], one["entry"]) for one in record["timings"]] == [(n, entry) for n in range(2) for entry in entries]
    assert list(record["entries"]) == sorted(entries)
    assert record["entries"]["base/beam2"]["latency_ratio"]["median"] == 1.0
    assert [figures["system_bytes"] for figures in record["entries"].values()] == [0, 0, 3040]
    assert record["entries"]["new/beam3"]["decoder_calls_per_sentence"] == 3 * (2 + 4 + 4 + 4) / 4
    for key in ("device", "cpu", "threads", "precision", "torch", "other_processors"):
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
        StepwiseSearch(), StepwiseSearch(strategy="beam"), StepwiseSearch(strategy="beam", beam_threshold=1.0),
        StepwiseSearch(precision="int8"), StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)),
        StepwiseSearch(engine="torch"), StepwiseSearch(strategy="sample", n_best=5),
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (StepwiseSearch(deduplicate=True, ngram_weight=0.3), "greedy"),
        (StepwiseSearch(strategy="beam", ngram_weight=0.2, length_penalty=2.0), "beam"),
        (StepwiseSearch(strategy="beam", beam_threshold=1.0), "beam-beam_threshold1"),
        (StepwiseSearch(strategy="beam", beam_threshold=2.0), None), (StepwiseSearch(strategy="beam", beam_size=4), None),
        (StepwiseSearch(engine="torch"), "greedy-torch"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
        (StepwiseSearch(precision="int8", shortlist=Shortlist(tokens=200)), None),
        (StepwiseSearch(shortlist=Shortlist(tokens=300)), None), (StepwiseSearch(engine="ctranslate2"), None),
        (DagSearch(strategy="lookahead"), "greedy"), (DagSearch(strategy="joint-viterbi", precision="int8"), "greedy-int8"),
        (DagSearch(strategy="beam"), "beam"), (DagSearch(strategy="greedy", engine="torch"), "greedy-torch"),
        (DagSearch(strategy="sample"), "sample-n_best5"), (LatticeSearch(), "greedy"),
        (LatticeSearch(precision="bfloat16"), None), (AggressiveSearch(draft_precision="int8"), "greedy"),
        (AggressiveSearch(verifier_precision="int8", shortlist=Shortlist(tokens=300)), "greedy-shortlist300x16-int8"),
    ],
)  # fmt: skip
def test_the_matched_baseline_has_the_same_workload(search, expected):
    assert matched_baseline(search, BASELINES) == expected


class Clock:
    """Time passes only while a fake system works."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def system(self, seconds: Callable[[Sequence[str]], float], calls: list[str], name: str) -> Translate:
        def translate(lines: Sequence[str]) -> Output:
            calls.append(f"{name}{len(lines)}")
            self.now += seconds(lines)
            return Output(tokens=sum(map(len, lines)), steps=2 * len(lines))

        return translate


LINES = ["a" * length for length in (3, 1, 4, 1, 5)]


def test_entries_alternate_and_ratios_are_consistent() -> None:
    clock, calls = Clock(), list[str]()
    entries = {
        "slow": clock.system(lambda lines: 0.004 * max(map(len, lines)), calls, "s"),
        "fast": clock.system(lambda lines: 0.001 * max(map(len, lines)), calls, "f"),
    }
    timings = list(chain.from_iterable(measure(entries, LINES, rounds=3, batch_sizes=[2], clock=clock)))
    assert [(own.round, own.entry) for own in timings] == [(n, name) for n in range(3) for name in ("slow", "fast")]
    assert calls[:4] == ["s2", "s1", "f2", "f1"], "the untimed warm-up"
    untimed = 4
    assert calls[4:] == (["s1"] * (untimed + 5) + ["f1"] * (untimed + 5) + ["s2", "f2", "s2", "f2", "s1", "f1"]) * 3

    figures = summarise(timings, "slow")
    slow, fast = figures["slow"], figures["fast"]
    assert slow["latency_ms"]["median"] == pytest.approx(12)
    assert slow["latency_ms"]["p95"] == pytest.approx(20)
    assert fast["latency_ms"]["median"] == pytest.approx(3)
    assert fast["latency_ratio"]["median"] == pytest.approx(4)
    assert slow["latency_ratio"]["median"] == pytest.approx(1)
    # sorted by length the batches are (1 1) (3 4) (5): 1 + 4 + 5 ms
    assert fast["sentences_per_second"]["median"] == pytest.approx(5 / 0.010)
    assert fast["throughput_ratio"]["median"] == pytest.approx(4)
    assert fast["target_tokens_per_second"]["median"] == pytest.approx(14 / 0.010)
    assert fast["decoder_calls_per_sentence"] == 2
    assert fast["target_tokens_per_sentence"] == pytest.approx(14 / 5)


def test_figures_have_a_throughput_for_each_batch_size_and_a_ratio_to_each_reference() -> None:
    clock, calls = Clock(), list[str]()
    entries = {
        "slow": clock.system(lambda lines: 0.004 * len(lines), calls, "s"),
        "flat": clock.system(lambda lines: 0.002, calls, "f"),
    }
    timings = list(chain.from_iterable(measure(entries, ["a"] * 6, rounds=2, batch_sizes=[2, 3], clock=clock)))
    assert calls[:4] == ["s3", "s1", "f3", "f1"], "the untimed warm-up"
    flat = summarise(timings, "slow", ["slow", "flat"])["flat"]
    assert flat["batches"]["2"]["sentences_per_second"]["median"] == pytest.approx(1000)
    assert flat["batches"]["3"]["sentences_per_second"]["median"] == pytest.approx(1500)
    assert flat["sentences_per_second"]["median"] == pytest.approx(1500), "that of the last size"
    assert flat["relative_to"]["slow"]["latency_ratio"] == pytest.approx(2)
    assert flat["relative_to"]["slow"]["throughput_ratios"] == pytest.approx({"2": 4, "3": 6})
    assert flat["relative_to"]["flat"]["latency_ratio"] == pytest.approx(1)


def test_speed_up_by_source_length() -> None:
    """One entry takes the same time for any length, the other a millisecond for each token."""
    lengths = [9, 1, 5, 3, 2, 7, 8, 4]
    timings = [
        RoundTimings(number, name, [float(length) if name == "growing" else 2.0 for length in lengths], source_tokens=lengths)
        for number in range(2)
        for name in ("growing", "flat")
    ]
    parts = by_length(timings, "growing")
    assert [(part["min_tokens"], part["max_tokens"], part["sentences"]) for part in parts] == [
        (1, 2, 2), (3, 4, 2), (5, 7, 2), (8, 9, 2),
    ]  # fmt: skip
    assert [part["ratios"]["flat"] for part in parts] == pytest.approx([0.75, 1.75, 3, 4.25])
    assert all(part["ratios"]["growing"] == 1 for part in parts)


def test_speed_up_over_sentences() -> None:
    """Fast batches come first; one round of three takes ten times as long for both entries."""
    lengths = list(range(1, 42))
    timings = [
        RoundTimings(number, name, [factor * length * (10.0 if number == 1 else 1.0) for length in lengths], source_tokens=lengths)
        for number in range(3)
        for name, factor in (("base", 1.0), ("half", 0.5))
    ]
    for own in timings:
        if own.entry == "half":
            own.latencies_ms[0] *= 4
    found = by_sentence(timings, "base")
    assert found["base"] == [1.0] * 21
    assert found["half"] == pytest.approx([0.5] + [2.0] * 20)


def test_ratios_compare_the_halves_of_one_round() -> None:
    """A machine that slows down for a round slows both, so each round's ratio stays 2."""
    clock, calls, load = Clock(), list[str](), iter([1.0] * 4 + [1.0] * 14 + [9.0] * 14 + [2.0] * 14)
    entries = {
        "slow": clock.system(lambda lines: 0.002 * next(load), calls, "s"),
        "fast": clock.system(lambda lines: 0.001 * next(load), calls, "f"),
    }
    timings = list(chain.from_iterable(measure(entries, ["a", "b", "c"], rounds=3, batch_sizes=[3], clock=clock)))
    figures = summarise(timings, "slow")
    assert figures["fast"]["latency_ratio"]["rounds"] == pytest.approx([2, 2, 2])
    assert figures["fast"]["throughput_ratio"]["rounds"] == pytest.approx([2, 2, 2])
    assert figures["fast"]["latency_ms"]["rounds"] == pytest.approx([1, 9, 2])
    assert figures["fast"]["latency_ms"]["median"] == pytest.approx(2)


def test_a_slow_spell_within_a_round_meets_all_entries() -> None:
    """Whatever part of the round the spell covers, it covers about as much of both."""
    clock, calls = Clock(), list[str]()
    entries = {
        name: clock.system(lambda lines: 0.003 if 0.3 < clock.now < 0.9 else 0.001, calls, name[0]) for name in ("one", "two")
    }
    timings = next(measure(entries, ["a"] * 400, rounds=1, batch_sizes=[400], clock=clock))
    stretch = LEAD_IN + STRETCH
    assert calls[4:] == (["o1"] * stretch + ["t1"] * stretch) * (400 // STRETCH) + ["o400", "t400"]
    one, two = (sum(own.latencies_ms) for own in timings)
    assert one == pytest.approx(two, rel=0.05)
    assert max(timings[0].latencies_ms) == pytest.approx(3), "there was a spell"


@given(st.integers(1, 50), st.integers(1, 60))
def test_evenly_spaced(count: int, wanted: int) -> None:
    chosen = evenly_spaced(count, wanted)
    assert len(chosen) == min(count, wanted)
    assert chosen[0] == 0
    gaps = [right - left for left, right in pairwise(chosen)]
    assert all(gap >= 1 for gap in gaps)
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(st.lists(st.integers(0, 20), min_size=1))
def test_percentiles(values: list[int]) -> None:
    p95 = percentile(values, 95)
    assert sum(value <= p95 for value in values) >= 0.95 * len(values)
    assert sum(value < p95 for value in values) < 0.95 * len(values)
    assert percentile(values, 100) == max(values)
    assert percentile(values, 50) <= median(values)


def test_batches_hold_all_lines_by_length() -> None:
    assert sized_batches(["ccc", "a", "bb", "d"], 3) == [["a", "d", "bb"], ["ccc"]]


RIVAL_LINES = ["a man", "two dogs", "a child ."]


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("shortlist", [None, Shortlist(tokens=8, links=4)])
def test_a_process_translates_as_the_engine_does(systems: dict[str, Path], strategy: str, shortlist: Shortlist | None) -> None:
    pytest.importorskip("ctranslate2")
    system = load_system(systems["autoregressive"], verify=False)
    search = StepwiseSearch(strategy=strategy, beam_size=2, engine="ctranslate2", shortlist=shortlist, rescore=False)  # type: ignore[arg-type]
    with ctranslate2_translator(systems["autoregressive"], system, search, 1) as translate:
        found = [translate([line]) for line in RIVAL_LINES]
        together = translate(RIVAL_LINES)
    expected = [system.decoder.decode(system.decoder.prepare([ids]), search)[0][0].ids for ids in system.encode(RIVAL_LINES)]
    assert [one.tokens for one in found] == [len(ids) for ids in expected]
    assert [one.source_tokens for one in found] == [len(ids) for ids in system.encode(RIVAL_LINES)]
    assert all(one.seconds is not None and one.seconds >= one.tokenisation_seconds + one.detokenisation_seconds for one in found)
    assert together.source_tokens == sum(one.source_tokens for one in found)


def test_a_process_has_the_limits_of_the_search() -> None:
    search = StepwiseSearch()
    assert longest_output(search, 5, 1000) == 6 + search.output_limits.max_extra_tokens
    assert longest_output(search, 5, 20) == 20
    assert longest_output(replace(search, output_limits=replace(search.output_limits, max_tokens=7)), 5, 20) == 7
