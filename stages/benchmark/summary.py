"""Latency, throughput and ratios from the timings of all rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fewstep.config.search import SearchConfig
from stages.benchmark.timing import RoundTimings
from stages.shared.statistics import percentile, quantiles
from stages.shared.tasks import TRANSLATION, Task

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


def table(
    test_sentences: int, protocol: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]], task: Task = TRANSLATION
) -> dict[str, Any]:
    """Return the table of latency, throughput, calls, tokens and memory of each entry."""
    sizes = [str(size) for size in protocol["batch_sizes"]]
    speeds = ["ms (p50)", "ms (p95)", "Tokenisation", "Detokenisation", "Speed-up", "Like for like"]
    for size in sizes:
        speeds += [f"{task.units.capitalize()}/s ({size})", f"Ratio ({size})"]
    memory = ["Memory, MiB"] if all("memory_mib" in value for value in figures.values()) else []
    columns = ["Entry", *speeds, "Tokens/s", f"Calls/{task.unit}", f"Tokens/{task.unit}", *memory]
    rows = [_row(name, value, sizes, protocol["matched_baselines"][name], bool(memory)) for name, value in figures.items()]
    caption = (
        f"{protocol['sentences']} of {test_sentences} {task.units}, {protocol['rounds']} interleaved rounds in one process. "
        f"Latency: one {task.unit} at a time, tokenisation and detokenisation (also in ms) included. Throughput: batches of "
        f"{', '.join(sizes)} (tokens: the last size). Ratios are to the baseline; above 1 is faster. Like for like: ratio to the "
        "search of the baseline's system with the same engine, precision and shortlist, and the same beam if there is one; a dash "
        "means that there is no such search."
    )
    if memory:
        caption += " Memory: peak increase of a separate process that loads the system and translates the largest batch."
    return {"title": "Speed in detail", "caption": caption, "columns": columns, "rows": rows}


def _row(name: str, value: Mapping[str, Any], sizes: Sequence[str], matched: str | None, memory: bool) -> list[str]:
    latency = value["latency_ms"]
    row = [name, *(f"{latency[key]:,.2f}" for key in ("median", "p95", "tokenisation", "detokenisation"))]
    row.append(f"{value['latency_ratio']['median']:.2f}x")
    row.append("-" if matched is None else f"{value['relative_to'][matched]['latency_ratio']:.2f}x")
    for size in sizes:
        found = value["batches"][size]
        row += [f"{found['sentences_per_second']['median']:,.1f}", f"{found['throughput_ratio']['median']:.2f}x"]
    row.append(f"{value['target_tokens_per_second']['median']:,.0f}")
    row += [f"{value[key]:.2f}" for key in ("decoder_calls_per_sentence", "target_tokens_per_sentence")]
    return [*row, f"{value['memory_mib']['peak']:,.0f}"] if memory else row


def reference_table(protocol: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of ratios of each entry to each reference entry."""
    references = protocol["reference_entries"]
    size = str(protocol["batch_size"])
    rows = [
        [name]
        + [
            f"{value['relative_to'][other]['latency_ratio']:.2f}x / {value['relative_to'][other]['throughput_ratios'][size]:.2f}x"
            for other in references
        ]
        for name, value in figures.items()
    ]
    caption = (
        f"Speed-up over each reference entry: one at a time / in batches of {size}. Reference entries are the searches of the "
        "baseline's system and the searches that run in CTranslate2."
    )
    return {"title": "Comparison with reference entries", "caption": caption, "columns": ["Entry", *references], "rows": rows}


def length_table(parts: Sequence[Mapping[str, Any]], baseline: str, task: Task = TRANSLATION) -> dict[str, Any]:
    """Return the table of speed-ups by source length."""
    columns = [f"{part['min_tokens']}-{part['max_tokens']} tokens" for part in parts]
    rows = [[name, *(f"{part['ratios'][name]:.2f}x" for part in parts)] for name in parts[0]["ratios"]]
    caption = (
        f"Latency of {baseline} divided by that of each entry, by source length. Each column is a quarter of the {task.units}."
    )
    return {"title": "Speed-up by source length", "caption": caption, "columns": ["Entry", *columns], "rows": rows}


def parts_table(timings: Sequence[RoundTimings]) -> dict[str, Any] | None:
    """Return the table of milliseconds by part of decoding (Xia et al. 2022, table 7); None if no entry records parts."""
    rows = []
    names = list(dict.fromkeys(part for one in timings for part in one.parts))
    for entry in dict.fromkeys(one.entry for one in timings if one.parts):
        own = [one for one in timings if one.entry == entry]
        sentences, whole = sum(len(one.latencies_ms) for one in own), sum(sum(one.latencies_ms) for one in own)
        spent = [1000 * sum(one.parts.get(part, 0.0) for one in own) for part in names]
        cells = [*spent, whole - sum(spent), whole]
        rows.append([entry, *(f"{value / sentences:.3f} ({100 * value / whole:.0f} %)" for value in cells)])
    if not rows:
        return None
    caption = (
        "Mean milliseconds of a sentence that is translated alone, by part of decoding. Outside: tokenisation, detokenisation and "
        "all else outside the decoder."
    )
    columns = ["Entry", *(name.replace("_", " ") for name in names), "outside", "all"]
    return {"title": "Time by part of drafting", "caption": caption, "columns": columns, "rows": rows}
