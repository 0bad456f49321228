"""Tables of benchmark figures for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.benchmark.timing import RoundTimings
from stages.shared.tasks import TRANSLATION, Task


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
    references, size = protocol["reference_entries"], str(protocol["batch_size"])
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
    rows, names = [], list(dict.fromkeys(part for one in timings for part in one.parts))
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
