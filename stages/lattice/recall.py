"""Recall of lattices: the fraction of reference tokens among the candidates of their slot (Deng and Rush 2021, Figure 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewstep.candidates import CandidateOptions, CandidateTables, Floats, Ints, lattice_candidates
from fewstep.vocabulary import RESERVED
from kernels.candidates import Sentences
from stages.context import Context
from stages.lattice.links import Aligner
from stages.shared.figures.canvas import as_svg, cycle, line, panel, style

CANDIDATES = tuple(2**power for power in range(10))
"""Values of K: 1, 2, 4, ..., 512."""

NAMES = {
    "recall": "lattice, true length",
    "recall_predicted_length": "lattice, predicted length",
    "recall_shared_tokens": "shared vocabulary of K tokens",
    "recall_shared_vocabulary": "shared vocabulary, K tokens a source token",
}
"""Names of metrics in the report."""

SLOTS = 2048
"""Number of slots that are looked up at a time."""


def _zeros() -> Ints:
    return np.zeros(len(CANDIDATES), np.int64)


@dataclass
class Recall:
    """Numbers of reference tokens, and of those that were found, for each K of `CANDIDATES`."""

    tokens: int = 0
    """Reference tokens without EOS."""
    sentences: int = 0
    found: Ints = field(default_factory=_zeros)
    """Tokens among the candidates of their slot, in a lattice with the length of the reference."""
    found_predicted: Ints = field(default_factory=_zeros)
    """Tokens among the candidates of their slot, in a lattice with the predicted length; tokens beyond it are not found."""
    found_shared: Ints = field(default_factory=_zeros)
    """Tokens in the shared vocabulary: the union, over source pieces x, of the K pieces with the largest P(y | x) of the
    aligner."""
    found_shared_tokens: Ints = field(default_factory=_zeros)
    """Tokens among the K pieces with the largest P(y | x) for any source piece x: a shared vocabulary with the size of a slot."""
    shared_tokens: Ints = field(default_factory=_zeros)
    """Sizes of the shared vocabularies, summed over sentences."""

    @property
    def has_shared(self) -> bool:
        """True if there are shared vocabularies to compare with."""
        return bool(self.shared_tokens.any())

    def series(self) -> dict[str, Ints]:
        """Return the numbers of found tokens by metric."""
        lattice = {"recall": self.found, "recall_predicted_length": self.found_predicted}
        shared = {"recall_shared_tokens": self.found_shared_tokens, "recall_shared_vocabulary": self.found_shared}
        return lattice | (shared if self.has_shared else {})

    def share(self, found: Ints) -> list[float]:
        """Return recall by K."""
        return [int(count) / max(self.tokens, 1) for count in found]


def measure(
    tables: CandidateTables, aligner: Aligner, pairs: Iterable[tuple[Sentences, Sentences]], window: int, threads: int
) -> Recall:
    """Measure recall over shards of (source, target). Raises ValueError for pieces outside the vocabulary of the tables."""
    recall = Recall()
    ranking = Ranking(aligner, tables.summary.target_size)
    options = CandidateOptions(candidates=CANDIDATES[-1], threads=threads)
    for source, target in pairs:
        if len(target.values) and int(target.values.max()) >= tables.summary.target_size:
            raise ValueError(
                f"target piece {target.values.max()} is outside the tables' vocabulary of {tables.summary.target_size}; "
                "encode the text with the vocabulary of the tables"
            )
        for rows in row_ranges(np.diff(target.starts)):
            _add_lattices(recall, tables, source, target, rows, window, options)
        for row in range(len(target.starts) - 1):
            _add_shared(recall, ranking, sentence(source, row), sentence(target, row))
    return recall


def sentence(sentences: Sentences, row: int) -> Ints:
    """Return the pieces of one sentence."""
    return np.asarray(sentences.values[sentences.starts[row] : sentences.starts[row + 1]], np.int64)


def row_ranges(lengths: Ints) -> Iterator[range]:
    """Yield ranges of consecutive rows that have at most `SLOTS` slots when they are padded, or a single row."""
    first, longest = 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, int(length))
        if longest * (row + 1 - first) > SLOTS and row > first:
            yield range(first, row)
            first = row
            longest = int(length)
    if first < len(lengths):
        yield range(first, len(lengths))


def _add_lattices(
    recall: Recall,
    tables: CandidateTables,
    source: Sentences,
    target: Sentences,
    rows: range,
    window: int,
    options: CandidateOptions,
) -> None:
    sources, targets = padded(source, rows), padded(target, rows)
    lengths, slots = np.diff(source.starts)[rows.start : rows.stop], np.diff(target.starts)[rows.start : rows.stop]
    found = lattice_candidates(tables, sources, lengths, num_slots=slots, options=options)
    same = found.token_ids == targets[:, :, None]
    ranks = np.where(same.any(2), same.argmax(2), CANDIDATES[-1])
    real = np.arange(ranks.shape[1]) < slots[:, None]
    predicted = np.array([tables.length_range(int(length), window)[1] for length in lengths], np.int64)
    within = real & (np.arange(ranks.shape[1]) < predicted[:, None])
    recall.tokens += int(slots.sum())
    recall.found += [int((ranks[real] < count).sum()) for count in CANDIDATES]
    recall.found_predicted += [int((ranks[within] < count).sum()) for count in CANDIDATES]


def padded(sentences: Sentences, rows: range) -> Ints:
    """Return the pieces of some rows as [rows, longest], padded with -2."""
    lengths = np.diff(sentences.starts)[rows.start : rows.stop]
    result = np.full((len(rows), int(lengths.max(initial=0))), -2, np.int64)
    result[np.arange(result.shape[1]) < lengths[:, None]] = sentences.values[
        sentences.starts[rows.start] : sentences.starts[rows.stop]
    ]
    return result


class Ranking:
    """Ranking of the target pieces of each source piece by the aligner's P(y | x), on a tie by id."""

    def __init__(self, aligner: Aligner, target_size: int) -> None:
        self._aligner = aligner
        self._rows: dict[int, tuple[Ints, Floats]] = {}
        self._none = max(target_size, CANDIDATES[-1])
        self._rank = np.full(target_size, self._none, np.int64)
        self._probability = np.zeros(target_size)
        self._position = np.full(target_size, self._none, np.int64)

    def _row(self, piece: int) -> tuple[Ints, Floats]:
        if piece not in self._rows:
            targets, probabilities = self._aligner.row(piece)
            allowed = np.flatnonzero(targets >= len(RESERVED))
            best = allowed[np.lexsort((targets[allowed], -probabilities[allowed]))][: CANDIDATES[-1]]
            self._rows[piece] = targets[best], probabilities[best]
        return self._rows[piece]

    def shared(self, source: Ints, target: Ints) -> tuple[Ints, Ints, Ints]:
        """Rank target pieces for a source.

        Returns the rank of each target piece among all pieces of the source's rows by their largest P(y | x), its best rank in a
        row (both beyond the largest K for a piece that is in no row), and the best ranks of all pieces.
        """
        rows = [self._row(int(piece)) for piece in np.unique(source)]
        for targets, probabilities in rows:
            self._rank[targets] = np.minimum(self._rank[targets], np.arange(len(targets)))
            self._probability[targets] = np.maximum(self._probability[targets], probabilities)
        pieces = np.unique(np.concatenate([np.zeros(0, np.int64), *(targets for targets, _ in rows)]))
        pieces = pieces[np.lexsort((pieces, -self._probability[pieces]))]
        self._position[pieces] = np.arange(len(pieces))
        found = self._position[target], self._rank[target], self._rank[pieces]
        # Only what was used is reset: the arrays are as long as the vocabulary.
        self._rank[pieces] = self._none
        self._probability[pieces] = 0.0
        self._position[pieces] = self._none
        return found


def _add_shared(recall: Recall, ranking: Ranking, source: Ints, target: Ints) -> None:
    positions, ranks, all_ranks = ranking.shared(source, target)
    recall.sentences += 1
    recall.found_shared_tokens += [int((positions < count).sum()) for count in CANDIDATES]
    recall.found_shared += [int((ranks < count).sum()) for count in CANDIDATES]
    recall.shared_tokens += [int((all_ranks < count).sum()) for count in CANDIDATES]


def record(recall: Recall, context: Context) -> None:
    """Write recall as metrics (by K), as a table and as a figure."""
    series = {key: recall.share(found) for key, found in recall.series().items()}
    for index, count in enumerate(CANDIDATES):
        context.metrics(count, {key: values[index] for key, values in series.items()})
    caption = _caption(recall)
    context.write_json(context.records("tables", "lattice_recall.json"), _table(recall, series, caption))
    named = {NAMES[key]: list(zip(CANDIDATES, values, strict=True)) for key, values in series.items()}
    context.write_text(context.records("figures", "lattice_recall.svg"), recall_curves(named))
    context.write_json(context.records("figures", "lattice_recall.json"), {"caption": caption})


def _table(recall: Recall, series: dict[str, list[float]], caption: str) -> dict[str, Any]:
    columns = {"K": [str(count) for count in CANDIDATES]}
    columns |= {f"{NAMES[key]}, %": [f"{100 * value:.1f}" for value in values] for key, values in series.items()}
    if recall.has_shared:
        columns["tokens"] = [f"{count / max(recall.sentences, 1):.0f}" for count in recall.shared_tokens]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return {"title": "Recall of lattices", "caption": caption, "columns": list(columns), "rows": rows}


def _caption(recall: Recall) -> str:
    lattice = (
        f"Percentage of the {recall.tokens:,} target tokens of {recall.sentences:,} validation sentences (without EOS) among the K "
        "candidates of their slot, in lattices with the length of the reference and with the predicted length."
    )
    shared = (
        " For comparison: vocabularies that all slots of a sentence share, by the aligner's probabilities: the K most probable "
        "tokens of any source token, and the K most probable tokens of each source token (last column: mean size of this "
        "vocabulary)."
    )
    return lattice + (shared if recall.has_shared else "")


def recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Draw recall (0 to 1) against K on a binary logarithmic scale, with a line for each name."""
    with style():
        return _recall_curves(curves)


def _recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    figure, axes = panel()
    for (name, curve), colour in zip(curves.items(), cycle(len(curves)), strict=True):
        line(
            axes,
            [(count, 100 * share) for count, share in curve],
            color=colour,
            linewidth=1.8,
            marker="o",
            markersize=3,
            label=name,
        )
    ticks = sorted({count for curve in curves.values() for count, _ in curve})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, labels=[str(count) for count in ticks])
    axes.set(title="Recall of target tokens, %", xlabel="K, candidates of a slot")
    axes.set_ylim(0, 100)
    axes.legend(fontsize=9)
    return as_svg(figure)
