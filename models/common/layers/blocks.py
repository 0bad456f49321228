"""Feed-forward blocks, residual branches, both kinds of Transformer layer (Vaswani et al. 2017, section 3.1), and their stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.common.layers.attention import Cache, CrossAttention, Memory, SelfAttention
from models.common.layers.dropout import Dropout
from models.common.layers.linear import Linear

Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "swish"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "gelu": F.gelu, "swish": F.silu}


class Shape(NamedTuple):
    """Sizes and options that all layers of a network share."""

    width: int
    inner: int
    """Number of inner units of a feed-forward block."""
    heads: int
    dropout: float
    """Dropout of residual branches."""
    attention_dropout: float
    """Dropout of attention weights."""
    feed_forward_dropout: float
    """Dropout of the inner units of a feed-forward block."""
    norm: Norm
    activation: Activation = "relu"
    """Activation of a feed-forward block."""


class FeedForward(nn.Module):
    """Two linear maps with an activation and dropout between them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.widen = Linear(shape.width, shape.inner)
        self.narrow = Linear(shape.inner, shape.width)
        self.dropout = Dropout(shape.feed_forward_dropout)
        self.activation = ACTIVATIONS[shape.activation]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to x [...,D]."""
        output: Tensor = self.narrow(self.dropout(self.activation(self.widen(x))))
        return output


class Residual(nn.Module):
    """A residual branch: x + dropout(block(norm(x))), or norm(x + dropout(block(x)))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.first = shape.norm == "pre"
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)

    def forward(self, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the branch of `block` to x [...,D]."""
        branch: Tensor = self.dropout(block(self.norm(x) if self.first else x))
        output: Tensor = x + branch if self.first else self.norm(x + branch)
        return output


class EncoderLayer(nn.Module):
    """An encoder layer: self-attention, then a feed-forward block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.width, shape.heads, shape.attention_dropout)
        self.feed_forward = FeedForward(shape)
        self.attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Apply the layer to x [B,S,D] with the mask [B,1,1,S]."""
        x = self.attention_residual(x, lambda y: self.attention(y, mask))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """A decoder layer: self-attention over the target, cross-attention over the source, then a feed-forward block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.width, shape.heads, shape.attention_dropout)
        self.cross_attention = CrossAttention(shape.width, shape.heads, shape.attention_dropout)
        self.feed_forward = FeedForward(shape)
        self.attention_residual = Residual(shape)
        self.cross_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def forward(
        self, x: Tensor, memory: Memory, mask: Tensor | None = None, *, causal: bool = False, cache: Cache | None = None
    ) -> Tensor:
        """Apply the layer to x [B,T,D]; `mask`, `causal` and `cache` are those of self-attention over the target."""
        x = self.attention_residual(x, lambda y: self.attention(y, mask, causal=causal, cache=cache))
        x = self.cross_attention_residual(x, lambda y: self.cross_attention(y, memory))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


def _last_norm(shape: Shape) -> nn.Module:
    """Return the norm after the last layer, which pre-norm stacks need because their residual stream is not normalised."""
    return nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """A stack of layers that attend to the source in both directions."""

    def __init__(self, layers: int, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(layers))
        self.norm = _last_norm(shape)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Encode embedded sources [B,S,D] with the mask [B,1,1,S] (None: nothing is padded)."""
        for layer in self.layers:
            x = layer(x, mask)
        output: Tensor = self.norm(x)
        return output


class Decoder(nn.Module):
    """A stack of layers that attend to the target, as far as a mask allows, and to the source."""

    def __init__(self, layers: int, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(layers))
        self.norm = _last_norm(shape)

    def memories(self, encoded: Tensor, mask: Tensor | None) -> list[Memory]:
        """Return the keys and values for the cross-attention of each layer."""
        return [layer.cross_attention.memory(encoded, mask) for layer in self._layers]

    def forward(
        self,
        x: Tensor,
        memories: Sequence[Memory],
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> Tensor:
        """Return the states [B,T,D] of target slots x [B,T,D]. With `caches`, one per layer, x holds only the new slots."""
        for index, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
            x = layer(x, memory, mask, causal=causal, cache=None if caches is None else caches[index])
        output: Tensor = self.norm(x)
        return output

    @property
    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
