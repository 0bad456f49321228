"""The encoder stack and the decoder stack."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from models.common.layers.attention import Cache, Memory
from models.common.layers.blocks import DecoderLayer, EncoderLayer, Shape


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
