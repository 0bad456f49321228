"""Latency, throughput and ratios from the timings of all rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fewstep.config.search import SearchConfig
from stages.benchmark.timing import RoundTimings
from stages.shared.statistics import percentile, quantiles

BINS = 4
"""Number of groups of sentences by length; all are of about the same size."""


def summarise(timings: Sequence[RoundTimings], baseline: str, references: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the figures of each entry, in the order of the first round.

    Latency: median and 95th percentile over all sentences of all rounds. Throughput: median over rounds, for the last batch size
    and (`batches`) for all sizes. Ratios to the baseline and to each of `references` (`relative_to`): computed in each round, then
    the median over rounds. A ratio above 1 means that the entry is faster.
    """
    by_entry = _by_entry(timings)
    return {
        name: {
            **_figures(own, by_entry[baseline]),
            "relative_to": {other: _relative_to(own, by_entry[other]) for other in references},
        }
        for name, own in by_entry.items()
    }


def _by_entry(timings: Sequence[RoundTimings]) -> dict[str, list[RoundTimings]]:
    names = dict.fromkeys(one.entry for one in timings)
    return {name: [one for one in timings if one.entry == name] for name in names}


def _figures(own: Sequence[RoundTimings], baseline: Sequence[RoundTimings]) -> dict[str, Any]:
    latencies = [value for one in own for value in one.latencies_ms]
    sentences = len(own[0].latencies_ms)
    sizes = list(own[0].batch_seconds)
    by_size = {size: _throughput(own, baseline, size) for size in sizes}
    return {
        "latency_ms": {
            "median": median(latencies),
            "p95": percentile(latencies, 95),
            "rounds": [median(one.latencies_ms) for one in own],
            "tokenisation": median(value for one in own for value in one.tokenisation_ms),
            "detokenisation": median(value for one in own for value in one.detokenisation_ms),
        },
        **by_size[sizes[-1]],
        "batches": {str(size): figures for size, figures in by_size.items()},
        "decoder_calls_per_sentence": own[0].steps / sentences,
        "target_tokens_per_sentence": own[0].tokens / sentences,
        "latency_ratio": _over_rounds(_latency_ratios(own, baseline)),
    }


def _throughput(own: Sequence[RoundTimings], baseline: Sequence[RoundTimings], size: int) -> dict[str, Any]:
    """Throughput in batches of one size."""
    sentences = len(own[0].latencies_ms)
    return {
        "sentences_per_second": _over_rounds([sentences / one.batch_seconds[size] for one in own]),
        "target_tokens_per_second": {"median": median(one.tokens / one.batch_seconds[size] for one in own)},
        "throughput_ratio": _over_rounds(_throughput_ratios(own, baseline, size)),
    }


def _relative_to(own: Sequence[RoundTimings], other: Sequence[RoundTimings]) -> dict[str, Any]:
    return {
        "latency_ratio": median(_latency_ratios(own, other)),
        "throughput_ratios": {str(size): median(_throughput_ratios(own, other, size)) for size in own[0].batch_seconds},
    }


def _latency_ratios(own: Sequence[RoundTimings], other: Sequence[RoundTimings]) -> list[float]:
    return [median(base.latencies_ms) / median(one.latencies_ms) for base, one in zip(other, own, strict=True)]


def _throughput_ratios(own: Sequence[RoundTimings], other: Sequence[RoundTimings], size: int) -> list[float]:
    return [base.batch_seconds[size] / one.batch_seconds[size] for base, one in zip(other, own, strict=True)]


def _over_rounds(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "rounds": values}


def by_length(timings: Sequence[RoundTimings], baseline: str) -> list[dict[str, Any]]:
    """Return the latency ratio of each entry for each quarter of the sentences by source tokens (as the baseline counts them).

    `min_tokens` and `max_tokens` are the lengths of a quarter, `sentences` its size. Ratios are those of the medians of a round,
    then the median over rounds.
    """
    by_entry = _by_entry(timings)
    base = by_entry[baseline]
    lengths = base[0].source_tokens
    ordered = sorted(range(len(lengths)), key=lambda index: lengths[index])
    quarters = [ordered[len(ordered) * part // BINS : len(ordered) * (part + 1) // BINS] for part in range(BINS)]
    return [
        {
            "min_tokens": lengths[quarter[0]],
            "max_tokens": lengths[quarter[-1]],
            "sentences": len(quarter),
            "ratios": {
                name: median(_median_of(other, quarter) / _median_of(one, quarter) for other, one in zip(base, own, strict=True))
                for name, own in by_entry.items()
            },
        }
        for quarter in quarters
        if quarter
    ]


def by_sentence(timings: Sequence[RoundTimings], baseline: str) -> dict[str, list[float]]:
    """Return for each entry the quantiles of its latency ratios to the baseline over sentences, each the median over rounds."""
    by_entry = _by_entry(timings)
    base = [one.latencies_ms for one in by_entry[baseline]]
    found = {}
    for name, own in by_entry.items():
        pairs = zip(base, (one.latencies_ms for one in own), strict=True)
        ratios = [[one / other for one, other in zip(*pair, strict=True)] for pair in pairs]
        found[name] = quantiles([median(rounds) for rounds in zip(*ratios, strict=True)])
    return found


def _median_of(timings: RoundTimings, sentences: Sequence[int]) -> float:
    return median(timings.latencies_ms[index] for index in sentences)


def matched_baseline(search: SearchConfig, baselines: Mapping[str, SearchConfig]) -> str | None:
    """Return the name of the first baseline with the same workload as `search`; None if there is no such baseline.

    Engine, precision and shortlist must be the same; both must have a beam, or samples, or neither. Within one family beams must
    also be equally wide.
    """
    same = (name for name, other in baselines.items() if other.workload == search.workload and search.equally_wide(other))
    return next(same, None)
