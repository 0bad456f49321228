"""Viterbi and joint Viterbi search of graphs by tensors of fixed shapes, which never wait for the host (Shao et al. 2022).

The counterpart on a device of `fewstep.search.dag_paths.dag_viterbi`, with its sums in float64 and its rules for equal scores.

Legend: B batch, L vertices, K levels, one for each possible number of tokens between the ends of a path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewstep.translation import Hypothesis
from kernels.dag import dense_transitions


class BestPaths(NamedTuple):
    """The tokens on the best path of each graph of a batch."""

    ids: Tensor
    """The tokens [B,K] between the ends; the first `counts` of each row count."""
    counts: Tensor
    """The number of tokens between the ends, [B]; 0 without a path."""
    scores: Tensor
    """The scores divided by a power of the length, float64 [B]; minus infinity without a path."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypothesis of each graph."""
        rows = zip(*(part.tolist() for part in self), strict=True)
        return [[Hypothesis(row[:count], score, 1)] for row, count, score in rows]


def length_powers(size: int, exponent: float, device: torch.device) -> Tensor:
    """Return float64 [K], the powers of the lengths 1 to K of paths through graphs of at most `size` vertices."""
    with np.errstate(over="ignore"):
        powers = [float(np.float64(length) ** exponent) for length in range(1, _levels(size) + 1)]
    return torch.tensor(powers, dtype=torch.float64, device=device)


def best_paths(transitions: Tensor, tokens: Tensor, ids: Tensor, lengths: Tensor, powers: Tensor) -> BestPaths:
    """Return the paths that `dag_viterbi` finds for transitions [B,L,D], scores [B,L] of tokens `ids` [B,L], and `lengths` [B].

    `powers` are those of `length_powers`. One level follows from the one before by a product of the (max, +) semiring, of which
    only the vertices that a path of this length can reach are computed: level k begins at vertex k. The way back is followed for
    all levels at once by pointer jumping.
    """
    size = tokens.size(1)
    last = lengths[:, None] - 1
    vertex = torch.arange(size, device=tokens.device)
    # NaN, as native code reads it, is no score: a maximum over it would be NaN.
    edges = _possible(dense_transitions(transitions))
    scores = _possible(tokens).double()
    inner = scores.masked_fill((vertex == 0) | (vertex >= last), -torch.inf)
    levels, origins = _sums(edges, inner, scores.masked_fill(vertex > 0, -torch.inf), len(powers))
    exits = edges.gather(2, last[:, None].expand(-1, size, -1)).transpose(1, 2)
    ends = (levels + exits).max(2)
    values = (ends.values / powers).nan_to_num(nan=-torch.inf, neginf=-torch.inf, posinf=torch.inf)
    best = values.max(1)
    start = best.indices * size + ends.indices.gather(1, best.indices[:, None])[:, 0]
    counts = torch.where((lengths > 2) & (best.values > -torch.inf), best.indices + 1, 0)
    found_ids = ids.gather(1, _ascending(_nodes(origins, start), counts) % size)
    # The path of a graph of two vertices has no token between its ends, so it is on no level.
    direct = scores[:, 0] + edges[:, 0, 1]
    return BestPaths(found_ids, counts, torch.where(lengths == 2, direct, best.values))


def _sums(edges: Tensor, inner: Tensor, start: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the sums [B,K,L] of the best paths to each vertex at each level, and the vertices before it on them, counted from
    level - 1 on; `edges` [B,L,L], scores `inner` [B,L] of tokens, and sums [B,L] at the level before the first one."""
    levels = inner.new_full((len(inner), count, inner.size(1)), -torch.inf)
    origins = torch.zeros(levels.shape, dtype=torch.int64, device=levels.device)
    sums = start
    for level in range(1, count + 1):
        found = (sums[:, level - 1 :, None] + edges[:, level - 1 :, level:]).max(1)
        torch.add(found.values, inner[:, level:], out=levels[:, level - 1, level:])
        origins[:, level - 1, level:] = found.indices
        sums = levels[:, level - 1]
    return levels, origins


def follow(following: Tensor, path: Tensor, count: int) -> Tensor:
    """Return the first `count` places [B,count] of paths that begin with `path` [B,1] and lead from place p to `following` [B,N].

    Pointer jumping: if the first m places of a path and the m-th place after every place are known, one gather yields the next m of
    the path, and one more doubles m. The number of gathers is logarithmic in `count`, and nothing waits for the host.
    """
    while path.size(1) < count:
        path = torch.cat((path, following.gather(1, path)), 1)
        if path.size(1) < count:
            following = following.gather(1, following)
    return path[:, :count]


def _levels(size: int) -> int:
    return max(1, size - 2)


def _possible(scores: Tensor) -> Tensor:
    """Return scores with minus infinity in place of NaN."""
    return scores.masked_fill(scores.isnan(), -torch.inf)


def _nodes(origins: Tensor, start: Tensor) -> Tensor:
    """Return the nodes [B,K] on the way back from the nodes `start` [B] by the `origins` [B,K,L] of `_sums`.

    Node (k - 1) L + v is vertex v at level k. The way stays at level 1.
    """
    _, count, size = origins.shape
    places = torch.arange(size, device=start.device).expand(len(start), 1, -1)
    before = torch.arange(count - 1, device=start.device)[:, None]
    back = torch.cat((places, origins[:, 1:] + (before * size + before + 1)), 1)
    return follow(back.flatten(1), start[:, None], count)


def _ascending(nodes: Tensor, counts: Tensor) -> Tensor:
    """Return the first `counts` [B] nodes of each row [B,K] in reverse order, followed by any others."""
    position = torch.arange(nodes.size(1), device=nodes.device)
    return nodes.gather(1, (counts[:, None] - 1 - position).clamp(min=0))
