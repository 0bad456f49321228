"""Measure how fast entries translate: interleaved rounds, one sentence at a time and in batches."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from stages.tasks import TRANSLATION, Task


@dataclass(frozen=True)
class Output:
    """What one call of an entry gave, summed over its lines."""

    tokens: int
    """Target tokens of the best hypotheses, without EOS."""
    steps: int
    """Decoder calls, summed over sentences."""


STRETCH = 10
"""Sentences that an entry translates one by one before the next entry does: so few that a slow spell of the machine meets
all entries alike, and so many that caches are as warm as in use."""

Translate = Callable[[Sequence[str]], Output]
"""Translates lines to text as one batch, tokenisation and detokenisation included."""


@dataclass
class Turn:
    """What one entry took in one round."""

    round: int
    entry: str
    latencies_ms: list[float] = field(default_factory=list)
    """Milliseconds of each sentence, translated alone."""
    batch_seconds: float = 0.0
    """Seconds for all sentences, in batches."""
    tokens: int = 0
    steps: int = 0


def measure(
    entries: Mapping[str, Translate],
    lines: Sequence[str],
    rounds: int,
    batch_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[Turn]]:
    """Each round's turns: all entries on all lines, after one untimed batch and sentence of each.

    Entries take turns at every `STRETCH` of sentences, A B C A B C ..., and then at every batch.
    """
    grouped = batches(lines, batch_size)
    for translate in entries.values():
        translate(grouped[0])
        translate(lines[:1])
    for number in range(rounds):
        turns = [Turn(number, name) for name in entries]
        for start in range(0, len(lines), STRETCH):
            for turn in turns:
                _time_sentences(turn, entries[turn.entry], lines[start : start + STRETCH], clock)
        for batch in grouped:
            for turn in turns:
                began = clock()
                entries[turn.entry](batch)
                turn.batch_seconds += clock() - began
        yield turns


def _time_sentences(turn: Turn, translate: Translate, lines: Sequence[str], clock: Callable[[], float]) -> None:
    for line in lines:
        began = clock()
        output = translate([line])
        turn.latencies_ms.append(1000 * (clock() - began))
        turn.tokens += output.tokens
        turn.steps += output.steps


def batches(lines: Sequence[str], batch_size: int) -> list[list[str]]:
    """All lines, sorted by length in characters, in batches of `batch_size` (fewer in the last)."""
    ordered = sorted(lines, key=len)
    return [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """Up to `wanted` positions spread over `count`, the first among them."""
    wanted = min(count, wanted)
    return [index * count // wanted for index in range(wanted)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summarise(turns: Sequence[Turn], baseline: str) -> dict[str, dict[str, Any]]:
    """Figures of each entry, in the order of the first round.

    Latency: median and 95th percentile over all sentences of all rounds. Throughput: median over rounds. Ratios to the
    baseline (above 1 is faster): of each round's own medians, then the median over rounds.
    """
    names = list(dict.fromkeys(turn.entry for turn in turns))
    by_entry = {name: [turn for turn in turns if turn.entry == name] for name in names}
    return {name: _figures(by_entry[name], by_entry[baseline]) for name in names}


def _figures(turns: Sequence[Turn], baseline: Sequence[Turn]) -> dict[str, Any]:
    latencies = [value for turn in turns for value in turn.latencies_ms]
    medians = [median(turn.latencies_ms) for turn in turns]
    sentences = len(turns[0].latencies_ms)
    speeds = [sentences / turn.batch_seconds for turn in turns]
    latency_ratios = [median(base.latencies_ms) / value for base, value in zip(baseline, medians, strict=True)]
    speed_ratios = [base.batch_seconds / turn.batch_seconds for base, turn in zip(baseline, turns, strict=True)]
    return {
        "latency_ms": {"median": median(latencies), "p95": percentile(latencies, 95), "rounds": medians},
        "sentences_per_second": {"median": median(speeds), "rounds": speeds},
        "target_tokens_per_second": {"median": median(turn.tokens / turn.batch_seconds for turn in turns)},
        "decoder_calls_per_sentence": turns[0].steps / sentences,
        "target_tokens_per_sentence": turns[0].tokens / sentences,
        "latency_ratio": {"median": median(latency_ratios), "rounds": latency_ratios},
        "throughput_ratio": {"median": median(speed_ratios), "rounds": speed_ratios},
    }


def environment(device: str, threads: int) -> dict[str, Any]:
    """Where the figures were measured."""
    import torch

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "precision": "fp32",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(
    test_sentences: int, protocol: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]], task: Task = TRANSLATION
) -> dict[str, Any]:
    """The figures as a table for the report."""
    speeds = ["ms (p50)", "ms (p95)", "Speed-up", f"{task.units.capitalize()}/s", "Ratio", "Tokens/s"]
    columns = ["Entry", *speeds, f"Calls/{task.unit}", f"Tokens/{task.unit}"]
    rows = [
        [
            name,
            f"{value['latency_ms']['median']:,.2f}",
            f"{value['latency_ms']['p95']:,.2f}",
            f"{value['latency_ratio']['median']:.2f}x",
            f"{value['sentences_per_second']['median']:,.1f}",
            f"{value['throughput_ratio']['median']:.2f}x",
            f"{value['target_tokens_per_second']['median']:,.0f}",
            f"{value['decoder_calls_per_sentence']:.2f}",
            f"{value['target_tokens_per_sentence']:.2f}",
        ]
        for name, value in figures.items()
    ]
    caption = (
        f"{protocol['sentences']} of {test_sentences} {task.units}, {protocol['rounds']} interleaved rounds in one process. "
        f"Latency: one {task.unit} at a time. Throughput: batches of {protocol['batch_size']}. "
        "Tokenisation and detokenisation are included; ratios are to the baseline, above 1 is faster."
    )
    return {"title": "Speed in detail", "caption": caption, "columns": columns, "rows": rows}
