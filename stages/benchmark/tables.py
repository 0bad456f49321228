"""Figures of `stages.benchmark.timing` as tables for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.benchmark.timing import Turn
from stages.score.tasks import TRANSLATION, Task


def table(
    test_sentences: int, protocol: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]], task: Task = TRANSLATION
) -> dict[str, Any]:
    """What each entry took."""
    sizes = [str(size) for size in protocol["batch_sizes"]]
    speeds = ["ms (p50)", "ms (p95)", "of it text to ids", "ids to text", "Speed-up", "Like for like"]
    for size in sizes:
        speeds += [f"{task.units.capitalize()}/s ({size})", f"Ratio ({size})"]
    memory = ["Memory, MiB"] if all("memory_mib" in value for value in figures.values()) else []
    columns = ["Entry", *speeds, "Tokens/s", f"Calls/{task.unit}", f"Tokens/{task.unit}", *memory]
    rows = [_row(name, value, sizes, protocol["peers"][name], bool(memory)) for name, value in figures.items()]
    caption = (
        f"{protocol['sentences']} of {test_sentences} {task.units}, {protocol['rounds']} interleaved rounds in one process. "
        f"Latency: one {task.unit} at a time. Throughput: batches of {', '.join(sizes)} (tokens: the last). "
        "Tokenisation and detokenisation are included; ratios are to the baseline, above 1 is faster. Like for like: to the search "
        "of the baseline's system by the same engine, in the same precision, with the same list of words and, if any, the same "
        "beam; -: there is none."
    )
    if memory:
        caption += " Memory: what loading and the largest batch add at most to a process of their own."
    return {"title": "Speed in detail", "caption": caption, "columns": columns, "rows": rows}


def _row(name: str, value: Mapping[str, Any], sizes: Sequence[str], peer: str | None, memory: bool) -> list[str]:
    latency = value["latency_ms"]
    row = [name, *(f"{latency[key]:,.2f}" for key in ("median", "p95", "tokenisation", "detokenisation"))]
    row.append(f"{value['latency_ratio']['median']:.2f}x")
    row.append("-" if peer is None else f"{value['beside'][peer]['latency_ratio']:.2f}x")
    for size in sizes:
        found = value["batches"][size]
        row += [f"{found['sentences_per_second']['median']:,.1f}", f"{found['throughput_ratio']['median']:.2f}x"]
    row.append(f"{value['target_tokens_per_second']['median']:,.0f}")
    row += [f"{value[key]:.2f}" for key in ("decoder_calls_per_sentence", "target_tokens_per_sentence")]
    return [*row, f"{value['memory_mib']['peak']:,.0f}"] if memory else row


def yardstick_table(protocol: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Each entry beside each yardstick."""
    yardsticks, size = protocol["yardsticks"], str(protocol["batch_size"])
    rows = [
        [name]
        + [
            f"{value['beside'][other]['latency_ratio']:.2f}x / {value['beside'][other]['throughput_ratios'][size]:.2f}x"
            for other in yardsticks
        ]
        for name, value in figures.items()
    ]
    caption = (
        f"How many times as fast as each yardstick: one at a time / in batches of {size}. The yardsticks are the searches of "
        "the baseline's system, and what CTranslate2 decodes."
    )
    return {"title": "Speed beside the yardsticks", "caption": caption, "columns": ["Entry", *yardsticks], "rows": rows}


def length_table(parts: Sequence[Mapping[str, Any]], baseline: str, task: Task = TRANSLATION) -> dict[str, Any]:
    """Speed-up by source length."""
    columns = [f"{part['shortest']}-{part['longest']} tokens" for part in parts]
    rows = [[name, *(f"{part['ratios'][name]:.2f}x" for part in parts)] for name in parts[0]["ratios"]]
    caption = f"Latency of {baseline} over that of each entry, by source length: a quarter of the {task.units} in each column."
    return {"title": "Speed-up by source length", "caption": caption, "columns": ["Entry", *columns], "rows": rows}


def table_of_parts(turns: Sequence[Turn]) -> dict[str, Any] | None:
    """Where the time of a sentence goes, in milliseconds, for entries that tell; None: none does. (Xia et al. 2022, table 7)"""
    rows, names = [], list(dict.fromkeys(part for turn in turns for part in turn.parts))
    for entry in dict.fromkeys(turn.entry for turn in turns if turn.parts):
        mine = [turn for turn in turns if turn.entry == entry]
        sentences, whole = sum(len(turn.latencies_ms) for turn in mine), sum(sum(turn.latencies_ms) for turn in mine)
        spent = [1000 * sum(turn.parts.get(part, 0.0) for turn in mine) for part in names]
        cells = [*spent, whole - sum(spent), whole]
        rows.append([entry, *(f"{value / sentences:.3f} ({100 * value / whole:.0f} %)" for value in cells)])
    if not rows:
        return None
    caption = (
        "Mean milliseconds of a sentence translated alone, by part; outside: text to ids and back, and what surrounds the decoding."
    )
    columns = ["Entry", *(name.replace("_", " ") for name in names), "outside", "all"]
    return {"title": "Where the time of drafting goes", "caption": caption, "columns": columns, "rows": rows}
