"""A search of graphs for the path whose least probable transition is the most probable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fewstep.families.dag.config import DagSearch
from fewstep.families.dag.search import Floats, Graph
from fewstep.sources import Ints
from fewstep.translation import Hypothesis


@dataclass(frozen=True, kw_only=True)
class WidestSearch(DagSearch):
    """`DagSearch` with one more strategy."""

    strategy: Literal["widest"] = "widest"
    """The path whose least probable transition is the most probable."""


def widest(graph: Graph, search: DagSearch, ngram: Any, threads: int) -> list[list[Hypothesis]]:
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


def _widths(transitions: Floats) -> tuple[Floats, Ints]:
    """Return the widths of the vertices of transitions [B,L,D], and the vertex before each on its path, both [B,L]."""
    batch, size, band = transitions.shape
    width, before = np.full((batch, size), np.inf, np.float32), np.zeros((batch, size), np.int64)
    for vertex in range(1, size):
        earlier = np.arange(max(0, vertex - band), vertex)
        narrowest = np.minimum(width[:, earlier], transitions[:, earlier, vertex - earlier - 1])
        width[:, vertex], before[:, vertex] = narrowest.max(1), earlier[narrowest.argmax(1)]
    return width, before


def _path(before: list[int], last: int) -> list[int]:
    """Return the vertices from the first to `last`."""
    path = [last]
    while path[-1]:
        path.append(before[path[-1]])
    return path[::-1]
