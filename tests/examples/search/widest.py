"""A search of graphs for the path whose least probable transition is the most probable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fewstep.families.dag.config import DagSearch
from fewstep.translation import Hypothesis
from models.dag.search import Graph


@dataclass(frozen=True, kw_only=True)
class WidestSearch(DagSearch):
    """`DagSearch` with one more strategy."""

    strategy: Literal["widest"] = "widest"
    """The path whose least probable transition is the most probable."""


def widest(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    """Return the widest path of each graph (maximum capacity route; Pollack 1960), with the best token of each vertex.

        width(0) = inf,   width(j) = max over i < j of min(width(i), transitions[i,j])

    A hypothesis scores the width of its last vertex: the log-probability of the least probable transition.
    """
    transitions, tokens, lengths = graph
    width, before = _widths(transitions)
    best = tokens.ids[..., 0].tolist()
    hypotheses = []
    for row, last in enumerate((lengths - 1).tolist()):
        path = _path(before[row].tolist(), last)
        ids = [best[row][vertex] for vertex in path[1:-1]]
        hypotheses.append([Hypothesis(ids, width[row, last].item(), 1)])
    return hypotheses


def _widths(transitions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the widths of the vertices of transitions [B,L,L], and the vertex before each on its path, both [B,L]."""
    width = torch.full_like(transitions[:, 0], torch.inf)
    before = torch.zeros_like(width, dtype=torch.int64)
    for vertex in range(1, width.size(1)):
        narrowest = torch.minimum(width[:, :vertex], transitions[:, :vertex, vertex])
        width[:, vertex], before[:, vertex] = narrowest.max(1)
    return width, before


def _path(before: list[int], last: int) -> list[int]:
    """Return the vertices from the first to `last`."""
    path = [last]
    while path[-1]:
        path.append(before[path[-1]])
    return path[::-1]
