"""Decode any number of sentences with any decoder, in batches of similar length.

All callers decode this way: `System.translate`, the stages, validation in training, and the benchmark, which times single batches.
The hypotheses of a sentence do not depend on the other sentences of its batch, except for rounding (near-ties).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from fewstep.config.problems import Problem
from fewstep.translation import Hypothesis

A = TypeVar("A")
P = TypeVar("P")

BATCH_TOKENS = 4000
"""Default number of padded source tokens in a batch, EOS included."""


class Decoder(Protocol):
    """The decoder of a loaded system, on ids."""

    @property
    def memory_errors(self) -> tuple[type[BaseException], ...]:
        """The errors that `decode` raises when the memory does not suffice for a batch."""
        ...

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Any:
        """Do the CPU work before the network, such as padding or table look-up; this may run one batch ahead. `search` is the
        search that will follow: the look-up depends on it. `threads` is the number of threads (None: the decoder's default)."""
        ...

    def problems(self, search: Any) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        ...

    def decode(self, prepared: Any, search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first, with `threads` threads (None: the decoder's default)."""
        ...


class DecodingMemoryError(MemoryError):
    """The error for a single sentence that does not fit into memory."""


def decode_sentences(
    decoder: Decoder,
    sources: Sequence[Sequence[int]],
    search: Any,
    *,
    batch_tokens: int = BATCH_TOKENS,
    in_flight: int = 1,
    threads: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first, in the order of the sources.

    Args:
        sources: Token ids without EOS. An empty source is not decoded and has one empty hypothesis.
        batch_tokens: Padded source tokens in a batch. A longer sentence forms a batch of its own.
        in_flight: Number of batches that are decoded at once by threads. With several, the CPU part of one search overlaps with
            the network of another on a GPU.
        threads: Number of threads for each batch. None: the decoder's default.

    While a batch is decoded, a thread prepares the next one. Raises DecodingMemoryError when the memory does not suffice for one
    sentence.
    """
    planned = batches([len(ids) for ids in sources], batch_tokens)
    prepared = prefetch(lambda rows: decoder.prepare([sources[row] for row in rows], search, threads), planned)

    def decode(batch: tuple[list[int], Any]) -> list[list[Hypothesis]]:
        return decode_batch(decoder, [sources[row] for row in batch[0]], search, batch[1], threads)

    found = [[Hypothesis([], 0.0, 0)] for _ in sources]
    with ThreadPoolExecutor(in_flight) if in_flight > 1 else nullcontext() as pool:
        decoded = pool.map(decode, prepared) if pool else map(decode, prepared)
        for rows, hypotheses in zip(planned, decoded, strict=True):
            for row, ranked in zip(rows, hypotheses, strict=True):
                found[row] = ranked
    return found


def decode_batch(
    decoder: Decoder, sources: Sequence[Sequence[int]], search: Any, prepared: Any = None, threads: int | None = None
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, decoded as one batch, or in halves if the memory does not suffice.

    `prepared` is the result of `decoder.prepare` for these sources, if it was called already. Sources must not be empty.
    Raises DecodingMemoryError when the memory does not suffice for one sentence.
    """
    try:
        ready = decoder.prepare(sources, search, threads) if prepared is None else prepared
        return decoder.decode(ready, search, threads)
    except decoder.memory_errors as error:
        if len(sources) == 1:
            reason = str(error).partition("\n")[0]
            raise DecodingMemoryError(
                f"decoding: out of memory with one source of {len(sources[0])} tokens: {reason}; "
                "reduce beam_size, or truncate sources (corpus.max_source_tokens)"
            ) from error
    half = len(sources) // 2
    return [ranked for part in (sources[:half], sources[half:]) for ranked in decode_batch(decoder, part, search, threads=threads)]


def batches(lengths: Sequence[int], batch_tokens: int = BATCH_TOKENS) -> list[list[int]]:
    """Return the indices of the non-empty sentences, sorted by length and cut into batches of at most `batch_tokens` padded tokens.

    `lengths` are in tokens without EOS; EOS is counted. A sentence beyond the budget forms a batch of its own.
    """
    result: list[list[int]] = []
    for index in sorted((index for index, length in enumerate(lengths) if length), key=lambda index: (lengths[index], index)):
        if result and (lengths[index] + 1) * (len(result[-1]) + 1) <= batch_tokens:
            result[-1].append(index)
        else:
            result.append([index])
    return result


def prefetch(prepare: Callable[[A], P], items: Sequence[A]) -> Iterator[tuple[A, P]]:
    """Yield each item with its result of `prepare`. A thread prepares the next item while the caller works with one.

    An exception that `prepare` raises for an item is raised when that item is due.
    """
    if len(items) < 2:
        yield from ((item, prepare(item)) for item in items)
        return
    with ThreadPoolExecutor(1) as helper:
        waiting: tuple[A, Future[P]] | None = None
        for item in items:
            following = item, helper.submit(prepare, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()
