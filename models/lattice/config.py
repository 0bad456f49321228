"""Sizes, training and searches of the `lattice` family (Deng and Rush 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from models.common.network import NetworkConfig

Normalizer = Literal["full", "union", "local", "selfnorm"]


@dataclass(frozen=True, kw_only=True)
class LatticeModelConfig(NetworkConfig):
    """A Transformer whose decoder, the scorer, knows one or two words before the one that it predicts, and the source."""

    segment_length: Literal[1, 2] = 2
    """Slots that see one another in training: pairs, drawn anew for each sentence, so that half of the slots learn from the word
    before them and half from the two before them; or each slot itself alone. Decoding always knows one word."""
    word_dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the slots that in training learn from the source alone, with BOS in the place of the word before: what searches with
    `prune` rest on (0.1 to 0.3)."""
    normalizer_penalty: Annotated[float, Ge(0)] = 0.0
    """Weight c of c (log Z)^2 in the loss of each token, Z the sum over the vocabulary of exp(logit): what searches with
    `normalizer: selfnorm` rest on (0.01 to 0.1)."""


@dataclass(frozen=True, kw_only=True)
class LatticeSearch:
    """How wide a lattice is, how its edges are scored, and what is sought in it."""

    strategy: Literal["viterbi", "lookup"] = "viterbi"
    """The best path through the lattice; or the most frequent word of each slot by the counts alone, without the network."""
    candidates: Annotated[int, Ge(1)] = 64
    """Words of each slot (K)."""
    prune: Annotated[float, Ge(0)] | None = None
    """Candidates that are, before the word before them is known, this many nats less likely than the best of their slot, by the
    network's and the counts' probabilities multiplied, are left out of the lattice; for networks trained with `word_dropout`."""
    length_window: Annotated[int, Ge(0)] = 3
    """Tokens that an output may be shorter or longer than the length line predicts."""
    normalizer: Normalizer = "full"
    """What the scores of a row sum to 1 over: the whole vocabulary; the candidates of all slots of the sentence and EOS; those of
    the next slot and EOS; or nothing, for networks trained with `normalizer_penalty`."""
    count_weight: Annotated[float, Ge(0)] = 0.0
    """Weight of the counts' log-probability of a word beside the network's."""
    token_bonus: float = 0.0
    """Added to the score for every word: what makes up for sums of log-probabilities being in favour of the short."""
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """Arithmetic of products on a CPU; sums, and the normalisers `full` and `union`, stay fp32. bf16 is quicker where there are
    instructions for it (AVX512-BF16), slower elsewhere. A search through torch, as on a GPU, knows fp32 alone."""
    n_best: Annotated[int, Ge(1)] = 1
    """Hypotheses returned per sentence (viterbi only)."""
    confidences: bool = False
    """Also tell of each word of the best path by how much, in nats, it beats the best path without it?"""

    @property
    def name(self) -> str:
        """How this search is called in steps and tables."""
        if self.strategy == "lookup":
            return "lookup"
        parts = [f"viterbi{self.candidates}"]
        parts += [f"prune{self.prune:g}"] if self.prune is not None else []
        parts += [self.normalizer] if self.normalizer != "full" else []
        parts += [f"window{self.length_window}"] if self.length_window != 3 else []
        parts += [f"counts{self.count_weight:g}"] if self.count_weight else []
        parts += [f"bonus{self.token_bonus:g}"] if self.token_bonus else []
        parts += [self.precision] if self.precision != "fp32" else []
        return "-".join(parts)
