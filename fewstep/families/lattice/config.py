"""Sizes, training and searches of the `lattice` family (Deng and Rush 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from fewstep.config.bounds import MAX_WEIGHT, Ge, Le, Lt
from fewstep.config.network import NetworkConfig
from fewstep.config.options import MAX_CELLS, MAX_HYPOTHESES, Precision, engine_precision
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, Workload

Normalizer = Literal["full", "union", "local", "selfnorm"]

MAX_CANDIDATES = 1024
"""Most tokens of a slot."""


@dataclass(frozen=True, kw_only=True)
class LatticeModelConfig(NetworkConfig):
    """A Transformer whose decoder, the scorer, predicts a token from the one or two tokens before it and from the source."""

    segment_length: Literal[1, 2] = 2
    """Slots that attend to one another in training: pairs, drawn at random for each sentence, so that half of the slots learn from
    the previous token and half from the previous two; or each slot only to itself. Decoding always uses one previous token."""
    word_dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the slots that learn from the source alone, with BOS in place of the previous token. Searches with
    `candidate_threshold` need it (0.1 to 0.3)."""
    normalizer_penalty: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight c of c (log Z)^2 in the loss of each token, Z the sum over the vocabulary of exp(logit). Searches with
    `normalizer: selfnorm` need it (0.01 to 0.1)."""


@dataclass(frozen=True, kw_only=True)
class LatticeSearch(SearchConfig):
    """The width of a lattice, the scores of its edges, and the search in it."""

    strategy: Literal["viterbi", "lookup"] = "viterbi"
    """The best path through the lattice, or the most frequent token of each slot by the counts alone, without the network."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence (viterbi only)."""
    candidates: Annotated[int, Ge(1), Le(MAX_CANDIDATES)] = 64
    """Number of tokens in each slot (K)."""
    candidate_threshold: Annotated[float, Ge(0), Le(MAX_WEIGHT)] | None = None
    """Candidates that are, before the previous token is known, more than this many nats less likely than the best of their slot, by
    the network's and the counts' probabilities multiplied, are left out of the lattice. For networks trained with `word_dropout`.
    Empty: all are kept."""
    length_window: Annotated[int, Ge(0), Le(1024)] = 3
    """Largest difference in tokens between an output's length and the length that the length line predicts."""
    smoothing: bool = True
    """Use the counts of the nearest lengths, or a prior along the diagonal, for slots that no pair of the source's length has a
    link in. Without it, as in the paper, such slots have no candidates."""
    normalizer: Normalizer = "full"
    """Tokens that the scores of a row are normalised over: the whole vocabulary; the candidates of all slots of the sentence and
    EOS; those of the next slot and EOS; or none, for networks trained with `normalizer_penalty`."""
    count_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight of the counts' log-probability of a token relative to the network's."""
    token_bonus: Annotated[float, Ge(-MAX_WEIGHT), Le(MAX_WEIGHT)] = 0.0
    """Per-token bonus that offsets the bias of summed log-probabilities towards short outputs."""
    engine: Literal["auto", "torch"] = "auto"
    """Engine that decodes: native code on a CPU and torch elsewhere (`auto`), or torch."""
    precision: Precision = "float32"
    """Arithmetic of products with weights; sums, and the normalizers `full` and `union`, stay in float32. On a CPU bfloat16 is
    faster with AVX512-BF16 and slower without. Torch, which decodes on a GPU, has float32, and on a GPU float16 and bfloat16."""
    confidences: bool = False
    """Also report for each token of the best path by how many nats the path beats the best path without that token."""

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        return Workload("one", self.engine, self.precision, None)

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        scorer = None if network is None else cast(LatticeModelConfig, network)
        if self.strategy == "lookup" and self.n_best > 1:
            yield Problem(("n_best",), "1 with lookup", self.n_best)
        yield from engine_precision(self.engine, self.precision)
        if scorer is not None and self.strategy == "viterbi":
            yield from self._size_problems(scorer.max_positions)
        if scorer is not None and self.normalizer == "selfnorm" and not scorer.normalizer_penalty:
            expected = "full, union or local for a network trained without normalizer_penalty"
            yield Problem(("normalizer",), expected, self.normalizer)
        if scorer is not None and self.candidate_threshold is not None and not scorer.word_dropout:
            expected = "none for a network trained without word_dropout"
            yield Problem(("candidate_threshold",), expected, self.candidate_threshold)

    def _size_problems(self, slots: int) -> Iterator[Problem]:
        """Yield the sizes of which the longest lattice would take too much memory: a slot has a score for each pair of candidates,
        and each candidate has `n_best` paths."""
        if self.candidates**2 * slots > 8 * MAX_CELLS:
            most = math.isqrt(8 * MAX_CELLS // slots)
            yield Problem(("candidates",), f"at most {most} with max_positions {slots}", self.candidates)
        if self.n_best > 1 and self.n_best * self.candidates * slots > 2 * MAX_CELLS:
            most = 2 * MAX_CELLS // (self.candidates * slots)
            yield Problem(("n_best",), f"at most {most} with {self.candidates} candidates and max_positions {slots}", self.n_best)


NETWORK, SEARCH = LatticeModelConfig, LatticeSearch
