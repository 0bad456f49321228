"""Sizes, graph, objective and searches of the `dag` family (Huang et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from models.common.limits import MOST, MOST_LINKS
from models.common.network import NetworkConfig

Pin = Literal["none", "row", "column"]


@dataclass(frozen=True, kw_only=True)
class DagConfig(NetworkConfig):
    """A Transformer whose decoder writes all vertices of a graph at once, and with what probability one follows another."""

    conventions: Literal["paper", "v2"] = "paper"
    """Where the paper's code and its successor differ, graph size and pinning: as the paper's results were made, or as v2 does."""
    graph_size: Literal["source", "predicted", "fixed"] = "source"
    """What a graph's size follows from: the length of the source; the target's, which the network predicts; or nothing."""
    graph_factor: Annotated[float, Gt(0)] = 8.0
    """Vertices per token (with `fixed`: vertices), between the two ends."""
    graph_factor_range: tuple[float, float] | None = None
    """Training draws the factor of each sentence evenly from this range, lowest and highest; decoding takes the middle. Empty:
    always `graph_factor`."""
    max_vertices: Annotated[int, Ge(2)] = 1024
    """Largest graph that is trained on or decoded; a learned table of positions has as many rows."""
    length_loss: Annotated[float, Ge(0)] = 0.1
    """Weight of the length's cross-entropy in the loss, where lengths are predicted."""
    objective: Literal["sum", "max"] = "sum"
    """The probability of a target: summed over all paths, or that of the best path."""
    sampled_words: Annotated[int, Ge(1)] | None = None
    """In training a vertex's words are normalised over those of the batch's targets and so many others, drawn evenly (Jean et al.
    2015), which is quicker with large vocabularies. Empty: over all."""
    glancing: Literal["none", "number-random", "uniform", "fixed", "bernoulli"] = "number-random"
    """Which vertices of the best path are shown their tokens in training: none; a share of the number that is still wrong; a share
    drawn anew for each sentence; a fixed share; or each by itself with the share that is still wrong."""
    glancing_ratio: Annotated[float, Ge(0), Le(1)] = 0.5
    """The share at first."""
    glancing_ratio_end: Annotated[float, Ge(0), Le(1)] = 0.1
    """The share from update `glancing_updates` on; it changes evenly in between."""
    glancing_updates: Annotated[int, Ge(1)] = 200000
    """Updates over which the share changes."""
    pin: Pin | None = None
    """What a shown token does to the paths: nothing; it must be written at its vertex (`row`); or its vertex may write no other
    (`column`). Empty: `column` by the conventions of the paper, `row` by those of v2."""

    @property
    def pinning(self) -> Pin:
        return self.pin or ("column" if self.conventions == "paper" else "row")

    @property
    def factors(self) -> tuple[float, float]:
        """The lowest and the highest factor in training."""
        return self.graph_factor_range or (self.graph_factor, self.graph_factor)


@dataclass(frozen=True, kw_only=True)
class DagSearch:
    """How a path through the graph, or a text of many paths, is chosen (section 3.4)."""

    strategy: Literal["greedy", "lookahead", "viterbi", "joint-viterbi", "beam", "sample"] = "lookahead"
    """The likeliest transition; the likeliest transition and token together; the best path by transitions, or by transitions and
    tokens; beam search over texts; or nucleus sampling."""
    token_weight: Annotated[float, Ge(0)] = 1.0
    """Weight of token scores beside transitions (beta)."""
    length_penalty: Annotated[float, Ge(0)] = 1.0
    """Exponent of the length that scores are divided by (beam: alpha; Viterbi: b)."""
    beam_size: Annotated[int, Ge(1)] = 200
    """Prefixes that go on from each vertex (beam only)."""
    beams_per_length: Annotated[int, Ge(1)] = 10
    """Of these, at most so many of one length (beam only)."""
    candidates: Annotated[int, Ge(1)] = 5
    """Best pairs of next vertex and token that are followed from each vertex (beam and sample only)."""
    top_p: Annotated[float, Gt(0), Le(1)] = 0.9
    """Probability of the candidates after which no more are followed (beam), or drawn from (sample)."""
    ngram_weight: Annotated[float, Ge(0)] = 0.0
    """Weight of the n-gram model's natural log-probability (gamma; beam only). The paper's 0.1 on decimal logarithms is 0.043."""
    n_best: Annotated[int, Ge(1)] = 1
    """Hypotheses returned per sentence (beam and sample only)."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """What transition scores are divided by before sampling."""
    seed: Annotated[int, Ge(0)] = 1
    """Seed of sampling; a sentence's samples depend on it and on the sentence alone."""
    allow_unknown: bool = False
    """May the output hold the unknown token?"""
    shortlist_words: Annotated[int, Ge(8), Le(MOST)] | None = None
    """Words are chosen, and their probabilities normalised, among so many common ones and those that words of the source are
    linked to (a lexical shortlist; Jean et al. 2015, section 3.3): a fraction of the vocabulary, which is quicker to rank. Both
    are counted, by word alignment, in what the system learns from. Empty: among all words."""
    shortlist_links: Annotated[int, Ge(0), Le(MOST_LINKS)] = 16
    """Words that each word of the source brings to the list, with one vocabulary for both sides itself first."""
    deduplicate: bool = True
    """Write a token that comes twice in a row once (the authors' code always does, with all searches but beam)."""
    no_repeat_ngram: Annotated[int, Ge(0)] = 0
    """No n-gram of so many tokens comes twice (lookahead, beam and sample only); 0: they may."""
    no_consecutive_repeat: Annotated[int, Ge(0)] = 0
    """No n-gram of up to so many tokens comes twice side by side (lookahead, beam and sample only); 0: they may."""
    engine: Literal["auto", "torch"] = "auto"
    """What decodes: native code where the system is on a CPU, else torch; or torch anywhere."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """Arithmetic of products with weights on a CPU: bf16, those of layers, quicker where there are instructions for it
    (AVX512-BF16) and slower elsewhere; int8, those that rank words, too. Attention and transitions stay fp32. A search through
    torch, as on a GPU and when sampling, knows fp32 alone."""

    @property
    def penalises_length(self) -> bool:
        """Does `length_penalty` change what is found?"""
        return self.strategy in ("viterbi", "joint-viterbi", "beam")

    @property
    def name(self) -> str:
        """How this search is called in steps and tables."""
        name: str = self.strategy
        if self.strategy == "sample" and self.temperature != 1:
            name = f"sample-t{self.temperature:g}"
        elif self.strategy == "beam":
            name = f"beam{self.beam_size}-lm" if self.ngram_weight else f"beam{self.beam_size}"
        if self.engine != "auto":
            name = f"{name}-{self.engine}"
        if self.precision != "fp32":
            name = f"{name}-{self.precision}"
        return name if self.shortlist_words is None else f"{name}-list{self.shortlist_words}x{self.shortlist_links}"
