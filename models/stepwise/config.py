"""Sizes, generation order and searches of the `stepwise` family (methods: Zhang et al. 2020; Imamura & Sumita 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt, MultipleOf

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "feed_forward": 256, "heads": 4},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
    "big": {"encoder_layers": 6, "decoder_layers": 6, "width": 1024, "feed_forward": 4096, "heads": 16},
}
"""`size` fills in whatever of these a config does not state. `tiny` is Wu et al. 2021's for Multi30k."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """How target tokens are laid out in steps (one row of the family's table)."""

    arrangement: Literal["l2r", "r2l"] = "l2r"
    """Which token comes first: the leftmost or the rightmost."""
    step_size: int = 1
    """Tokens emitted together by one decoder call (z)."""


ORDERS: dict[str, Order] = {
    "autoregressive": Order(),
    "right-to-left": Order(arrangement="r2l"),
}


@dataclass(frozen=True, kw_only=True)
class StepwiseConfig:
    """A Transformer encoder-decoder that writes its target step by step."""

    order: Literal["autoregressive", "right-to-left"] = "autoregressive"
    """Name of the order in which target tokens are written."""
    size: Literal["tiny", "base", "big"] = "tiny"
    """Preset that fills in the five sizes below where they are not stated."""
    encoder_layers: Annotated[int, Ge(1)] = 4
    """Layers of the encoder."""
    decoder_layers: Annotated[int, Ge(1)] = 4
    """Layers of the decoder."""
    width: Annotated[int, Ge(2), MultipleOf(2)] = 128
    """Width of the residual stream (units)."""
    feed_forward: Annotated[int, Ge(1)] = 256
    """Inner width of the feed-forward blocks (units)."""
    heads: Annotated[int, Ge(1)] = 4
    """Attention heads; must divide `width`."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Probability of dropping a unit of embeddings and residual branches."""
    attention_dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    """Probability of dropping an attention weight; empty: as `dropout`."""
    feed_forward_dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    """Probability of dropping an inner unit of a feed-forward block; empty: as `dropout`."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before each block (with one more after the last) or after its residual sum."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position code; a learned table holds `max_positions` rows and caps lengths."""
    max_positions: Annotated[int, Ge(2)] = 1024
    """Longest source or target in tokens, EOS included, that is trained on or decoded."""


@dataclass(frozen=True, kw_only=True)
class StepwiseSearch:
    """A decoding strategy with its options."""

    strategy: Literal["greedy", "beam"] = "greedy"
    """Best token at each step, or beam search."""
    beam_size: Annotated[int, Ge(1)] = 5
    """Hypotheses kept alive per sentence (beam only)."""
    length_penalty: Annotated[float, Ge(0)] = 1.0
    """Exponent alpha of the length normalisation (beam only); 0 ranks by plain log-probability."""
    length_penalty_form: Literal["power", "gnmt"] = "power"
    """score / tokens^alpha, or score / ((5 + tokens) / 6)^alpha (Wu et al. 2016); tokens count EOS."""
    n_best: Annotated[int, Ge(1)] = 1
    """Hypotheses returned per sentence (beam only), at most `beam_size`."""
    max_extra_tokens: Annotated[int, Ge(0)] = 50
    """Longest output in tokens, EOS included: source tokens with EOS plus this many."""
    allow_unknown: bool = False
    """May the output hold the unknown token?"""

    @property
    def name(self) -> str:
        """How this search is called in steps and tables."""
        return "greedy" if self.strategy == "greedy" else f"beam{self.beam_size}"
