"""One entry of the benchmark at work: lines in, text and timings out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import models.bundle.system
from models.config.search import SearchConfig
from stages.benchmark.timing import Output, Translate


def timed_translator(system: models.bundle.system.System, search: SearchConfig) -> Translate:
    """A loaded system with one search, from lines to text as one batch. CTranslate2 is timed as others use it, without another
    pass for scores."""
    search = search.without_rescoring()
    clock = time.perf_counter

    def translate(lines: Sequence[str]) -> Output:
        began, decoder = clock(), system.decoder
        before = seconds(decoder)
        sources = system.encode(lines)
        encoded = clock()
        best = [ranked[0] for ranked in decoder.decode(decoder.prepare(sources, search), search)]
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
    """What a decoder's parts have taken so far, where it tells of them."""
    record = getattr(decoder, "record", None)
    return {} if record is None else dict(record.seconds)


def spent(decoder: Any, before: dict[str, float]) -> dict[str, float]:
    """And since then."""
    return {part: value - before.get(part, 0.0) for part, value in seconds(decoder).items()}
