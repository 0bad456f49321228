"""An entry of the benchmark: a loaded system with one search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import fewstep
from fewstep.config.search import SearchConfig
from fewstep.decoding import decode_batch
from stages.benchmark.timing import Output, Translate


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
