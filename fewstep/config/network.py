"""Sizes of a Transformer encoder-decoder, which all families share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from fewstep.config.bounds import MAX_TOKENS, Ge, Le, Lt, MultipleOf
from fewstep.config.problems import Problem

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "feed_forward": 256, "heads": 4},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
    "big": {"encoder_layers": 6, "decoder_layers": 6, "width": 1024, "feed_forward": 4096, "heads": 16},
}
"""Values of the five sizes that a config does not state. `tiny` is the model of Wu et al. 2021 for Multi30k."""


MAX_LAYERS = 256
"""Most layers of a stack."""
MAX_WIDTH = 1 << 16
"""Most units of a layer."""
TYPICAL_LENGTH = 25
"""Tokens of a target, where an estimate needs a length."""


class Sizes(NamedTuple):
    """Vocabulary sizes of a network. `joint`: source and target share one vocabulary and one embedding."""

    source: int
    target: int
    joint: bool


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """A Transformer encoder-decoder (Vaswani et al. 2017)."""

    size: Literal["tiny", "base", "big"] = "tiny"
    """Preset of the next five keys, for those that are not stated."""
    encoder_layers: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 4
    """Number of layers of the encoder."""
    decoder_layers: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 4
    """Number of layers of the decoder."""
    width: Annotated[int, Ge(2), Le(MAX_WIDTH), MultipleOf(2)] = 128
    """Width of the residual stream (units)."""
    feed_forward: Annotated[int, Ge(1), Le(MAX_WIDTH)] = 256
    """Inner width of the feed-forward blocks (units)."""
    heads: Annotated[int, Ge(1), Le(MAX_WIDTH)] = 4
    """Number of attention heads, a divisor of `width`."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Probability of dropping a unit of embeddings and residual branches."""
    attention_dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    """Probability of dropping an attention weight; empty: the same as `dropout`, unlike fairseq, whose default is 0."""
    feed_forward_dropout: Annotated[float, Ge(0), Lt(1)] | None = None
    """Probability of dropping an inner unit of a feed-forward block; empty: the same as `dropout`, unlike fairseq, whose default
    is 0."""
    norm: Literal["pre", "post"] = "pre"
    """Placement of layer normalisation: before each block, with one more after the last layer, or after each residual sum."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position code. A learned table has `max_positions` rows."""
    max_positions: Annotated[int, Ge(2), Le(MAX_TOKENS)] = 1024
    """Longest source and longest target in tokens, EOS included, in training and decoding."""

    activation: Literal["relu", "gelu", "swish"] = "relu"
    """Activation of the feed-forward blocks."""
    sinusoids: Literal["tensor2tensor", "paper"] = "tensor2tensor"
    """Rates of sinusoidal codes of width D, for j = 0, 1, ...: 10000^(-j / (D/2 - 1)) as in tensor2tensor and fairseq, or
    10000^(-j / (D/2)) as in the paper and in Marian."""
    scale_embeddings: bool = True
    """Multiply embeddings of tokens by the square root of `width`."""
    position_offset: Annotated[int, Ge(0), Le(MAX_TOKENS)] = 0
    """Position of the first token in sinusoidal codes. fairseq counts from 2."""

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        if self.width % self.heads:
            yield Problem(("heads",), f"a divisor of width {self.width}", self.heads)
        if self.position_offset and self.positions == "learned":
            yield Problem(("position_offset",), "0 with learned positions", self.position_offset)

    @property
    def needs_torch(self) -> bool:
        """Whether native code and CTranslate2 lack a part of the network."""
        return False

    @property
    def is_analysed(self) -> bool:
        """Whether the analysis of its family, if there is one, has a meaning for it."""
        return True

    @property
    def training_rows(self) -> float:
        """Decoder rows that training computes, forward and backward, for each token of a target. A pass forward counts 1/3."""
        return 1.0

    def fewest_weights(self, sizes: Sizes) -> int:
        """Return the number of weights in the matrices of both stacks and in the tables: a network has at least these."""
        block = 2 * self.width * self.feed_forward
        stacks = self.encoder_layers * (4 * self.width**2 + block) + self.decoder_layers * (8 * self.width**2 + block)
        rows = sizes.target + (0 if sizes.joint else sizes.source) + (self.max_positions if self.positions == "learned" else 0)
        return stacks + self.width * rows
