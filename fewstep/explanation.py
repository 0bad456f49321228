"""The graph or lattice that a search went through, as vertices and edges with probabilities, for drawings.

A graph (Huang et al. 2022, section 3) has vertices that emit tokens and transitions between them. A lattice (Deng and Rush 2021)
has candidates in slots; the probability of a candidate is its share among all paths of the lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.floating]
    Ids = npt.NDArray[np.int64]

MIN_PROBABILITY = 0.02
"""Vertices and edges with a lower probability are left out, unless the output passes there."""
TOKENS = 3
"""Tokens of a vertex that are kept."""


class Vertex(NamedTuple):
    """A vertex of a graph, or a candidate of a lattice."""

    layer: int
    """Column of a drawing: edges run from lower to higher layers."""
    probability: float
    """Probability that a path passes here."""
    tokens: list[tuple[str, float]]
    """Pieces with their probabilities, best first."""
    on_path: bool
    """Whether the output passes here."""


class Edge(NamedTuple):
    """A transition between two vertices, given by their positions in the list of vertices."""

    source: int
    target: int
    probability: float
    """Probability that a path takes this edge, given that it passes its source."""
    on_path: bool


class Explanation(NamedTuple):
    """A graph or a lattice, without its improbable parts."""

    kind: str
    """`dag` or `lattice`."""
    vertices: list[Vertex]
    edges: list[Edge]


@runtime_checkable
class Explaining(Protocol):
    """A decoder that searches graphs or lattices."""

    def explain(
        self, source: Sequence[int], search: Any, piece: Callable[[int], str], threads: int | None = None
    ) -> Explanation | None:
        """Return the graph or lattice of a source without EOS, or None if this search has none. `piece` returns the piece of a
        token id."""
        ...


def of_graph(transitions: Floats, log_probs: Floats, ids: Ids, output: Sequence[int], piece: Callable[[int], str]) -> Explanation:
    """Return the graph of one sentence.

    Args:
        transitions: [L,D] log-probabilities that vertex i + 1 + d follows vertex i, for the D next vertices.
        log_probs: [L,W] log-probabilities of the best tokens of each vertex, best first.
        ids: [L,W] ids of these tokens.
        output: Tokens of the output. They are laid on the most probable path that emits them, if the listed tokens permit one.
        piece: Function that returns the piece of a token id.
    """
    follows = np.exp(transitions.astype(np.float64))
    passing = np.zeros(len(follows))
    passing[:1] = 1.0
    for vertex in range(len(follows)):
        later = passing[vertex + 1 : vertex + 1 + follows.shape[1]]
        later += passing[vertex] * follows[vertex, : len(later)]
    path = _path(transitions, log_probs, ids, output)
    shown = [vertex for vertex in range(len(follows)) if passing[vertex] >= MIN_PROBABILITY or vertex in path]
    steps = set(pairwise(path))
    pairs = [
        (i, j)
        for i, j in combinations(shown, 2)
        if j - i <= follows.shape[1] and (passing[i] * follows[i, j - i - 1] >= MIN_PROBABILITY or (i, j) in steps)
    ]
    layers = _layers(shown, pairs)
    emitted = np.exp(log_probs[:, :TOKENS].astype(np.float64))
    vertices = []
    for vertex in shown:
        tokens = [(piece(int(token)), float(p)) for token, p in zip(ids[vertex], emitted[vertex], strict=False) if p > 0]
        vertices.append(Vertex(layers[vertex], min(1.0, float(passing[vertex])), tokens, vertex in path))
    position = {vertex: index for index, vertex in enumerate(shown)}
    edges = [Edge(position[i], position[j], float(follows[i, j - i - 1]), (i, j) in steps) for i, j in pairs]
    return Explanation("dag", vertices, edges)


def _path(transitions: Floats, log_probs: Floats, ids: Ids, output: Sequence[int]) -> list[int]:
    """Return the vertices of the most probable path from the first to the last vertex that emits `output` between them (Viterbi);
    an empty list if there is no such path."""
    last = len(transitions) - 1
    if last < 1:
        return []
    band = transitions.shape[1]
    before = np.arange(last + 1)[:, None] + np.arange(-band, 0)  # [L,D] the vertices before each one, ascending
    steps = np.where(before >= 0, transitions[before.clip(min=0), np.arange(band)[::-1]], -np.inf)
    score = np.full(last + 1, -np.inf)
    score[0] = 0.0
    back = []
    for token in [*output, None]:
        arriving = score[before.clip(min=0)] + steps
        back.append(before[np.arange(last + 1), arriving.argmax(1)])
        score = arriving.max(1)
        if token is not None:
            emits = np.where(ids == token, log_probs, -np.inf).max(1)
            emits[last] = -np.inf
            score = score + emits
    if not np.isfinite(score[last]):
        return []
    path = [last]
    for previous in reversed(back):
        path.append(int(previous[path[-1]]))
    return path[::-1]


def _layers(vertices: Sequence[int], pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the length of the longest way to each vertex; a vertex that no pair reaches follows its predecessor in the list."""
    layers: dict[int, int] = {}
    last = -1
    for vertex in vertices:
        before = [layers[i] for i, j in pairs if j == vertex]
        last = layers[vertex] = max(before) + 1 if before else last + 1
    return layers


def of_lattice(
    start: Floats, edges: Floats, exits: Floats, ids: Ids, min_length: int, output: Sequence[int], piece: Callable[[int], str]
) -> Explanation:
    """Return the lattice of one sentence.

    Args:
        start: [K] scores of the first tokens.
        edges: [N-1,K,K] scores of pairs of adjacent candidates.
        exits: [N,K] scores of the end after each candidate.
        ids: [N,K] ids of the candidates; negative where there is no candidate.
        min_length: Minimum number of tokens of an output.
        output: Tokens of the output.
        piece: Function that returns the piece of a token id.
    """
    leaving = np.where(np.arange(len(exits))[:, None] + 1 >= min_length, exits, -np.inf).astype(np.float64)
    before: list[Floats] = [start.astype(np.float64)]
    for scores in edges:
        before.append(_log_sum(before[-1][:, None] + scores, 0))
    after: list[Floats] = [leaving[-1]]
    for scores, end in zip(edges[::-1], leaving[-2::-1], strict=True):
        after.insert(0, np.logaddexp(end, _log_sum(scores + after[0][None, :], 1)))
    total = _log_sum(before[0] + after[0], 0)
    if not np.isfinite(total):
        return Explanation("lattice", [], [])
    shares = [np.exp(left + right - total) for left, right in zip(before, after, strict=True)]
    return _lattice(ids, shares, before, edges, after, total, output, piece)


def _lattice(
    ids: Ids,
    shares: Sequence[Floats],
    before: Sequence[Floats],
    edges: Floats,
    after: Sequence[Floats],
    total: Floats,
    output: Sequence[int],
    piece: Callable[[int], str],
) -> Explanation:
    path = dict(enumerate(output))
    cells = [
        (slot, k)
        for slot in range(len(ids))
        for k in np.argsort(-shares[slot], kind="stable").tolist()
        if ids[slot, k] >= 0 and (shares[slot][k] >= MIN_PROBABILITY or path.get(slot) == ids[slot, k])
    ]
    written = {cell for cell in cells if path.get(cell[0]) == ids[cell]}
    vertices = [Vertex(s, float(shares[s][k]), [(piece(int(ids[s, k])), float(shares[s][k]))], (s, k) in written) for s, k in cells]
    found = []
    for i, (slot, k) in enumerate(cells):
        for j, (following, other) in enumerate(cells):
            if following != slot + 1 or not shares[slot][k]:
                continue
            both = float(np.exp(before[slot][k] + edges[slot, k, other] + after[following][other] - total))
            on_path = (slot, k) in written and (following, other) in written
            if both >= MIN_PROBABILITY or on_path:
                found.append(Edge(i, j, both / float(shares[slot][k]), on_path))
    return Explanation("lattice", vertices, found)


def _log_sum(values: Floats, axis: int) -> Floats:
    """Return the logarithm of the sum of exponentials along an axis; minus infinity for a sum of nothing."""
    highest = values.max(axis, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        result: Floats = np.log(np.exp(values - highest).sum(axis)) + highest.squeeze(axis)
    return result
