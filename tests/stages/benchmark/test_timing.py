from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.benchmark.summary import by_length, by_sentence, summarise
from stages.benchmark.timing import LEAD_IN, STRETCH, Output, RoundTimings, Translate, measure, sized_batches
from stages.shared.statistics import evenly_spaced, percentile


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
        (1, 2, 2),
        (3, 4, 2),
        (5, 7, 2),
        (8, 9, 2),
    ]
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
