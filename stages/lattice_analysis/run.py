"""Run the lattice_analysis stage."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, cast

from models.lattice.analysis import Ranks, ranks
from models.lattice.batches import SentenceTimes
from models.lattice.config import LatticeSearch
from models.lattice.decode import LatticeDecoder
from stages.benchmark.timing import environment, evenly_spaced
from stages.context import Context, StepContext
from stages.decoding.batching import batches
from stages.decoding.sentences import read_sentences
from stages.errors import DataError
from stages.lattice_analysis import LatticeAnalysisConfig, LatticeAnalysisInputs
from stages.likelihood.pairs import loaded
from stages.report.lattice_figures import latencies
from stages.report.lattice_figures import ranks as figure

PARTS = ("lookup", "encoder", "scoring", "search")
"""What decoding consists of."""


BATCH_TOKENS = 1000
"""Padded source tokens in a batch, EOS included."""


ROUNDS = 3
"""Times that each sentence is timed; the median counts."""


LONGEST = (8, 16, 24, 32)
"""Ends of the classes of lengths, in tokens of the output; one more holds what is longer."""


def run(inputs: LatticeAnalysisInputs, config: LatticeAnalysisConfig, context: StepContext) -> None:
    """Write `lattice_analysis.json`, and the time of each part as records.

    The search is the system's own, without a window of lengths.
    Raises DataError for a system of another family, and for a text without a sentence that the system can read.
    """
    system = loaded(inputs.system, context)
    if not isinstance(system.decoder, LatticeDecoder):
        raise DataError(f"lattice_analysis: expected a system of family lattice, got {system.name} of family {system.family}")
    own = cast(LatticeSearch, system.search)
    lines = [sentence.source for sentence in read_sentences(inputs.text.path)]
    sources = [source for source in system.encode([lines[row] for row in evenly_spaced(len(lines), config.rows)]) if source]
    if not sources:
        raise DataError(f"lattice_analysis: expected a sentence to read, got none in {inputs.text.path}")
    search = replace(own, strategy="viterbi", length_window=0)
    context.progress(0, len(sources), "sentences")
    _write_ranks(_ranked(system.decoder, sources, search), search, config.name, context)
    context.progress(len(sources), len(sources), "sentences")
    timed = replace(own, strategy="viterbi")
    chosen = [sources[row] for row in evenly_spaced(len(sources), config.timed)]
    _write_times(_timed(system.decoder, chosen, timed), timed, config.name, context)


def _ranked(decoder: LatticeDecoder, sources: Sequence[list[int]], search: LatticeSearch) -> Iterator[Ranks | None]:

    for batch in batches([len(source) for source in sources], BATCH_TOKENS):
        yield from ranks(decoder, [sources[row] for row in batch], search)


def _write_ranks(found: Iterator[Ranks | None], search: LatticeSearch, name: str, context: Context) -> None:

    counts: dict[str, Counter[int]] = {"tokens": Counter(), "edges": Counter()}
    sentences = Counter[str]()
    for told in found:
        sentences["without a path" if told is None else "with one"] += 1
        for kind, values in ({} if told is None else told._asdict()).items():
            counts[kind].update(map(_class_of, values))
    result: dict[str, Any] = {
        "candidates": search.candidates,
        "sentences": sentences.total(),
        "impossible": sentences["without a path"],
        **{kind: {str(rank): count for rank, count in sorted(values.items())} for kind, values in counts.items()},
    }
    context.write_json(context.directory / "lattice_analysis.json", result)
    shares = {kind: values[1] / max(1, values.total()) for kind, values in counts.items()}
    context.metrics(0, {f"first_{kind}": share for kind, share in shares.items()})
    caption = (
        f"Ranks before the search of what the best paths of {sentences.total():,} sentences hold ({search.candidates} candidates a "
        "slot, outputs of the predicted length): of tokens among the candidates of their slot by the counts, and of adjacent pairs "
        "among all pairs of their slots by the score of the pair alone."
    )
    context.write_text(context.records("figures", "lattice_ranks.svg"), figure(counts["tokens"], counts["edges"]))
    context.write_json(context.records("figures", "lattice_ranks.json"), {"caption": f"{name}. {caption}"})
    columns = ["rank", "tokens, %", "pairs, %"]
    ranks = sorted(set(counts["tokens"]) | set(counts["edges"]))
    rows = [
        [class_name(rank), *(f"{100 * values[rank] / max(1, values.total()):.1f}" for values in counts.values())] for rank in ranks
    ]
    table = {"title": f"Rank before search of {name}", "caption": caption, "columns": columns, "rows": rows}
    context.write_json(context.records("tables", "lattice_ranks.json"), table)


def _class_of(rank: int) -> int:
    """The least power of two that is not less: 1, 2, 4 (for 3 and 4), 8 (for 5 to 8), ..."""
    return 1 << (rank - 1).bit_length()


def class_name(rank: int) -> str:
    """`3-4`, by its class."""
    return str(rank) if rank <= 2 else f"{rank // 2 + 1}-{rank}"


def _timed(decoder: LatticeDecoder, sources: Sequence[list[int]], search: LatticeSearch) -> list[SentenceTimes]:
    """The median of each part over some rounds, of sentences one at a time."""
    for source in sources[:3]:
        decoder.timed(source, search)
    rounds = [[decoder.timed(source, search) for source in sources] for _ in range(ROUNDS)]
    return [
        SentenceTimes(turns[0].tokens, *(median(values) for values in zip(*(turn[1:] for turn in turns), strict=True)))
        for turns in zip(*rounds, strict=True)
    ]


def _write_times(found: Sequence[SentenceTimes], search: LatticeSearch, name: str, context: Context) -> None:

    classes: dict[str, list[SentenceTimes]] = {}
    for one in sorted(found, key=lambda taken: taken.tokens):
        classes.setdefault(length_name(one.tokens), []).append(one)
    medians = {
        length: {part: median(getattr(one, part) for one in members) for part in PARTS} for length, members in classes.items()
    }
    device = "cuda" if context.resources.gpus else "cpu"
    record = {"environment": environment(device, context.resources.threads), "milliseconds": medians, "search": search.label}
    context.write_json(context.records("latency.json"), record)
    caption = (
        f"Milliseconds that the parts of decoding take, one sentence at a time ({search.label}, {device}, "
        f"{context.resources.threads} threads, medians), by tokens of the output. Here look-up does not overlap with the network."
    )
    rows = [
        [length, str(len(classes[length])), *(f"{value:.3f}" for value in parts.values()), f"{sum(parts.values()):.3f}"]
        for length, parts in medians.items()
    ]
    columns = ["tokens", "sentences", *PARTS, "all"]
    table = {"title": f"Latency by part of {name}", "caption": caption, "columns": columns, "rows": rows}
    context.write_json(context.records("tables", "latency.json"), table)
    context.write_text(context.records("figures", "latency.svg"), latencies(medians))
    context.write_json(context.records("figures", "latency.json"), {"caption": f"{name}. {caption}"})


def length_name(tokens: int) -> str:
    """`9-16`; `33+` above the last end."""
    place = bisect_left(LONGEST, tokens)
    first = LONGEST[place - 1] + 1 if place else 0
    return f"{first}+" if place == len(LONGEST) else f"{max(first, 1)}-{LONGEST[place]}"
