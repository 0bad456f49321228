"""The best paths through lattices, on any device.

A path of T words y_0 .. y_{T-1} scores start(y_0) + sum of edges(y_{p-1}, y_p) + exits(y_{T-1}), fewest <= T <= most words:

    a_0(j) = start(j)      a_p(j) = max_i a_{p-1}(i) + edges_{p-1}(i, j)      best = max over T, j of a_{T-1}(j) + exits_{T-1}(j)

Ties: the shorter path first, then the better candidate by the counts. Legend: B batch, N slots, K candidates, n paths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.lattice.scoring import Lattice


class Paths(NamedTuple):
    """The best n paths of each lattice, best first; scores are minus infinity where there are no more."""

    candidates: Tensor
    """[B,n,N] the candidate taken in each slot; -1 past the end"""
    lengths: Tensor
    """[B,n] words; 0 where there is no path"""
    scores: Tensor
    """[B,n]"""


def best_paths(lattice: Lattice, least: Tensor, most: Tensor, count: int = 1) -> Paths:
    """The best `count` paths of `least` [B] to `most` [B] words."""
    batch, size, width = lattice.exits.shape
    current = lattice.start.new_full((batch, width, count), -torch.inf)
    current[..., 0] = lattice.start
    scores, back = [current], []
    for slot in range(size - 1):
        steps = (current[..., None] + lattice.edges[:, slot, :, None]).flatten(1, 2)
        top, origin = _best(steps.transpose(1, 2), count)
        current = top
        scores.append(top)
        back.append(origin)
    finals = torch.stack(scores, 1) + exits_within(lattice.exits, least, most)[..., None]
    total, ends = _best(finals.flatten(1), count)
    return _traced(total, ends, back, (size, width, count))


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best `count` of the last dimension and their places; the first of equals."""
    if count == 1:
        top = scores.max(-1, keepdim=True).values
        return top, (scores == top).int().argmax(-1, keepdim=True)
    ordered, places = scores.sort(dim=-1, descending=True, stable=True)
    missing = max(0, count - scores.size(-1))
    top, origin = ordered[..., :count], places[..., :count]
    return torch.nn.functional.pad(top, (0, missing), value=-torch.inf), torch.nn.functional.pad(origin, (0, missing))


def exits_within(exits: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """[B,N,K] with minus infinity after fewer than `least` [B] and more than `most` [B] words."""
    words = torch.arange(1, exits.size(1) + 1, device=exits.device)
    allowed = (words >= least[:, None]) & (words <= most[:, None])
    return exits.masked_fill(~allowed[..., None], -torch.inf)


def _traced(total: Tensor, ends: Tensor, back: list[Tensor], shape: tuple[int, int, int]) -> Paths:
    size, width, count = shape
    lengths = ends // (width * count) + 1
    state = ends % (width * count)
    found = torch.full((*ends.shape, size), -1, dtype=torch.int64, device=ends.device)
    for slot in range(size - 1, -1, -1):
        inside = slot < lengths
        found[..., slot] = torch.where(inside, state // count, -1)
        if slot:
            before = back[slot - 1].flatten(1).gather(1, state)
            state = torch.where(inside & (slot < lengths), before, state)
    alive = total > -torch.inf
    return Paths(found.masked_fill(~alive[..., None], -1), lengths.masked_fill(~alive, 0), total)


def max_marginals(lattice: Lattice, least: Tensor, most: Tensor) -> Tensor:
    """[B,N,K]: the score of the best path of `least` to `most` words that takes each candidate."""
    exits = exits_within(lattice.exits, least, most)
    forward, backward = [lattice.start], [exits[:, -1]]
    for slot in range(exits.size(1) - 1):
        forward.append((forward[-1][:, :, None] + lattice.edges[:, slot]).amax(1))
    for slot in range(exits.size(1) - 2, -1, -1):
        onwards = (lattice.edges[:, slot] + backward[-1][:, None]).amax(2)
        backward.append(torch.maximum(exits[:, slot], onwards))
    return torch.stack(forward, 1) + torch.stack(backward[::-1], 1)


def confidences(lattice: Lattice, least: Tensor, most: Tensor, best: Paths) -> tuple[Tensor, Tensor]:
    """By how much, in nats, each word of the best path beats the best path without it [B,N] (infinity past its end), and the best
    path the second best [B]."""
    marginals = max_marginals(lattice, least, most)
    path, lengths, score = best.candidates[:, 0], best.lengths[:, 0], best.scores[:, 0]
    slots = torch.arange(path.size(1), device=path.device)
    taken = torch.zeros_like(marginals, dtype=torch.bool).scatter(2, path.clamp(min=0)[..., None], (path >= 0)[..., None])
    other = marginals.masked_fill(taken, -torch.inf).amax(2)
    ended = ended_before(lattice, least, most)
    rivals = torch.maximum(other, ended)
    gaps = (score[:, None] - rivals).where(rivals > -torch.inf, torch.inf)
    inside = slots < lengths[:, None]
    longer = marginals.amax(2).gather(1, lengths[:, None].clamp(max=path.size(1) - 1))[:, 0]
    longer = longer.where(lengths < path.size(1), -torch.inf)
    behind = torch.where(longer > -torch.inf, score - longer, torch.inf)
    words = gaps.where(inside, torch.inf)
    return words, torch.minimum(words.amin(1), behind)


def ended_before(lattice: Lattice, least: Tensor, most: Tensor) -> Tensor:
    """[B,N]: the score of the best path that ends before each slot."""
    exits = exits_within(lattice.exits, least, most)
    current, best = lattice.start, [torch.full_like(lattice.start[:, 0], -torch.inf)]
    for slot in range(exits.size(1) - 1):
        best.append(torch.maximum(best[-1], (current + exits[:, slot]).amax(1)))
        current = (current[:, :, None] + lattice.edges[:, slot]).amax(1)
    return torch.stack(best, 1)
