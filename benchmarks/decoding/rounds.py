"""Times of decoders that take turns, so that a slow spell of the machine affects all of them alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.decoding.networks import sentences

Decode = Callable[[list[list[int]]], object]
SECONDS = 0.05
"""A turn repeats a batch for at least this time."""


class Turn(NamedTuple):
    """A decoder with a number of threads and a size of batch."""

    entry: str
    threads: int
    batch: int
    milliseconds: Callable[[], float]
    """Decodes and returns the mean time of a sentence."""
    setting: str = ""
    """The setting of an entry that has several."""


def milliseconds(decode: Decode, sources: list[list[int]], threads: int) -> float:
    """Return the mean time of a sentence."""
    torch.set_num_threads(threads)
    began = time.perf_counter()
    count = 0
    while (passed := time.perf_counter() - began) < SECONDS or not count:
        decode(sources)
        count += 1
    return 1000 * passed / count / len(sources)


def turns(
    decoders: Mapping[str, Decode], batches: Sequence[int], threads: Sequence[int], tokens: int, vocabulary: int
) -> list[Turn]:
    """Return the turns of decoders of this process, which use torch's number of threads."""
    read = {batch: sentences(batch, tokens, vocabulary) for batch in batches}

    def timed(decode: Decode, batch: int, count: int) -> Callable[[], float]:
        return lambda: milliseconds(decode, read[batch], count)

    return [
        Turn(name, count, batch, timed(decode, batch, count))
        for count in threads
        for batch in batches
        for name, decode in decoders.items()
    ]


def measure(found: Sequence[Turn], rounds: int) -> list[dict[str, Any]]:
    """Return the times of turns with equal threads and batch after each other, of which a first round is not counted."""
    ordered = sorted(found, key=lambda turn: (turn.threads, turn.batch))
    taken: dict[Turn, list[float]] = {turn: [] for turn in ordered}
    for number in range(rounds + 1):
        began = time.perf_counter()
        for turn in ordered:
            spent = turn.milliseconds()
            if number:
                taken[turn].append(spent)
        what = f"round {number} of {rounds}" if number else "warm-up"
        print(f"{what}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return [
        {
            "entry": turn.entry,
            **({"setting": turn.setting} if turn.setting else {}),
            "threads": turn.threads,
            "batch": turn.batch,
            "median": statistics.median(times),
            "rounds": times,
        }
        for turn, times in taken.items()
    ]


def medians(results: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, int], float]:
    """Return the milliseconds of each entry, threads and batch, by the fastest of its settings."""
    found: dict[tuple[str, int, int], float] = {}
    for row in results:
        key = row["entry"], row["threads"], row["batch"]
        found[key] = min(row["median"], found.get(key, row["median"]))
    return found
