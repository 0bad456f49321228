"""Hypotheses of lattices: the search of a batch, and the tokens on its paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fewstep.families.lattice.config import LatticeSearch
from fewstep.translation import Hypothesis
from models.lattice.batches import Slots, Sources, scoring_batches, select_slots, select_sources
from models.lattice.scoring import Lattice
from models.lattice.search import Paths, best_paths, confidences

Score = Callable[[Tensor, Tensor, Slots, LatticeSearch], Lattice]
"""A function that maps sources [B,S], their lengths [B] and their slots to lattices."""


def decode_slots(score: Score, prepared: Sources, search: LatticeSearch, device: torch.device) -> list[list[Hypothesis]]:
    """Return the hypotheses of sources whose candidates were looked up, best first; an empty source has an empty hypothesis."""
    slots = prepared.slots
    assert slots is not None
    hypotheses = [[Hypothesis([], 0.0, 0)] for _ in prepared.ids]
    for rows in scoring_batches(slots, device):
        batch = select_slots(slots, rows, search, device)
        lattice = score(*select_sources(prepared, rows, device), batch, search)
        for row, ranked in zip(rows.tolist(), _search(lattice, batch, search), strict=True):
            hypotheses[row] = ranked
    return hypotheses


def _search(lattice: Lattice, slots: Slots, search: LatticeSearch) -> list[list[Hypothesis]]:
    # On a CPU a second path costs little and gives the margin; a GPU searches the best path alone.
    count = max(2, search.n_best) if lattice.exits.device.type == "cpu" else search.n_best
    paths = best_paths(lattice, slots.min_lengths, slots.max_lengths, count)
    if not bool(paths.lengths[:, 0].all()):
        min_lengths = torch.where(paths.lengths[:, 0] == 0, 1, slots.min_lengths.cpu())
        slots = slots._replace(min_lengths=min_lengths.to(slots.min_lengths.device))
        paths = best_paths(lattice, slots.min_lengths, slots.max_lengths, count)
    return path_hypotheses(lattice, slots, paths, search)


def path_hypotheses(lattice: Lattice, slots: Slots, paths: Paths, search: LatticeSearch) -> list[list[Hypothesis]]:
    """Return the tokens on the first `n_best` paths of each lattice as hypotheses.

    If two paths were searched, `margin` is the gap between the best and the second path; it is infinite without a second path. With
    `confidences`, each token of the best path has the gap between this path and the best path without that token.
    """
    gaps = [None] * len(paths.scores)
    if search.confidences:
        gaps = confidences(lattice, slots.min_lengths, slots.max_lengths, paths).tolist()
    token_ids = slots.token_ids.cpu()[:, None, : paths.candidates.size(2)].expand(-1, paths.candidates.size(1), -1, -1)
    written = token_ids.gather(3, paths.candidates.clamp(min=0)[..., None])[..., 0]
    rows = zip(written.tolist(), paths.lengths.tolist(), paths.scores.tolist(), gaps, strict=True)
    return [_ranked(ids, lengths, scores, tokens, search.n_best) for ids, lengths, scores, tokens in rows]


def _ranked(
    written: list[list[int]], lengths: list[int], scores: list[float], gaps: list[float] | None, count: int
) -> list[Hypothesis]:
    found = [Hypothesis(ids[:length], score, 1) for ids, length, score in zip(written, lengths, scores, strict=True) if length]
    if not found:
        return [Hypothesis([], float("-inf"), 1)]
    statistics: dict[str, Any] = {} if len(scores) == 1 else {"margin": scores[0] - scores[1]}
    if gaps is not None:
        statistics["confidences"] = gaps[: lengths[0]]
    return [Hypothesis(found[0].ids, found[0].score, 1, statistics), *found[1:count]]
