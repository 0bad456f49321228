"""Sizes of a Transformer encoder-decoder, which all families share."""

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
class NetworkConfig:
    """A Transformer encoder-decoder (Vaswani et al. 2017)."""

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
