"""The best paths through lattices, the confidences of the tokens on them, and the hypotheses of a batch.

Legend: B batch, N slots, K candidates, n paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fewstep.families.lattice.batches import LatticeSources, Slots, scoring_batches, select_slots, select_sources
from fewstep.families.lattice.config import LatticeSearch
from fewstep.search.lattice import lattice_max_marginals, lattice_n_best, lattice_viterbi
from fewstep.sources import Ints
from fewstep.translation import Hypothesis

CPU_ROWS = 2**14
"""The number of candidates that a CPU scores at a time, unless a single sentence has more."""

Floats = npt.NDArray[Any]


class Paths(NamedTuple):
    """The best n paths of each lattice, best first; scores are minus infinity where there are fewer paths."""

    candidates: Ints
    """The candidate in each slot, [B,n,N]; -1 past the end."""
    lengths: Ints
    """The numbers of tokens, [B,n]; 0 where there is no path."""
    scores: Floats
    """The scores of the paths, [B,n]."""


class ScoredLattice(Protocol):
    """The scores of a batch of lattices, wherever they are."""

    @property
    def has_margins(self) -> bool:
        """Whether a second path, which gives the margin, costs little."""
        ...

    def paths(self, min_lengths: Ints, max_lengths: Ints, count: int, threads: int) -> Paths:
        """Return the best `count` paths of `min_lengths` [B] to `max_lengths` [B] tokens."""
        ...

    def arrays(self) -> Lattice:
        """Return the scores as arrays."""
        ...


class Lattice(NamedTuple):
    """The scores of a batch of lattices; minus infinity where there is no candidate."""

    start: Floats
    """The scores of the first token, [B,K]."""
    edges: Floats
    """The scores of steps from candidate i of slot p to candidate j of slot p + 1, [B,N-1,K,K]."""
    exits: Floats
    """The scores of ending after candidate i of slot p, [B,N,K]."""

    @property
    def has_margins(self) -> bool:
        """Return True: on a CPU a second path costs little."""
        return True

    def paths(self, min_lengths: Ints, max_lengths: Ints, count: int = 1, threads: int = 1) -> Paths:
        """Return the best `count` paths of `min_lengths` [B] to `max_lengths` [B] tokens."""
        if count == 1:
            return Paths(*(part[:, None] for part in lattice_viterbi(*self, min_lengths, max_lengths, threads=threads)))
        return Paths(*lattice_n_best(*self, min_lengths, max_lengths, n_best=count, threads=threads))

    def arrays(self) -> Lattice:
        """Return the lattices themselves."""
        return self


Score = Callable[[Ints, Ints, Slots], tuple[Slots, ScoredLattice]]
"""A function that maps sources [B,S], their lengths [B] and their slots to slots, which a cascade fills with candidates, and
lattices."""


def decode_slots(
    score: Score, prepared: LatticeSources, search: LatticeSearch, *, max_rows: int = CPU_ROWS, threads: int = 1
) -> list[list[Hypothesis]]:
    """Return the hypotheses of sources whose candidates were looked up, best first; an empty source has an empty hypothesis."""
    slots = prepared.slots
    assert slots is not None
    hypotheses = [[Hypothesis([], 0.0, 0)] for _ in prepared.ids]
    for rows in scoring_batches(slots, max_rows):
        batch, lattice = score(*select_sources(prepared, rows), select_slots(slots, rows, search))
        for row, ranked in zip(rows.tolist(), _search(lattice, batch, search, threads), strict=True):
            hypotheses[row] = ranked
    return hypotheses


def _search(lattice: ScoredLattice, slots: Slots, search: LatticeSearch, threads: int) -> list[list[Hypothesis]]:
    count = max(2, search.n_best) if lattice.has_margins else search.n_best
    paths = lattice.paths(slots.min_lengths, slots.max_lengths, count, threads)
    if not paths.lengths[:, 0].all():
        slots = slots._replace(min_lengths=np.where(paths.lengths[:, 0] == 0, 1, slots.min_lengths))
        paths = lattice.paths(slots.min_lengths, slots.max_lengths, count, threads)
    return path_hypotheses(lattice, slots, paths, search, threads)


def path_hypotheses(
    lattice: ScoredLattice, slots: Slots, paths: Paths, search: LatticeSearch, threads: int = 1
) -> list[list[Hypothesis]]:
    """Return the tokens on the first `n_best` paths of each lattice as hypotheses.

    If two paths were searched, `margin` is the gap between the best and the second path; it is infinite without a second path. With
    `confidences`, each token of the best path has the gap between this path and the best path without that token.
    """
    gaps: list[list[float] | None] = [None] * len(paths.scores)
    if search.confidences:
        gaps = confidences(lattice.arrays(), slots.min_lengths, slots.max_lengths, paths, threads).tolist()
    token_ids = slots.token_ids[:, None, : paths.candidates.shape[2]]
    written = np.take_along_axis(token_ids, paths.candidates.clip(min=0)[..., None], 3)[..., 0]
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


def confidences(lattice: Lattice, min_lengths: Ints, max_lengths: Ints, best: Paths, threads: int = 1) -> Floats:
    """Return the gap [B,N] in nats between the best path and the best path without its token in a slot.

    The latter has another token in the slot or ends before it. The gap is infinite if no such path exists, and past the end.
    """
    marginals = lattice_max_marginals(*lattice, min_lengths, max_lengths, threads=threads)
    path = best.candidates[:, 0]
    others = marginals.copy()
    np.put_along_axis(others, path.clip(min=0)[..., None], -np.inf, 2)
    others = np.where((path >= 0)[..., None], others, marginals)
    rivals = np.maximum(others.max(2), _ended(lattice, min_lengths, max_lengths))
    counts = (path >= 0) & (rivals > -np.inf)
    gaps: Floats = np.full_like(rivals, np.inf)
    np.subtract(best.scores[:, :1], rivals, out=gaps, where=counts)
    return gaps


def _ended(lattice: Lattice, min_lengths: Ints, max_lengths: Ints) -> Floats:
    """Return the score [B,N] of the best path that ends before a slot."""
    lengths = np.arange(1, lattice.exits.shape[1] + 1)
    valid = (lengths >= min_lengths[:, None]) & (lengths <= max_lengths[:, None])
    exits = np.where(valid[..., None], lattice.exits, lattice.exits.dtype.type(-np.inf))
    current = lattice.start
    best = [np.full_like(lattice.start[:, 0], -np.inf)]
    for slot in range(exits.shape[1] - 1):
        best.append(np.maximum(best[-1], (current + exits[:, slot]).max(1)))
        current = (current[:, :, None] + lattice.edges[:, slot]).max(1)
    return np.stack(best, 1)
