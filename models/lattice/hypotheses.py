"""Paths as hypotheses."""

from __future__ import annotations

from typing import Any

from models.family import Hypothesis
from models.lattice.config import LatticeSearch
from models.lattice.scoring import Lattice, Slots
from models.lattice.search import Paths, confidences


def hypotheses(lattice: Lattice, slots: Slots, paths: Paths, search: LatticeSearch) -> list[list[Hypothesis]]:
    """The words on the `n_best` first paths of each lattice.

    Where two paths were sought `margin` says by how much the best beats the second, infinity where there is none; where they are
    asked for, `confidences` say by how much each word of the best path beats the paths without it.
    """
    worth = confidences(lattice, slots.least, slots.most, paths).tolist() if search.confidences else [None] * len(paths.scores)
    offered = slots.token_ids.cpu()[:, None, : paths.candidates.size(2)].expand(-1, paths.candidates.size(1), -1, -1)
    written = offered.gather(3, paths.candidates.clamp(min=0)[..., None])[..., 0]
    rows = zip(written.tolist(), paths.lengths.tolist(), paths.scores.tolist(), worth, strict=True)
    return [_ranked(ids, lengths, scores, words, search.n_best) for ids, lengths, scores, words in rows]


def _ranked(
    written: list[list[int]], lengths: list[int], scores: list[float], worth: list[float] | None, count: int
) -> list[Hypothesis]:
    found = [Hypothesis(ids[:length], score, 1) for ids, length, score in zip(written, lengths, scores, strict=True) if length]
    if not found:
        return [Hypothesis([], float("-inf"), 1)]
    statistics: dict[str, Any] = {} if len(scores) == 1 else {"margin": scores[0] - scores[1]}
    if worth is not None:
        statistics["confidences"] = worth[: lengths[0]]
    return [Hypothesis(found[0].ids, found[0].score, 1, statistics), *found[1:count]]
