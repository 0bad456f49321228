"""Sizes, graph, objective and searches of the `dag` family (Huang et al. 2022; Ma et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, cast

from fewstep.config.bounds import MAX_TOKENS, MAX_WEIGHT, Ge, Gt, Le
from fewstep.config.network import TYPICAL_LENGTH, NetworkConfig
from fewstep.config.options import (
    MAX_CELLS,
    MAX_EXPONENT,
    MAX_HYPOTHESES,
    Precision,
    Sampling,
    Shortlist,
    engine_precision,
)
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, Workload

Pin = Literal["none", "row", "column"]

MAX_PREFIXES, MAX_CANDIDATES = 4096, 1024
"""Most prefixes, and most candidates, of a vertex."""
MAX_LENGTH_CANDIDATES = 100
"""The largest number of graphs that are searched for a sentence."""


@dataclass(frozen=True, kw_only=True)
class DagConfig(NetworkConfig):
    """A Transformer whose decoder computes all vertices of a graph at once, and the probability that one follows another."""

    conventions: Literal["paper", "v2"] = "paper"
    """Graph size and pinning as in the paper's code, which its results were computed with, or as in its successor."""
    initialisation: Literal["glorot", "normal"] = "glorot"
    """Random weights: embeddings with N(0, 1/width) and Glorot uniform matrices, or all of them with N(0, 0.02²) as in BERT and in
    the authors' code."""
    tied_output: bool = True
    """Compute logits by the embeddings of target tokens, or by a table of their own, as the authors' scripts for WMT17 do. Torch
    alone decodes a network with its own table."""
    source_bos: bool = False
    """Encode each source with BOS in front, as the authors' code does. It takes one of `max_positions`."""
    graph_size: Literal["source", "predicted", "fixed"] = "source"
    """Quantity that the size of a graph is proportional to: the source length, the target length, which the network predicts, or
    nothing."""
    graph_factor: Annotated[float, Gt(0), Le(MAX_TOKENS)] = 8.0
    """Number of vertices per token (with `fixed`: of vertices) between the two ends."""
    graph_factor_range: tuple[float, float] | None = None
    """Lowest and highest factor. Training draws the factor of each sentence uniformly between them, and decoding uses their mean.
    Empty: always `graph_factor`."""
    max_vertices: Annotated[int, Ge(2), Le(MAX_TOKENS)] = 1024
    """Largest graph in training and decoding; the number of rows of a learned table of positions."""
    max_transition_length: Annotated[int, Ge(1), Le(MAX_TOKENS)] | None = None
    """Number of next vertices that may follow a vertex, a band for long outputs: transitions then take memory linear in the size of
    the graph. Pairs whose target of m tokens with BOS and EOS
    cannot span the graph in m - 1 steps are left out of training. Empty: all later vertices."""
    length_loss_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.1
    """Weight of the length's cross-entropy in the loss, where lengths are predicted."""
    objective: Literal["sum", "max", "ngram"] = "sum"
    """Objective of training: the probability of a target, summed over all paths (`sum`) or that of its best path (`max`); or the
    expected share of n-grams that graph and target have in common (`ngram`, fuzzy alignment), for networks that `sum` has
    trained (`initial_weights`)."""
    ngram_order: Annotated[int, Ge(1), Le(32)] = 2
    """Length of the n-grams of `objective: ngram`, in tokens."""
    sampled_tokens: Annotated[int, Ge(1), Le(1 << 24)] | None = None
    """Number of random tokens in the sampled softmax of training (Jean et al. 2015): a vertex is normalised over these and the
    tokens of the batch's targets, which is faster with large vocabularies. Empty: over all tokens."""
    glancing: Literal["none", "number-random", "uniform", "fixed", "bernoulli"] = "number-random"
    """Choice of the vertices of the best path whose tokens are shown in training: none; a share of the number that is still wrong;
    a share drawn at random for each sentence; a fixed share; or each one independently with the share that is still wrong."""
    glancing_ratio: Annotated[float, Ge(0), Le(1)] = 0.5
    """The share at the first update."""
    glancing_ratio_end: Annotated[float, Ge(0), Le(1)] = 0.1
    """The share from update `glancing_updates` on; it changes linearly until then."""
    glancing_updates: Annotated[int, Ge(1)] = 200000
    """Updates over which the share changes."""
    pin: Pin | None = None
    """Effect of a shown token on the paths: none; its vertex must be on the path (`row`); or its vertex may write no other token
    (`column`). Empty: `column` by the conventions of the paper, `row` by those of v2, and none with `objective: ngram`."""

    segments: bool = False
    """Train on targets that are spans, with a segment of the graph for each; `pretraining.target: segments` sets it for its
    training."""

    activation: Literal["relu", "gelu", "swish"] = "gelu"
    """Activation of the feed-forward blocks."""
    vertex_inputs: Literal["tokens", "own"] = "tokens"
    """Inputs of the first vertex, of empty vertices and of the last one: the embeddings of BOS, mask and EOS, or vectors of their
    own, as networks of the authors' code have here."""
    logits_bias: bool = False
    """Add a bias to the logits, as networks of the authors' code have here: minus infinity for tokens that they do not know."""

    @property
    def needs_torch(self) -> bool:
        """Whether native code lacks a part of the network."""
        return not self.tied_output

    @property
    def pinning(self) -> Pin:
        """The effect of a shown token on the paths."""
        if self.objective == "ngram":
            return "none"
        return self.pin or ("column" if self.conventions == "paper" else "row")

    @property
    def max_source_tokens(self) -> int:
        """The longest source, in tokens without EOS."""
        return self.max_positions - 1 - self.source_bos

    @property
    def factors(self) -> tuple[float, float]:
        """The lowest and the highest factor in training."""
        return self.graph_factor_range or (self.graph_factor, self.graph_factor)

    @property
    def training_rows(self) -> float:
        """Vertices for each token, with one more pass forward for glancing."""
        vertices = sum(self.factors) / 2 / (TYPICAL_LENGTH if self.graph_size == "fixed" else 1)
        return vertices if self.glancing == "none" else vertices * 4 / 3

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        low, high = self.factors
        if not 0 < low <= high <= MAX_TOKENS:
            expected = f"two factors above 0 and of at most {MAX_TOKENS}, the lower one first"
            yield Problem(("graph_factor_range",), expected, f"[{low}, {high}]")
        if self.segments:
            yield Problem(("segments",), "false, as only pre-training with `target: segments` has true", True)
        if self.objective == "ngram" and self.pin not in (None, "none"):
            yield Problem(("pin",), "none with objective ngram, whose counts it would bias", self.pin)
        if self.objective == "ngram" and self.sampled_tokens:
            expected = "none with objective ngram, which counts with true probabilities"
            yield Problem(("sampled_tokens",), expected, self.sampled_tokens)


@dataclass(frozen=True, kw_only=True)
class DagSearch(SearchConfig):
    """The choice of a path through the graph, or of a text of many paths (section 3.3)."""

    strategy: Literal["greedy", "lookahead", "viterbi", "joint-viterbi", "beam", "sample"] = "lookahead"
    """The most likely transition; the most likely transition and token together; the best path by transitions, or by transitions
    and tokens; beam search over texts; or nucleus sampling."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence (beam and sample only)."""
    token_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 1.0
    """Weight of token scores relative to transitions (beta)."""
    length_penalty: Annotated[float, Ge(0), Le(MAX_EXPONENT)] = 1.0
    """Exponent of the length that scores are divided by (beam: alpha; Viterbi: b)."""
    length_convention: Literal["v2", "paper"] = "v2"
    """Length of an output in a beam: its tokens and EOS, as in the authors' code, or BOS as well, as in figure 11 of the paper."""
    graph_factor: Annotated[float, Gt(0), Le(MAX_TOKENS)] | None = None
    """Factor of the size of graphs, within `graph_factor_range`. Empty: the mean of this range."""
    length_candidates: Annotated[int, Ge(1), Le(256)] = 1
    """Number of predicted target lengths whose graphs are searched (`graph_size: predicted`); the output with the best score,
    divided by a power of its length (`length_penalty`), is chosen."""
    beam_size: Annotated[int, Ge(1), Le(MAX_PREFIXES)] = 200
    """Number of prefixes that are extended at each vertex (beam only)."""
    beams_per_length: Annotated[int, Ge(1), Le(MAX_PREFIXES)] = 10
    """Largest number of these prefixes that have the same length (beam only)."""
    candidates: Annotated[int, Ge(1), Le(MAX_CANDIDATES)] = 5
    """Number of best pairs of next vertex and token that are followed from each vertex (beam and sample only)."""
    top_p: Annotated[float, Gt(0), Le(1)] = 0.9
    """Total probability of the candidates that are followed (beam) or drawn from (sample)."""
    ngram_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight of the n-gram model's natural log-probability (gamma; beam only). The paper's 0.1 on decimal logarithms is 0.043."""
    sampling: Sampling = field(default_factory=Sampling)
    """Options of the strategy `sample`."""
    conventions: Literal["paper", "v2"] = "paper"
    """Distributions that the temperature of the strategy `sample` acts on: those of transitions and of tokens (the paper's equation
    9), or of transitions alone, as in the authors' later code."""
    allow_unknown: bool = False
    """Whether an output may contain the unknown token."""
    shortlist: Shortlist | None = None
    """A lexical shortlist that tokens are chosen from. Empty: all tokens."""
    deduplicate: bool = True
    """Write a token that comes twice in a row once, as the authors' code does, with beam by an option that its examples set (not
    `sample`, which writes what is drawn; `no_consecutive_repeat: 1` avoids such draws, as their later code does). The paper's
    algorithms write it twice."""
    no_repeat_ngram: Annotated[int, Ge(0), Le(64)] = 0
    """Size of the n-grams that may not occur twice in an output (lookahead, beam and sample only); 0: all may."""
    no_consecutive_repeat: Annotated[int, Ge(0), Le(64)] = 0
    """Size up to which n-grams may not occur twice in direct succession (lookahead, beam and sample only); 0: all may."""
    engine: Literal["auto", "torch"] = "auto"
    """Engine that decodes: native code on a CPU and torch elsewhere (`auto`), or torch."""
    precision: Precision = "float32"
    """Arithmetic of products with weights. On a CPU bfloat16 applies to layers, which is faster with AVX512-BF16 and slower
    without; int8 applies to the ranking of tokens as well. Attention and transitions stay in float32. Torch, which decodes on a
    GPU and draws samples, has float32, and on a GPU float16 and bfloat16, with transitions in float32."""

    @property
    def penalises_length(self) -> bool:
        """Whether `length_penalty` changes the result."""
        return self.divides_by_length or self.length_candidates > 1

    @property
    def writes_repeats_once(self) -> bool:
        """Whether outputs are written without adjacent equal tokens."""
        return self.deduplicate and self.strategy != "sample"

    @property
    def divides_by_length(self) -> bool:
        """Whether the search of one graph divides scores by a power of the length."""
        return self.strategy in ("viterbi", "joint-viterbi", "beam")

    @property
    def needs_ngram(self) -> bool:
        """Whether the search reads an n-gram model."""
        return self.ngram_weight > 0

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens."""
        return self.shortlist is not None

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        hypotheses = self.strategy if self.strategy in ("beam", "sample") else "one"
        return Workload(hypotheses, self.engine, self.precision, self.shortlist)

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        if self.strategy == "beam" and self.n_best > self.beam_size:
            yield Problem(("n_best",), f"at most {self.beam_size}, the size of the beam", self.n_best)
        elif self.strategy not in ("beam", "sample") and self.n_best > 1:
            yield Problem(("n_best",), f"1 with {self.strategy}", self.n_best)
        yield from engine_precision(self.engine, self.precision)
        if self.precision != "float32" and self.strategy == "sample":
            yield Problem(("precision",), "float32 for sampling", self.precision)
        if self.ngram_weight and self.strategy != "beam":
            yield Problem(("ngram_weight",), f"0 with {self.strategy}", self.ngram_weight)
        elif self.ngram_weight and parts.ngram is False:
            yield Problem(("ngram_weight",), "0 for a system without an n-gram model (`ngram: {}`)", self.ngram_weight)
        yield from self.shortlist_problems(parts)
        if network is not None:
            yield from self._graph_problems(cast(DagConfig, network))

    def _graph_problems(self, network: DagConfig) -> Iterator[Problem]:
        low, high = network.factors
        if self.graph_factor is not None and not low <= self.graph_factor <= high:
            yield Problem(("graph_factor",), f"{low} to {high}, the factors of training", self.graph_factor)
        if self.strategy == "beam" and self.beam_size * self.candidates * network.max_vertices > MAX_CELLS:
            most = MAX_CELLS // (self.candidates * network.max_vertices)
            expected = f"at most {most} with {self.candidates} candidates of {network.max_vertices} vertices"
            yield Problem(("beam_size",), expected, self.beam_size)
        if self.length_candidates > 1 and (network.graph_size != "predicted" or self.strategy == "sample"):
            expected = "1 unless graph_size is predicted, and for samples"
            yield Problem(("length_candidates",), expected, self.length_candidates)
        elif self.length_candidates > MAX_LENGTH_CANDIDATES:
            yield Problem(("length_candidates",), f"at most {MAX_LENGTH_CANDIDATES}", self.length_candidates)


NETWORK, SEARCH = DagConfig, DagSearch
