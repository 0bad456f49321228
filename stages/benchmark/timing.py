"""Time entries in interleaved rounds, one sentence at a time and in batches; a loaded system with a search is an entry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fewstep
from fewstep.config.search import SearchConfig
from fewstep.decoding import decode_batch

STRETCH = 10
"""Sentences that an entry translates one by one before the next entry does. The number is small, so that a slow period of the
machine affects all entries alike."""
LEAD_IN = 4
"""Untimed sentences before each stretch. The first sentences after another system find the weights evicted from the caches, those
after another search of the same system do not."""


@dataclass(frozen=True)
class Output:
    """Counts and times of one call of an entry, summed over its lines."""

    tokens: int
    """Target tokens of the best hypotheses, without EOS."""
    steps: int
    """Decoder calls, summed over sentences."""
    source_tokens: int = 0
    """Source tokens, without EOS."""
    tokenisation_seconds: float = 0.0
    """Seconds from lines to ids."""
    detokenisation_seconds: float = 0.0
    """Seconds from ids to lines."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part of the decoding, for decoders that record them."""
    seconds: float | None = None
    """Seconds of the whole call, for entries that time themselves in another process."""


Translate = Callable[[Sequence[str]], Output]
"""A function that translates lines to text as one batch, tokenisation and detokenisation included."""


@dataclass
class RoundTimings:
    """Timings of one entry in one round."""

    round: int
    entry: str
    latencies_ms: list[float] = field(default_factory=list)
    """Milliseconds of each sentence, translated alone."""
    tokenisation_ms: list[float] = field(default_factory=list)
    """Milliseconds of each sentence from its line to ids."""
    detokenisation_ms: list[float] = field(default_factory=list)
    """Milliseconds of each sentence from ids to its line."""
    source_tokens: list[int] = field(default_factory=list)
    """Source tokens of each sentence, without EOS."""
    batch_seconds: dict[int, float] = field(default_factory=dict)
    """Seconds for all sentences by batch size."""
    tokens: int = 0
    """Target tokens of all sentences, without EOS."""
    steps: int = 0
    """Decoder calls of all sentences."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the sentences that were translated alone, by part of the decoding."""


def measure(
    entries: Mapping[str, Translate],
    lines: Sequence[str],
    rounds: int,
    batch_sizes: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[list[RoundTimings]]:
    """Yield the timings of all entries on all lines for each round, after one untimed batch and sentence of each entry.

    Entries alternate at every `STRETCH` of sentences, A B C A B C ..., each after `LEAD_IN` untimed sentences of the same stretch.
    Then they alternate at every batch of each size.
    """
    grouped = {size: sized_batches(lines, size) for size in batch_sizes}
    for translate in entries.values():
        translate(grouped[batch_sizes[-1]][0])
        translate(lines[:1])
    for number in range(rounds):
        timings = [RoundTimings(number, name, batch_seconds=dict.fromkeys(batch_sizes, 0.0)) for name in entries]
        for start in range(0, len(lines), STRETCH):
            stretch = lines[start : start + STRETCH]
            for own in timings:
                for line in stretch[-LEAD_IN:]:
                    entries[own.entry]([line])
                _time_sentences(own, entries[own.entry], stretch, clock)
        for size, some in grouped.items():
            for batch in some:
                for own in timings:
                    _, seconds = _timed(entries[own.entry], batch, clock)
                    own.batch_seconds[size] += seconds
        yield timings


def _time_sentences(timings: RoundTimings, translate: Translate, lines: Sequence[str], clock: Callable[[], float]) -> None:
    for line in lines:
        output, seconds = _timed(translate, [line], clock)
        timings.latencies_ms.append(1000 * seconds)
        timings.tokenisation_ms.append(1000 * output.tokenisation_seconds)
        timings.detokenisation_ms.append(1000 * output.detokenisation_seconds)
        timings.source_tokens.append(output.source_tokens)
        timings.tokens += output.tokens
        timings.steps += output.steps
        for part, seconds in output.parts.items():
            timings.parts[part] = timings.parts.get(part, 0.0) + seconds


def _timed(translate: Translate, lines: Sequence[str], clock: Callable[[], float]) -> tuple[Output, float]:
    """Return the output of a call and its seconds."""
    began = clock()
    output = translate(lines)
    passed = clock() - began
    return output, passed if output.seconds is None else output.seconds


def sized_batches(lines: Sequence[str], batch_size: int) -> list[list[str]]:
    """Return all lines, sorted by length in characters, in batches of `batch_size` lines (fewer in the last)."""
    ordered = sorted(lines, key=len)
    return [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]


def timed_translator(system: fewstep.System, search: SearchConfig) -> Translate:
    """Return a function that translates lines as one batch, from text to text, and times itself.

    CTranslate2 is timed without the second pass that computes comparable scores, as its users run it.
    """
    search = search.without_rescoring()
    clock = time.perf_counter

    def translate(lines: Sequence[str]) -> Output:
        began = clock()
        decoder = system.decoder
        before = seconds(decoder)
        sources = system.encode(lines)
        encoded = clock()
        found = decode_batch(decoder, sources, search)
        best = [ranked[0] for ranked in (system.keep_masks(sources, found, search) if system.masks else found)]
        decoded = clock()
        system.decode_ids([hypothesis.ids for hypothesis in best])
        return Output(
            sum(len(hypothesis.ids) for hypothesis in best),
            sum(hypothesis.steps for hypothesis in best),
            sum(len(source) for source in sources),
            encoded - began,
            clock() - decoded,
            spent(decoder, before),
        )

    return translate


def seconds(decoder: Any) -> dict[str, float]:
    """Return the seconds that a decoder has spent so far by part; empty if it does not record them."""
    record = getattr(decoder, "record", None)
    return {} if record is None else dict(record.seconds)


def spent(decoder: Any, before: dict[str, float]) -> dict[str, float]:
    """Return the seconds by part since `before`, an earlier result of `seconds`."""
    return {part: value - before.get(part, 0.0) for part, value in seconds(decoder).items()}
