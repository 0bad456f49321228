"""The encoder stack and the decoder stack."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from models.common.layers.attention import Cache, Memory
from models.common.layers.blocks import DecoderLayer, EncoderLayer, Shape


def _last_norm(shape: Shape) -> nn.Module:
    """Pre-norm leaves the residual stream unnormalised: one more norm closes the stack."""
    return nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """Layers that read the source in both directions."""

    def __init__(self, layers: int, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(layers))
        self.norm = _last_norm(shape)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Embedded sources [B,S,D] and mask [B,1,1,S] (None: nothing padded) to encoded sources [B,S,D]."""
        for layer in self.layers:
            x = layer(x, mask)
        output: Tensor = self.norm(x)
        return output


class Decoder(nn.Module):
    """Layers that read the target as far as a mask lets them, and the source."""

    def __init__(self, layers: int, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(layers))
        self.norm = _last_norm(shape)

    def memories(self, encoded: Tensor, mask: Tensor | None) -> list[Memory]:
        """What each layer's cross-attention reads."""
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
        """Embedded target slots [B,T,D] to [B,T,D]. With `caches` (one a layer) x holds only the new slots."""
        for index, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
            x = layer(x, memory, mask, causal=causal, cache=None if caches is None else caches[index])
        output: Tensor = self.norm(x)
        return output

    @property
    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
