"""Paths as hypotheses."""

from __future__ import annotations

from typing import Any

from models.family import Hypothesis
from models.lattice.config import LatticeSearch
from models.lattice.scoring import Lattice, Slots
from models.lattice.search import Paths, confidences


def hypotheses(lattice: Lattice, slots: Slots, paths: Paths, search: LatticeSearch) -> list[list[Hypothesis]]:
    """The words on the paths of each lattice. `margin` is by how much the best path beats the second, `confidences` by how much
    each of its words beats all paths without it, infinity where there is no other."""
    words, margins = confidences(lattice, slots.least, slots.most, paths)
    offered = slots.token_ids[:, None, : paths.candidates.size(2)].expand(-1, paths.candidates.size(1), -1, -1)
    written = offered.gather(3, paths.candidates.clamp(min=0)[..., None])[..., 0]
    taken = (part.cpu().tolist() for part in (written, paths.lengths, paths.scores, words, margins))
    return [
        _ranked(ids, lengths, scores, worth, margin, search) for ids, lengths, scores, worth, margin in zip(*taken, strict=True)
    ]


def _ranked(
    written: list[list[int]], lengths: list[int], scores: list[float], words: list[float], margin: float, search: LatticeSearch
) -> list[Hypothesis]:
    found = [Hypothesis(ids[:length], score, 1) for ids, length, score in zip(written, lengths, scores, strict=True) if length]
    if not found:
        return [Hypothesis([], float("-inf"), 1)]
    statistics: dict[str, Any] = {"margin": margin}
    if search.confidences:
        statistics["confidences"] = words[: lengths[0]]
    return [Hypothesis(found[0].ids, found[0].score, 1, statistics), *found[1:]]
