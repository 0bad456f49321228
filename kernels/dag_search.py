"""Searches over a directed acyclic graph of vertices (Huang et al. 2022): from the scores of a graph to outputs.

Vertex 0 and vertex graph_length - 1 are the ends of every path. Each vertex emits one token; that of vertex 0 (BOS) and that of the
last one (EOS) are no part of an output. A candidate of a vertex is a pair of a next vertex and the token that it emits there; its
score is the natural logarithm of their probability, transition and token. `kernels.reference.dag_search` holds the slow twins.

B sentences, L vertices, C candidates, P vertices of the longest path. Arrays are contiguous, of numpy or of torch on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from fewstep_native import F64, I64
    from fewstep_native import DagBeam as NativeBeam

    from kernels.ngram import NgramScorer

EVERY = 2**62
"""More candidates than there are."""

__all__ = [
    "DagBeamOptions",
    "DagHypothesis",
    "DagPaths",
    "DagViterbiOptions",
    "DagWalkOptions",
    "DagWalks",
    "dag_beam_search",
    "dag_follow",
    "dag_lookahead",
    "dag_sample",
    "dag_viterbi",
]


@dataclass(frozen=True, kw_only=True)
class DagBeamOptions:
    """How `dag_beam_search` goes; the defaults are those of the paper where it has any."""

    beam_size: int = 200
    """Prefixes that live on at a vertex."""
    beams_per_length: int = 10
    """And of those of one length; they are cut first."""
    candidates: int | None = None
    """Best candidates of a vertex that are followed, of the C that are given (the paper gives 5); None: all."""
    top_p: float = 0.9
    """A prefix follows the candidates of a vertex, best first, until they hold this much probability; 1: all of them."""
    length_penalty: float = 1.0
    """alpha: an output scores its logarithm / length^alpha, 0 to 100."""
    length_convention: Literal["v2", "paper"] = "v2"
    """What the length of an output counts: its tokens and `</s>`, or (paper, figure 11) `<s>` as well."""
    ngram_weight: float = 0.043
    """gamma: weight of the n-gram model, if one is given, on natural logarithms; 0.043 is 0.1 on logarithms to base 10."""
    n_best: int = 1
    """Outputs returned of a sentence."""
    deduplicate: bool = False
    """Collapse adjacent repeats of finished outputs. Their scores stay; of those that become equal the best is returned."""
    no_repeat_ngram: int = 0
    """n: no n tokens stand twice in an output; 0: any may."""
    no_consecutive_repeat: int = 0
    """k: none of 1 to k tokens is followed at once by the same; 0: any may."""
    threads: int = 1
    """Sentences searched at a time. The result does not depend on it."""


class DagHypothesis(NamedTuple):
    """An output."""

    ids: list[int]
    """Tokens, without those of the first and the last vertex."""
    score: float
    """The logarithm of its probability and the weighted one of the n-gram model, divided by length^alpha."""

    @property
    def found(self) -> bool:
        """False where no path leads to the last vertex: then `ids` is empty and `score` minus infinity."""
        return self.score > float("-inf")


def dag_beam_search(
    scores: Any,
    next_vertices: Any,
    token_ids: Any,
    graph_lengths: Any,
    *,
    options: DagBeamOptions = DagBeamOptions(),
    ngram: NgramScorer | None = None,
) -> list[list[DagHypothesis]]:
    """The n best outputs of each sentence, best first: at least one, and distinct.

    `scores` float32, `next_vertices` and `token_ids` int64 [B,L,C] are the candidates of each vertex, in any order (equal scores
    count in the order given). `graph_lengths` int64 [B], at most L: cells beyond are not read. `ngram` is a model over the same
    ids (`NgramModel.for_vocabulary`), which also scores `</s>`.

    The search maximises (log P(Y) + gamma log P_ngram(Y)) / |Y|^alpha (paper, equation 11 and appendix B), where P(Y) adds up all
    paths that emit Y and were followed. With `top_p` 1 and beams and candidates beyond all there are it is exact. A prefix whose
    candidates are all banned follows the best of them. Whatever token a candidate for the last vertex has, it ends the output.

    A candidate is impossible, and ignored, when its score is minus infinity, NaN, plus infinity or beyond +-1e6, when its token is
    negative, and when its next vertex is not a later one of the graph. Where no path leads to the last vertex the one hypothesis
    has no ids, the score minus infinity, and is not `found`.

    Raises TypeError and ValueError for arrays of other types and shapes and for options out of range, ValueError for token ids
    that the n-gram model's vocabulary lacks.
    """
    arrays = _candidates(scores, next_vertices, token_ids, graph_lengths)
    found = _beam(options).search(*arrays, ngram=None if ngram is None else ngram.native, threads=options.threads)
    return [[DagHypothesis(*one) for one in sentence] or [DagHypothesis([], float("-inf"))] for sentence in found]


@lru_cache(maxsize=4)
def _beam(options: DagBeamOptions) -> NativeBeam:
    """A search is kept for the next call, with its memory."""
    from kernels.native import fewstep_native

    conventions = {"v2": False, "paper": True}
    if options.length_convention not in conventions:
        raise ValueError(f"length_convention: expected v2 or paper, got {options.length_convention!r}")
    return fewstep_native.DagBeam(
        beam_size=options.beam_size,
        beams_per_length=options.beams_per_length,
        candidates=EVERY if options.candidates is None else options.candidates,
        top_p=options.top_p,
        length_penalty=options.length_penalty,
        count_begin=conventions[options.length_convention],
        ngram_weight=options.ngram_weight,
        n_best=options.n_best,
        deduplicate=options.deduplicate,
        no_repeat_ngram=options.no_repeat_ngram,
        no_consecutive_repeat=options.no_consecutive_repeat,
    )


class DagPaths(NamedTuple):
    """The best path of each sentence."""

    vertices: I64
    """[B,P] with both ends, then -1; all -1 where no path is possible"""
    lengths: I64
    """[B] vertices between the ends"""
    scores: F64
    """[B] score / length^b; minus infinity where no path is possible"""


@dataclass(frozen=True, kw_only=True)
class DagViterbiOptions:
    """How `dag_viterbi` chooses among lengths."""

    length_exponent: float = 1.0
    """b: the best path of k tokens is worth score / k^b, 0 to 100."""
    threads: int = 1
    """Sentences at a time. The result does not depend on it."""


def dag_viterbi(
    transition_log_probs: Any,
    token_best: Any,
    graph_lengths: Any,
    *,
    longest: Any = None,
    options: DagViterbiOptions = DagViterbiOptions(),
) -> DagPaths:
    """The most probable path of each sentence, of the best length: Viterbi and joint Viterbi (Shao et al. 2022).

    `transition_log_probs` float32 [B,L,L] are read at [b,i,j] for j > i. `token_best` float32 [B,L] is the largest log-probability
    of a token at each vertex (joint Viterbi), or zeros (Viterbi); that of the last vertex is not read. `graph_lengths` int64 [B].
    `longest` int64 [B]: most tokens between the ends; any number if not given.

    A path of k tokens between the ends is worth the sum of its transitions and of `token_best`, BOS's included, divided by k^b.
    k is at least 1, but for graphs of 2 vertices, which have one path and it no token between. Exact, in O(k L^2). Equal paths: the
    shortest, and then the smallest vertex, from the end backwards. Minus infinity and NaN are impossible. Raises TypeError and
    ValueError for arrays of other types and shapes and for options out of range.
    """
    from kernels.native import fewstep_native

    lengths = _array("graph_lengths", graph_lengths, "int64", "[B]")
    vertices, tokens, scores = fewstep_native.dag_viterbi(
        _array("transition_log_probs", transition_log_probs, "float32", "[B,L,L]"),
        _array("token_best", token_best, "float32", "[B,L]"),
        lengths,
        max_lengths=lengths if longest is None else _array("longest", longest, "int64", "[B]"),
        length_exponent=options.length_exponent,
        threads=options.threads,
    )
    return DagPaths(_rows(vertices, len(lengths)), tokens, scores)


def dag_follow(next_vertices: Any, graph_lengths: Any) -> I64:
    """The path [B,P] from vertex 0 along `next_vertices` int64 [B,L] to the last vertex of each graph, then -1.

    `graph_lengths` int64 [B]. A pointer that does not lead to a later vertex of the graph ends the path, which then does not hold
    the last vertex. Raises TypeError and ValueError for arrays of other types and shapes.
    """
    from kernels.native import fewstep_native

    lengths = _array("graph_lengths", graph_lengths, "int64", "[B]")
    return _rows(fewstep_native.dag_follow(_array("next_vertices", next_vertices, "int64", "[B,L]"), lengths), len(lengths))


@dataclass(frozen=True, kw_only=True)
class DagWalkOptions:
    """How `dag_lookahead` and `dag_sample` choose at each vertex."""

    candidates: int | None = None
    """Best candidates of a vertex that are looked at, of the C that are given (the published code gives 5); None: all."""
    top_p: float = 0.9
    """Lookahead passes over banned candidates that hold no more probability than this; sampling draws from the best candidates that
    hold more than this. 1: no limit."""
    no_repeat_ngram: int = 0
    """n: no n tokens stand twice in an output; 0: any may."""
    no_consecutive_repeat: int = 1
    """k: none of 1 to k tokens is followed at once by the same; 0: any may."""
    threads: int = 1
    """Sentences at a time. The result does not depend on it."""


class DagWalks(NamedTuple):
    """One walk through each graph."""

    vertices: I64
    """[B,P] from vertex 0 on, then -1"""
    token_ids: I64
    """[B,P] what each of them emits; -1 for the ends: those that are not are the output"""
    scores: F64
    """[B] sum of the candidates' scores; minus infinity where a vertex without possible candidates ended the walk"""


def dag_lookahead(
    scores: Any,
    next_vertices: Any,
    token_ids: Any,
    graph_lengths: Any,
    *,
    options: DagWalkOptions = DagWalkOptions(),
) -> DagWalks:
    """From vertex 0 on, the best candidate that repeats nothing; the best of all where every one does, or where the banned ones
    before it hold more probability than `top_p` (lookahead with n-gram prevention). Arrays as for `dag_beam_search`."""
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
    """From vertex 0 on, a candidate drawn among the best ones, up to the one with which they hold more probability than `top_p`
    (nucleus sampling). A banned one is drawn 100,000 times less often. Arrays as for `dag_beam_search`.

    `seeds` int64 [B]: what is drawn for a sentence is a function of its seed and its candidates. A temperature is above 0 and acts
    on transitions before candidates are made of them.
    """
    return _walk(scores, next_vertices, token_ids, graph_lengths, _array("seeds", seeds, "int64", "[B]"), options)


def _walk(
    scores: Any, next_vertices: Any, token_ids: Any, graph_lengths: Any, seeds: I64 | None, options: DagWalkOptions
) -> DagWalks:
    from kernels.native import fewstep_native

    arrays = _candidates(scores, next_vertices, token_ids, graph_lengths)
    vertices, tokens, sums = fewstep_native.dag_walk(
        *arrays,
        seeds=seeds,
        candidates=EVERY if options.candidates is None else options.candidates,
        top_p=options.top_p,
        no_repeat_ngram=options.no_repeat_ngram,
        no_consecutive_repeat=options.no_consecutive_repeat,
        threads=options.threads,
    )
    return DagWalks(_rows(vertices, len(sums)), _rows(tokens, len(sums)), sums)


def _rows(values: I64, count: int) -> I64:
    """[rows x width] as [rows,width]."""
    return values.reshape(count, values.size // max(count, 1))


def _candidates(scores: Any, next_vertices: Any, token_ids: Any, graph_lengths: Any) -> tuple[Any, Any, Any, Any]:
    return (
        _array("scores", scores, "float32", "[B,L,C]"),
        _array("next_vertices", next_vertices, "int64", "[B,L,C]"),
        _array("token_ids", token_ids, "int64", "[B,L,C]"),
        _array("graph_lengths", graph_lengths, "int64", "[B]"),
    )


def _array(name: str, values: Any, dtype: str, shape: str) -> Any:
    """A numpy array that shares the memory of `values`."""
    import numpy as np

    try:
        array = np.asarray(values)
    except (TypeError, RuntimeError) as error:  # a tensor of another device or type, or one that needs a gradient
        raise TypeError(f"{name}: expected an array or a detached tensor on the CPU of {dtype} {shape}, got: {error}") from error
    if array.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype} {shape}, got {array.dtype}; convert it")
    if array.ndim != shape.count(",") + 1:
        raise ValueError(f"{name}: expected {shape}, got the shape {array.shape}")
    return np.ascontiguousarray(array)
