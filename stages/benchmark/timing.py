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


@dataclass(frozen=True)
class Output:
    """What one call of an entry gave, summed over its lines."""

    tokens: int
    """Target tokens of the best hypotheses, without EOS."""
    steps: int
    """Decoder calls, summed over sentences."""
    source_tokens: int = 0
    """Source tokens, without EOS."""
    tokenisation_seconds: float = 0.0
    """Of its time, what it took to turn lines into ids."""
    detokenisation_seconds: float = 0.0
    """Of its time, what it took to turn ids into lines."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds in parts of the decoding, where the decoder tells of them."""


STRETCH = 10
"""Sentences that an entry translates one by one before the next entry does: so few that a slow spell of the machine meets
all entries alike."""
LEAD_IN = 4
"""Sentences that it translates before these untimed: what comes after another system finds its own weights out of the caches,
and what comes after another search of the same does not."""

Translate = Callable[[Sequence[str]], Output]
"""Translates lines to text as one batch, tokenisation and detokenisation included."""


@dataclass
class Turn:
    """What one entry took in one round."""

    round: int
    entry: str
    latencies_ms: list[float] = field(default_factory=list)
    """Milliseconds of each sentence, translated alone."""
    tokenisation_ms: list[float] = field(default_factory=list)
    """Of these, what turning lines into ids took."""
    detokenisation_ms: list[float] = field(default_factory=list)
    """Of these, what turning ids into lines took."""
    source_tokens: list[int] = field(default_factory=list)
    """Of each sentence."""
    batch_seconds: dict[int, float] = field(default_factory=dict)
    """Seconds for all sentences, by the size of the batches they came in."""
    tokens: int = 0
    steps: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the sentences that were translated alone, by part of the decoding."""


def measure(
    entries: Mapping[str, Translate],
    lines: Sequence[str],
    rounds: int,
    batch_sizes: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[Turn]]:
    """Each round's turns: all entries on all lines, after one untimed batch and sentence of each.

    Entries take turns at every `STRETCH` of sentences, A B C A B C ..., each after `LEAD_IN` untimed ones of the same stretch, and
    then at every batch of each size.
    """
    grouped = {size: batches(lines, size) for size in batch_sizes}
    for translate in entries.values():
        translate(grouped[batch_sizes[-1]][0])
        translate(lines[:1])
    for number in range(rounds):
        turns = [Turn(number, name, batch_seconds=dict.fromkeys(batch_sizes, 0.0)) for name in entries]
        for start in range(0, len(lines), STRETCH):
            stretch = lines[start : start + STRETCH]
            for turn in turns:
                for line in stretch[-LEAD_IN:]:
                    entries[turn.entry]([line])
                _time_sentences(turn, entries[turn.entry], stretch, clock)
        for size, some in grouped.items():
            for batch in some:
                for turn in turns:
                    began = clock()
                    entries[turn.entry](batch)
                    turn.batch_seconds[size] += clock() - began
        yield turns


def _time_sentences(turn: Turn, translate: Translate, lines: Sequence[str], clock: Callable[[], float]) -> None:
    for line in lines:
        began = clock()
        output = translate([line])
        turn.latencies_ms.append(1000 * (clock() - began))
        turn.tokenisation_ms.append(1000 * output.tokenisation_seconds)
        turn.detokenisation_ms.append(1000 * output.detokenisation_seconds)
        turn.source_tokens.append(output.source_tokens)
        turn.tokens += output.tokens
        turn.steps += output.steps
        for part, seconds in output.parts.items():
            turn.parts[part] = turn.parts.get(part, 0.0) + seconds


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


QUANTILES = 20
"""Parts of a distribution, between the lowest value and the highest."""


def quantiles(values: Sequence[float]) -> list[float]:
    """`QUANTILES` + 1 of the values, from the lowest to the highest."""
    ordered = sorted(values)
    return [ordered[round(part * (len(ordered) - 1) / QUANTILES)] for part in range(QUANTILES + 1)]


def summarise(turns: Sequence[Turn], baseline: str, yardsticks: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Figures of each entry, in the order of the first round.

    Latency: median and 95th percentile over all sentences of all rounds. Throughput: median over rounds, for the last batch size
    and (`batches`) for all. Ratios to the baseline and to each of the `yardsticks` (above 1 is faster): of each round's figures,
    then the median over rounds.
    """
    names = list(dict.fromkeys(turn.entry for turn in turns))
    by_entry = {name: [turn for turn in turns if turn.entry == name] for name in names}
    return {
        name: {
            **_figures(by_entry[name], by_entry[baseline]),
            "beside": {other: _beside(by_entry[name], by_entry[other]) for other in yardsticks},
        }
        for name in names
    }


def _figures(turns: Sequence[Turn], baseline: Sequence[Turn]) -> dict[str, Any]:
    latencies = [value for turn in turns for value in turn.latencies_ms]
    sentences = len(turns[0].latencies_ms)
    sizes = list(turns[0].batch_seconds)
    found = {size: _throughput(turns, baseline, size) for size in sizes}
    return {
        "latency_ms": {
            "median": median(latencies),
            "p95": percentile(latencies, 95),
            "rounds": [median(turn.latencies_ms) for turn in turns],
            "tokenisation": median(value for turn in turns for value in turn.tokenisation_ms),
            "detokenisation": median(value for turn in turns for value in turn.detokenisation_ms),
        },
        **found[sizes[-1]],
        "batches": {str(size): figures for size, figures in found.items()},
        "decoder_calls_per_sentence": turns[0].steps / sentences,
        "target_tokens_per_sentence": turns[0].tokens / sentences,
        "latency_ratio": _over_rounds(_latency_ratios(turns, baseline)),
    }


def _throughput(turns: Sequence[Turn], baseline: Sequence[Turn], size: int) -> dict[str, Any]:
    """In batches of one size."""
    sentences = len(turns[0].latencies_ms)
    return {
        "sentences_per_second": _over_rounds([sentences / turn.batch_seconds[size] for turn in turns]),
        "target_tokens_per_second": {"median": median(turn.tokens / turn.batch_seconds[size] for turn in turns)},
        "throughput_ratio": _over_rounds(_throughput_ratios(turns, baseline, size)),
    }


def _beside(turns: Sequence[Turn], other: Sequence[Turn]) -> dict[str, Any]:
    return {
        "latency_ratio": median(_latency_ratios(turns, other)),
        "throughput_ratios": {str(size): median(_throughput_ratios(turns, other, size)) for size in turns[0].batch_seconds},
    }


def _latency_ratios(turns: Sequence[Turn], other: Sequence[Turn]) -> list[float]:
    return [median(base.latencies_ms) / median(turn.latencies_ms) for base, turn in zip(other, turns, strict=True)]


def _throughput_ratios(turns: Sequence[Turn], other: Sequence[Turn], size: int) -> list[float]:
    return [base.batch_seconds[size] / turn.batch_seconds[size] for base, turn in zip(other, turns, strict=True)]


def _over_rounds(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "rounds": values}


BINS = 4
"""Into which sentences are parted by length, as many in each."""


def by_length(turns: Sequence[Turn], baseline: str) -> list[dict[str, Any]]:
    """For each quarter of the sentences by source tokens (as the baseline counts them): how long they are (`shortest`, `longest`),
    how many, and the latency ratio of each entry (`ratios`): of each round's medians, then the median over rounds."""
    base = [turn for turn in turns if turn.entry == baseline]
    lengths = base[0].source_tokens
    ordered = sorted(range(len(lengths)), key=lambda index: lengths[index])
    parts = [ordered[len(ordered) * part // BINS : len(ordered) * (part + 1) // BINS] for part in range(BINS)]
    by_entry = {name: [turn for turn in turns if turn.entry == name] for name in dict.fromkeys(turn.entry for turn in turns)}
    return [
        {
            "shortest": lengths[part[0]],
            "longest": lengths[part[-1]],
            "sentences": len(part),
            "ratios": {
                name: median(_median_of(one, part) / _median_of(turn, part) for one, turn in zip(base, found, strict=True))
                for name, found in by_entry.items()
            },
        }
        for part in parts
        if part
    ]


def by_sentence(turns: Sequence[Turn], baseline: str) -> dict[str, list[float]]:
    """For each entry how many times as fast as the baseline it is at single sentences (of each the median over rounds): quantiles
    over sentences."""
    base = [turn.latencies_ms for turn in turns if turn.entry == baseline]
    found = {}
    for name in dict.fromkeys(turn.entry for turn in turns):
        own = [turn.latencies_ms for turn in turns if turn.entry == name]
        ratios = [[one / other for one, other in zip(*pair, strict=True)] for pair in zip(base, own, strict=True)]
        found[name] = quantiles([median(rounds) for rounds in zip(*ratios, strict=True)])
    return found


def _median_of(turn: Turn, sentences: Sequence[int]) -> float:
    return median(turn.latencies_ms[index] for index in sentences)


def environment(device: str, threads: int, *, ctranslate2: bool = False) -> dict[str, Any]:
    """Where the figures were measured, and with which versions; `ctranslate2`: with it, too."""
    from importlib.metadata import version

    import torch

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "precision": "float32",
        "torch": torch.__version__,
        **({"ctranslate2": version("ctranslate2")} if ctranslate2 else {}),
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
