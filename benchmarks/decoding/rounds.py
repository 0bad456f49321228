"""Times of decoders that take turns, so that a slow spell of the machine affects all of them alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from benchmarks.decoding.networks import sentences

Decode = Callable[[list[list[int]]], object]
SECONDS = 0.05
"""A turn repeats a batch for at least this time."""


def milliseconds(decode: Decode, sources: list[list[int]]) -> float:
    """Return the mean time of a sentence."""
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < SECONDS or not count:
        decode(sources)
        count += 1
    return 1000 * passed / count / len(sources)


def measure(
    decoders: Mapping[str, Decode], batches: Sequence[int], threads: Sequence[int], tokens: int, vocabulary: int, rounds: int
) -> list[dict[str, Any]]:
    """Return the times of each entry by number of threads and size of batch. An untimed batch of each entry comes first."""
    taken: dict[tuple[str, int, int], list[float]] = {}
    read = {batch: sentences(batch, tokens, vocabulary) for batch in batches}
    for turn in range(rounds + 1):
        began = time.perf_counter()
        for count, batch, name, decode in _turns(decoders, batches, threads):
            if turn:
                taken.setdefault((name, count, batch), []).append(milliseconds(decode, read[batch]))
            else:
                decode(read[batch])
        what = f"round {turn} of {rounds}" if turn else "warm-up"
        print(f"{what}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return [
        {"entry": name, "threads": count, "batch": batch, "median": statistics.median(times), "rounds": times}
        for (name, count, batch), times in taken.items()
    ]


def _turns(
    decoders: Mapping[str, Decode], batches: Sequence[int], threads: Sequence[int]
) -> Iterator[tuple[int, int, str, Decode]]:
    """Yield (threads, batch, entry, decoder), the entries innermost, and set torch's number of threads."""
    for count in threads:
        torch.set_num_threads(count)
        for batch in batches:
            for name, decode in decoders.items():
                yield count, batch, name, decode
