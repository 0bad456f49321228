"""Beam search over a directed acyclic graph of vertices (Huang et al. 2022).

Vertex 0 and vertex graph_length - 1 are the ends of every path. Each vertex emits one token; those of vertex 0 (BOS) and of the
last one (EOS) are not part of an output. A candidate of a vertex is a pair of a next vertex and the token emitted there; its score
is the natural logarithm of their joint probability, transition times token. `kernels.reference.dag_search` has the slow references.

Letters: B sentences, L vertices, C candidates. Arrays are contiguous, from numpy or from torch on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fewstep.native import fewstep_native

if TYPE_CHECKING:
    from fewstep_native import DagBeam as NativeBeam

    from fewstep.ngram import NgramScorer

ALL_CANDIDATES = 2**62
"""A number of candidates that no vertex has."""


@dataclass(frozen=True, kw_only=True)
class DagBeamOptions:
    """Options of `dag_beam_search`; the defaults are those of the paper where it states them."""

    beam_size: int = 200
    """Prefixes kept at a vertex."""
    beams_per_length: int = 10
    """Prefixes of one length kept at a vertex; this cut comes first."""
    candidates: int | None = None
    """Best candidates of a vertex that are followed, among the C given (the paper uses 5); None: all."""
    top_p: float = 0.9
    """A prefix follows the candidates of a vertex, best first, until they hold this much probability; 1: all of them."""
    length_penalty: float = 1.0
    """The exponent alpha, from 0 to 100: the score of an output is its log-probability / length^alpha."""
    length_convention: Literal["v2", "paper"] = "v2"
    """The length of an output: its tokens and `</s>`, or (paper, figure 11) `<s>` as well."""
    ngram_weight: float = 0.043
    """The weight gamma of the n-gram model, if one is given, on natural logarithms; 0.043 is 0.1 on logarithms to base 10."""
    n_best: int = 1
    """Outputs returned per sentence."""
    deduplicate: bool = False
    """Collapse adjacent repeated tokens of finished outputs. Scores stay; among outputs that become equal the best is returned."""
    no_repeat_ngram: int = 0
    """No sequence of this number of tokens occurs twice in an output; 0: no constraint."""
    no_consecutive_repeat: int = 0
    """No sequence of at most this number of tokens is immediately followed by itself; 0: no constraint."""
    threads: int = 1
    """Sentences searched at the same time. The result does not depend on it."""


class DagHypothesis(NamedTuple):
    """One output of a sentence."""

    ids: list[int]
    """Tokens without those of the first and the last vertex."""
    score: float
    """The log-probability of the output plus gamma times that of the n-gram model, divided by length^alpha."""

    @property
    def found(self) -> bool:
        """False if no path leads to the last vertex; then `ids` is empty and `score` is minus infinity."""
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
    """Return the n best outputs of each sentence, best first: at least one, and distinct.

    `scores` float32, `next_vertices` and `token_ids` int64 [B,L,C] are the candidates of each vertex, in any order (ties are broken
    by the given order). `graph_lengths` int64 [B] are at most L; cells beyond them are not read. `ngram` is a model over the same
    ids (`NgramModel.for_vocabulary`), which also scores `</s>`.

    The search maximises (log P(Y) + gamma log P_ngram(Y)) / |Y|^alpha (paper, equation 11 and appendix B), where P(Y) sums the
    followed paths that emit Y. With `top_p` 1 and beams and candidates without limit it is exact. A prefix whose candidates are all
    banned follows the best of them. A candidate for the last vertex ends the output, whatever its token.

    A candidate is ignored if its score is minus infinity, NaN, plus infinity or beyond +-1e6, if its token is negative, or if its
    next vertex is not a later one of the graph. If no path leads to the last vertex, the one hypothesis has no ids, the score minus
    infinity, and is not `found`.

    Raises TypeError and ValueError for arrays of other types and shapes and for options out of range, ValueError for token ids that
    are not in the n-gram model's vocabulary.
    """
    arrays = candidate_arrays(scores, next_vertices, token_ids, graph_lengths)
    ranked = _beam(options).search(*arrays, ngram=None if ngram is None else ngram.native, threads=options.threads)
    return [[DagHypothesis(*one) for one in sentence] or [DagHypothesis([], float("-inf"))] for sentence in ranked]


@lru_cache(maxsize=4)
def _beam(options: DagBeamOptions) -> NativeBeam:
    """Return a native search, which keeps its memory for the next call."""
    conventions = {"v2": False, "paper": True}
    if options.length_convention not in conventions:
        raise ValueError(f"length_convention: expected v2 or paper, got {options.length_convention!r}")
    return fewstep_native.DagBeam(
        beam_size=options.beam_size,
        beams_per_length=options.beams_per_length,
        candidates=ALL_CANDIDATES if options.candidates is None else options.candidates,
        top_p=options.top_p,
        length_penalty=options.length_penalty,
        count_begin=conventions[options.length_convention],
        ngram_weight=options.ngram_weight,
        n_best=options.n_best,
        deduplicate=options.deduplicate,
        no_repeat_ngram=options.no_repeat_ngram,
        no_consecutive_repeat=options.no_consecutive_repeat,
    )


def candidate_arrays(scores: Any, next_vertices: Any, token_ids: Any, graph_lengths: Any) -> tuple[Any, Any, Any, Any]:
    """Return the four arrays that describe candidates, checked. Raises TypeError and ValueError."""
    return (
        checked_array("scores", scores, "float32", "[B,L,C]"),
        checked_array("next_vertices", next_vertices, "int64", "[B,L,C]"),
        checked_array("token_ids", token_ids, "int64", "[B,L,C]"),
        checked_array("graph_lengths", graph_lengths, "int64", "[B]"),
    )


def checked_array(name: str, values: Any, dtype: str, shape: str) -> Any:
    """Return a contiguous numpy array that shares the memory of `values` if possible. Raises TypeError and ValueError."""
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
