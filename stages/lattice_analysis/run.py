"""Run the lattice_analysis stage."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fewstep.decoding import batches
from fewstep.families.lattice.batches import SentenceTimes
from fewstep.families.lattice.config import LatticeSearch
from models.lattice.analysis import Ranks, ranks
from models.lattice.decode import LatticeDecoder
from stages.context import Context, StepContext
from stages.errors import DataError
from stages.lattice_analysis import LatticeAnalysisConfig, LatticeAnalysisInputs
from stages.shared.decoding.sentences import read_sentences
from stages.shared.decoding.systems import load_for_worker
from stages.shared.environment import OtherWork, environment
from stages.shared.figures.canvas import SERIES, as_svg, key, panel, panels, style
from stages.shared.statistics import evenly_spaced

PARTS = ("lookup", "encoder", "scoring", "search")
"""The parts of decoding."""

BATCH_TOKENS = 1000
"""Padded source tokens in a batch, EOS included."""

ROUNDS = 3
"""Number of times that each sentence is timed; the median is used."""

MAX_LENGTHS = (8, 16, 24, 32)
"""Upper ends of the classes of lengths in output tokens. A last class holds longer outputs."""


def run(inputs: LatticeAnalysisInputs, config: LatticeAnalysisConfig, context: StepContext) -> None:
    """Write `lattice_analysis.json`, and the latency of each part as a record.

    The search is that of the system; for ranks it has no window of lengths. Raises DataError for a system of another family, and
    for a text without sentences.
    """
    system = load_for_worker(inputs.system, context)
    if not (isinstance(system.decoder, LatticeDecoder) and isinstance(system.search, LatticeSearch)):
        raise DataError(
            f"lattice_analysis: expected a system of family lattice, got {system.name} of family {system.family}; "
            "correct evaluation.lattice_analysis"
        )
    lines = [sentence.source for sentence in read_sentences(inputs.text.path)]
    sources = [source for source in system.encode([lines[row] for row in evenly_spaced(len(lines), config.rows)]) if source]
    if not sources:
        raise DataError(f"lattice_analysis: expected a sentence to read, got none in {inputs.text.path}; check the test set")
    search = replace(system.search, strategy="viterbi", length_window=0)
    context.progress(0, len(sources), "sentences")
    _write_ranks(_ranked(system.decoder, sources, search), search, config.name, context)
    context.progress(len(sources), len(sources), "sentences")
    timed = replace(system.search, strategy="viterbi")
    chosen = [sources[row] for row in evenly_spaced(len(sources), config.timed)]
    other_work = OtherWork()
    times = _timed(system.decoder, chosen, timed)
    _write_times(times, other_work.processors(), timed, config.name, context)


def _ranked(decoder: LatticeDecoder, sources: Sequence[list[int]], search: LatticeSearch) -> Iterator[Ranks | None]:
    for batch in batches([len(source) for source in sources], BATCH_TOKENS):
        yield from ranks(decoder, [sources[row] for row in batch], search)


def _write_ranks(found: Iterator[Ranks | None], search: LatticeSearch, name: str, context: Context) -> None:
    counts: dict[str, Counter[int]] = {"tokens": Counter(), "bigrams": Counter()}
    sentences = impossible = 0
    for one in found:
        sentences += 1
        impossible += one is None
        if one is not None:
            counts["tokens"].update(map(_class_of, one.tokens))
            counts["bigrams"].update(map(_class_of, one.edges))
    result: dict[str, Any] = {
        "candidates": search.candidates,
        "sentences": sentences,
        "impossible": impossible,
        **{kind: {str(rank): count for rank, count in sorted(values.items())} for kind, values in counts.items()},
    }
    context.write_json(context.directory / "lattice_analysis.json", result)
    shares = {kind: values[1] / max(1, values.total()) for kind, values in counts.items()}
    context.metrics(0, {f"first_{kind}": share for kind, share in shares.items()})
    caption = (
        f"Ranks before the search of the tokens and bigrams on the best paths of {sentences:,} sentences ({search.candidates} "
        "candidates a slot, predicted length). Tokens are ranked among the candidates of their slot by the counts, bigrams among "
        "all bigrams of their two slots by their own score."
    )
    context.write_text(context.records("figures", "lattice_ranks.svg"), rank_histograms(counts["tokens"], counts["bigrams"]))
    context.write_json(context.records("figures", "lattice_ranks.json"), {"caption": f"{name}. {caption}"})
    columns = ["rank", "tokens, %", "bigrams, %"]
    ranks = sorted(set(counts["tokens"]) | set(counts["bigrams"]))
    rows = [
        [class_name(rank), *(f"{100 * values[rank] / max(1, values.total()):.1f}" for values in counts.values())] for rank in ranks
    ]
    table = {"title": f"Rank before search of {name}", "caption": caption, "columns": columns, "rows": rows}
    context.write_json(context.records("tables", "lattice_ranks.json"), table)


def _class_of(rank: int) -> int:
    """The smallest power of two that is at least `rank`: 1, 2, 4 (ranks 3 and 4), 8 (ranks 5 to 8), ..."""
    return 1 << (rank - 1).bit_length()


def class_name(rank: int) -> str:
    """Return the ranks of a class, such as `3-4` for class 4."""
    return str(rank) if rank <= 2 else f"{rank // 2 + 1}-{rank}"


def _timed(decoder: LatticeDecoder, sources: Sequence[list[int]], search: LatticeSearch) -> list[SentenceTimes]:
    """The times of the parts of each sentence, decoded alone: medians over rounds."""
    for source in sources[:3]:
        decoder.timed(source, search)
    rounds = [[decoder.timed(source, search) for source in sources] for _ in range(ROUNDS)]
    return [
        SentenceTimes(repeated[0].tokens, *(median(values) for values in zip(*(one[1:] for one in repeated), strict=True)))
        for repeated in zip(*rounds, strict=True)
    ]


def _write_times(
    found: Sequence[SentenceTimes], other_processors: float | None, search: LatticeSearch, name: str, context: Context
) -> None:
    classes: dict[str, list[SentenceTimes]] = {}
    for one in sorted(found, key=lambda times: times.tokens):
        classes.setdefault(length_name(one.tokens), []).append(one)
    medians = {
        length: {part: median(getattr(one, part) for one in members) for part in PARTS} for length, members in classes.items()
    }
    device = "cuda" if context.resources.gpus else "cpu"
    machine = environment(device, context.resources.threads) | {"other_processors": other_processors}
    record = {"environment": machine, "milliseconds": medians, "search": search.label}
    context.write_json(context.records("latency.json"), record)
    caption = (
        f"Median milliseconds of the parts of decoding, one sentence at a time ({search.label}, {device}, "
        f"{context.resources.threads} threads), by length of the output in tokens. Here the look-up does not overlap with the "
        "network."
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
    """Return the class of a length: `9-16`, or `33+` for the last one."""
    index = bisect_left(MAX_LENGTHS, tokens)
    first = MAX_LENGTHS[index - 1] + 1 if index else 0
    return f"{first}+" if index == len(MAX_LENGTHS) else f"{max(first, 1)}-{MAX_LENGTHS[index]}"


def rank_histograms(tokens: Mapping[int, int], bigrams: Mapping[int, int]) -> str:
    """Draw histograms of the ranks of tokens (left) and bigrams (right). Keys are upper ends of classes: 1, 2, 4 (ranks 3, 4),
    ..."""
    with style():
        figure, pair = panels()
        for axes, counts, title in zip(pair, (tokens, bigrams), ("Tokens", "Bigrams"), strict=True):
            total = max(1, sum(counts.values()))
            classes = sorted(counts)
            shares = [100 * counts[rank] / total for rank in classes]
            axes.bar(range(len(classes)), shares, color=SERIES[0])
            axes.set_xticks(range(len(classes)), labels=[str(rank) for rank in classes])
            axes.set(title=f"{title}, %", xlabel="rank before the search, up to")
            axes.grid(visible=False, axis="x")
        return as_svg(figure)


def latencies(milliseconds: Mapping[str, Mapping[str, float]]) -> str:
    """Draw stacked bars of milliseconds by class of output lengths and part of decoding."""
    with style():
        figure, axes = panel()
        lengths = list(milliseconds)
        heights = [0.0] * len(lengths)
        for index, part in enumerate(next(iter(milliseconds.values()), {})):
            values = [milliseconds[length][part] for length in lengths]
            axes.bar(range(len(lengths)), values, bottom=heights, color=SERIES[index], label=part)
            heights = [height + value for height, value in zip(heights, values, strict=True)]
        axes.set_xticks(range(len(lengths)), labels=lengths)
        axes.set(title="Milliseconds a sentence", xlabel="tokens of the output")
        axes.grid(visible=False, axis="x")
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)
