"""Single paths through a directed acyclic graph of vertices (Huang et al. 2022): Viterbi, lookahead and sampling.

Vertices, candidates and letters are those of `fewstep.search.dag_beam`; P is the number of vertices of the longest path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.native import fewstep_native
from fewstep.search.dag_beam import ALL_CANDIDATES, candidate_arrays, checked_array

if TYPE_CHECKING:
    from fewstep_native import F64, I64


class DagPaths(NamedTuple):
    """The best path of each sentence."""

    vertices: I64
    """[B,P] the vertices with both ends, padded with -1; all -1 if no path is possible."""
    lengths: I64
    """[B] the number of vertices between the ends."""
    scores: F64
    """[B] score / length^b; minus infinity if no path is possible."""


@dataclass(frozen=True, kw_only=True)
class DagViterbiOptions:
    """The comparison of paths of different lengths in `dag_viterbi`."""

    length_exponent: float = 1.0
    """The exponent b, from 0 to 100: the value of a path of k tokens is score / k^b."""
    threads: int = 1
    """Sentences searched at the same time. The result does not depend on it."""


def dag_viterbi(
    transition_log_probs: Any,
    token_best: Any,
    graph_lengths: Any,
    *,
    max_lengths: Any = None,
    options: DagViterbiOptions = DagViterbiOptions(),
) -> DagPaths:
    """Return the most probable path of each sentence, of the best length: Viterbi and joint Viterbi (Shao et al. 2022).

    `transition_log_probs` float32 [B,L,D] lead from vertex i to vertex i + 1 + d, one of the next D < L vertices; they are not read
    beyond the graph. `token_best` float32 [B,L] is the largest log-probability
    of a token at each vertex (joint Viterbi) or zero (Viterbi); that of the last vertex is not read. `graph_lengths` int64 [B].
    `max_lengths` int64 [B] limits the tokens between the ends; None: no limit.

    The value of a path of k tokens between the ends is the sum of its transitions and of `token_best`, with BOS, divided by k^b.
    k is at least 1, except in graphs of 2 vertices, whose one path has no token between the ends. The search is exact, in O(k L D).
    Among equal paths the shortest wins, then the one with the smallest vertex, from the end backwards. Minus infinity and NaN are
    impossible. Raises TypeError and ValueError for arrays of other types and shapes and for options out of range.
    """
    lengths = checked_array("graph_lengths", graph_lengths, "int64", "[B]")
    vertices, tokens, scores = fewstep_native.dag_viterbi(
        checked_array("transition_log_probs", transition_log_probs, "float32", "[B,L,D]"),
        checked_array("token_best", token_best, "float32", "[B,L]"),
        lengths,
        max_lengths=lengths if max_lengths is None else checked_array("max_lengths", max_lengths, "int64", "[B]"),
        length_exponent=options.length_exponent,
        threads=options.threads,
    )
    return DagPaths(_rows(vertices, len(lengths)), tokens, scores)


def dag_follow(next_vertices: Any, graph_lengths: Any) -> I64:
    """Return the path [B,P] from vertex 0 along `next_vertices` int64 [B,L] to the last vertex of each graph, padded with -1.

    `graph_lengths` int64 [B]. A pointer that does not lead to a later vertex of the graph ends the path, which then does not
    contain the last vertex. Raises TypeError and ValueError for arrays of other types and shapes.
    """
    lengths = checked_array("graph_lengths", graph_lengths, "int64", "[B]")
    vertices = fewstep_native.dag_follow(checked_array("next_vertices", next_vertices, "int64", "[B,L]"), lengths)
    return _rows(vertices, len(lengths))


@dataclass(frozen=True, kw_only=True)
class DagWalkOptions:
    """The choice at each vertex in `dag_lookahead` and `dag_sample`."""

    candidates: int | None = None
    """Best candidates of a vertex that are considered, among the C given (the published code uses 5); None: all."""
    top_p: float = 0.9
    """Lookahead skips banned candidates that hold no more probability than this; sampling draws from the best candidates until they
    hold more than this. 1: no limit."""
    no_repeat_ngram: int = 0
    """No sequence of this number of tokens occurs twice in an output; 0: no constraint."""
    no_consecutive_repeat: int = 1
    """No sequence of at most this number of tokens is immediately followed by itself; 0: no constraint."""
    threads: int = 1
    """Sentences processed at the same time. The result does not depend on it."""


class DagWalks(NamedTuple):
    """One walk through each graph."""

    vertices: I64
    """[B,P] the vertices from vertex 0 on, padded with -1."""
    token_ids: I64
    """[B,P] the emitted tokens, with -1 for both ends and the padding; the others are the output."""
    scores: F64
    """[B] the sum of the candidates' scores; minus infinity if a vertex without possible candidates ended the walk."""


def dag_lookahead(
    scores: Any,
    next_vertices: Any,
    token_ids: Any,
    graph_lengths: Any,
    *,
    options: DagWalkOptions = DagWalkOptions(),
) -> DagWalks:
    """Walk from vertex 0, each time to the best candidate that repeats nothing (lookahead with n-gram prevention).

    The best of all candidates is taken if every candidate repeats something, or if the banned ones that precede the first allowed
    one hold more probability than `top_p`. The arrays are those of `dag_beam_search`.
    """
    return _walk(scores, next_vertices, token_ids, graph_lengths, None, options)


def dag_sample(
    scores: Any,
    next_vertices: Any,
    token_ids: Any,
    graph_lengths: Any,
    *,
    seeds: Any,
    options: DagWalkOptions = DagWalkOptions(),
) -> DagWalks:
    """Walk from vertex 0, each time to a candidate drawn among the best ones up to the one with which they hold more probability
    than `top_p` (nucleus sampling). A banned candidate is drawn 100,000 times less often.

    The arrays are those of `dag_beam_search`. `seeds` int64 [B]: the walk of a sentence is a function of its seed and its
    candidates. A temperature must be applied to the transitions before candidates are computed from them.
    """
    return _walk(scores, next_vertices, token_ids, graph_lengths, checked_array("seeds", seeds, "int64", "[B]"), options)


def _walk(
    scores: Any, next_vertices: Any, token_ids: Any, graph_lengths: Any, seeds: I64 | None, options: DagWalkOptions
) -> DagWalks:
    arrays = candidate_arrays(scores, next_vertices, token_ids, graph_lengths)
    vertices, tokens, sums = fewstep_native.dag_walk(
        *arrays,
        seeds=seeds,
        candidates=ALL_CANDIDATES if options.candidates is None else options.candidates,
        top_p=options.top_p,
        no_repeat_ngram=options.no_repeat_ngram,
        no_consecutive_repeat=options.no_consecutive_repeat,
        threads=options.threads,
    )
    return DagWalks(_rows(vertices, len(sums)), _rows(tokens, len(sums)), sums)


def _rows(values: I64, count: int) -> I64:
    """Reshape [rows x width] to [rows,width]."""
    return values.reshape(count, values.size // max(count, 1))
