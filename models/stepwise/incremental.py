"""The decoder one step at a time, over keys and values that it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from models.stepwise.arrangement import step_mask
from models.stepwise.model import StepwiseModel

GROWTH = 8
"""Slots by which the room for keys and values grows."""


class _LayerCache:
    """The view of one layer on the shared cache."""

    def __init__(self, state: Incremental, layer: int) -> None:
        self.state, self.layer = state, layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [R,H,z,D/H] of the new slots; return those of all slots so far."""
        start = self.state.slots
        end = start + keys.size(2)
        pair = self.state.cache[:, self.layer]
        pair[:, 0, :, start:end] = keys
        pair[:, 1, :, start:end] = values
        return pair[:, 0, :, :end], pair[:, 1, :, :end]


class Incremental:
    """Decoding of a batch: `beams` rows for each sentence, side by side; rows of a sentence share what is read of its source."""

    def __init__(self, model: StepwiseModel, source: Tensor, source_lengths: Tensor, beams: int) -> None:
        """Sources [B,S] with EOS."""
        self.model = model
        self.memories = model.encode(source, source_lengths)
        self.slots = 0
        config = model.config
        shape = (source.size(0) * beams, config.decoder_layers, 2, config.heads, 0, config.width // config.heads)
        self.cache = torch.empty(shape, device=source.device)
        self._spare = self.cache
        """Where `select` moves the rows that remain: taking turns with `cache` saves fresh memory at every step."""
        self.layers = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]

    def step(self, tokens: Tensor | None) -> Tensor:
        """The z tokens [R,z] written in the step before (None at first) to logits [R,z,V] of the next z slots.

        With the mask `block` none is needed: all slots so far are visible to every slot of a new step.
        """
        order, size = self.model.order, self.model.order.step_size
        end = self.slots + size
        self._reserve(end)
        x = self.model.embed_slots(tokens, self.slots, size, self.cache.size(0))
        mask = None if order.mask == "block" else step_mask(order, end, x.device)[self.slots :]
        states = self.model.decoder(x, self.memories, mask, caches=self.layers)
        self.slots = end
        return self.model.logits(states)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with these rows, in this order; `sentences`, where given, are those that remain."""
        torch.index_select(self.cache, 0, rows, out=self._spare[: len(rows)])
        self.cache, self._spare = self._spare[: len(rows)], self.cache
        if sentences is not None:
            self.memories = [memory.select(sentences) for memory in self.memories]

    def _reserve(self, slots: int) -> None:
        old = self.cache
        if slots > old.size(4):
            self.cache = old.new_empty((*old.shape[:4], slots + GROWTH, old.size(5)))
            self.cache[:, :, :, :, : self.slots] = old[:, :, :, :, : self.slots]
            self._spare = torch.empty_like(self.cache)
