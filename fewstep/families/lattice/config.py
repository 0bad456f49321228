"""Sizes, training and searches of the `lattice` family (Deng and Rush 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self, cast

from fewstep.config.bounds import MAX_WEIGHT, Ge, Le, Lt
from fewstep.config.network import NetworkConfig
from fewstep.config.options import MAX_CELLS, MAX_HYPOTHESES, Precision, engine_precision
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, Workload

Normalizer = Literal["full", "union", "local", "selfnorm"]

MAX_CANDIDATES = 1024
"""Most tokens of a slot."""
MAX_SEGMENT = 16
"""Most slots of a segment."""


@dataclass(frozen=True, kw_only=True)
class LatticeModelConfig(NetworkConfig):
    """A Transformer whose decoder, the scorer, predicts a token from a few tokens before it and from the source."""

    segment_length: Annotated[int, Ge(1), Le(MAX_SEGMENT)] = 2
    """Slots that attend to one another in training, in segments that are drawn at random for each sentence: with 2 half of the
    slots learn from the previous token and half from the previous two, with 1 all from the previous token. Decoding always uses
    one previous token."""
    segment_start: Literal["token", "bos"] = "token"
    """Input of the first slot of a segment: the previous token, or BOS in its place, so that slots learn from none to
    `segment_length` - 1 previous tokens. Searches by `cascade` need `bos`, which torch alone decodes."""
    word_dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the slots that learn from the source alone, with BOS in place of the previous token. Searches with
    `candidate_threshold` need it (0.1 to 0.3)."""
    normalizer_penalty: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight c of c (log Z)^2 in the loss of each token, Z the sum over the vocabulary of exp(logit). Searches with
    `normalizer: selfnorm` need it (0.01 to 0.1)."""

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        if self.segment_start == "bos" and self.segment_length == 1:
            yield Problem(("segment_length",), f"2 to {MAX_SEGMENT} with segment_start bos", self.segment_length)
        if self.segment_start == "token" and self.segment_length > 2:
            yield Problem(("segment_length",), "1 or 2 with segment_start token", self.segment_length)
        if self.segment_start == "bos" and self.word_dropout:
            yield Problem(("word_dropout",), "0 with segment_start bos, which has slots without a token", self.word_dropout)

    @property
    def needs_torch(self) -> bool:
        """Whether native code lacks the rows that attend to BOS."""
        return self.segment_start == "bos"

    @property
    def is_analysed(self) -> bool:
        """Whether it has the analysis of its family: that of counted candidates, which a cascade does not have."""
        return self.segment_start == "token"


@dataclass(frozen=True, kw_only=True)
class LatticeSearch(SearchConfig):
    """The width of a lattice, the scores of its edges, and the search in it."""

    strategy: Literal["viterbi", "lookup", "cascade"] = "viterbi"
    """The best path through the lattice; or the most frequent token of each slot by the counts alone, without the network; or, for
    networks trained with `segment_start: bos`, the best path through candidates that the network proposes itself, cascaded decoding
    in two iterations (Deng and Rush 2020)."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence (not lookup)."""
    candidates: Annotated[int, Ge(1), Le(MAX_CANDIDATES)] = 64
    """Number of tokens in each slot (K). In a cascade EOS and the padding after it take places of these."""
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

    @classmethod
    def for_network(cls, network: NetworkConfig) -> Self:
        """Return the search that the network is validated with; for a cascade K = 16, as in the authors' code."""
        if cast(LatticeModelConfig, network).segment_start == "bos":
            return cls(strategy="cascade", candidates=16)
        return cls()

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
        yield from self._cascade_problems()
        if scorer is not None and self.strategy != "lookup":
            yield from self._size_problems(scorer.max_positions)
            cascades = scorer.segment_start == "bos"
            if cascades != (self.strategy == "cascade"):
                usual = "cascade" if cascades else "viterbi"
                expected = f"{usual} or lookup for a network with segment_start {scorer.segment_start}"
                yield Problem(("strategy",), expected, self.strategy)
        if scorer is not None and self.normalizer == "selfnorm" and not scorer.normalizer_penalty:
            expected = "full, union or local for a network trained without normalizer_penalty"
            yield Problem(("normalizer",), expected, self.normalizer)
        if scorer is not None and self.candidate_threshold is not None and self.strategy != "cascade" and not scorer.word_dropout:
            expected = "none for a network trained without word_dropout"
            yield Problem(("candidate_threshold",), expected, self.candidate_threshold)

    def _cascade_problems(self) -> Iterator[Problem]:
        """Yield the options of counted candidates that a cascade does not have."""
        if self.strategy != "cascade":
            return
        if self.normalizer != "full":
            yield Problem(("normalizer",), "full with cascade", self.normalizer)
        if self.candidate_threshold is not None:
            yield Problem(("candidate_threshold",), "none with cascade", self.candidate_threshold)
        if self.count_weight:
            yield Problem(("count_weight",), "0 with cascade, whose candidates are not counted", self.count_weight)

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
