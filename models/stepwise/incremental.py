"""The decoder one step at a time, over keys and values that it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from models.stepwise.arrangement import step_mask
from models.stepwise.model import StepwiseModel

GROWTH = 16
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
    """Decoding of a batch: at first one row for each sentence, then as many as `select` takes, side by side; rows of a sentence
    share what is read of its source."""

    def __init__(self, model: StepwiseModel, source: Tensor, source_lengths: Tensor, listed: Tensor | None = None) -> None:
        """Sources [B,S] with EOS. `listed` [B,V]: may a word be written? None: all may."""
        self.model, self.listed = model, listed
        self.memories = model.encode(source, source_lengths)
        self.slots = 0
        config = model.config
        shape = (source.size(0), config.decoder_layers, 2, config.heads, 0, config.width // config.heads)
        self.cache = torch.empty(shape, device=source.device)
        self._spare = self.cache
        """Where `select` moves the rows that remain: taking turns with `cache` saves fresh memory at every step."""
        self.codes = self.cache
        """[slots,D] codes of the slots that there is room for"""
        self.layers = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]

    def step(self, tokens: Tensor | None) -> Tensor:
        """The z tokens [R,z] written in the step before (None at first) to logits [R,z,V] of the next z slots, minus infinity for
        words that are not listed.

        With the mask `block` none is needed: all slots so far are visible to every slot of a new step.
        """
        order, size = self.model.order, self.model.order.step_size
        end = self.slots + size
        self._reserve(end)
        if tokens is None:
            tokens = torch.empty((self.cache.size(0), 0), dtype=torch.int64, device=self.cache.device)
        x = self.model.embed_slots(tokens, self.codes[self.slots : end])
        mask = None if order.mask == "block" else step_mask(order, end, x.device)[self.slots :]
        states = self.model.decoder(x, self.memories, mask, caches=self.layers)
        self.slots = end
        logits = self.model.logits(states)
        if self.listed is None:
            return logits
        mine = self.listed.repeat_interleave(len(logits) // len(self.listed), 0)
        return logits.masked_fill(~mine[:, None], -torch.inf)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with these rows, in this order, equally many for each sentence; `sentences`, where given, are those that remain."""
        if len(rows) > len(self._spare):
            self._spare = self.cache.new_empty((len(rows), *self.cache.shape[1:]))
        torch.index_select(self.cache, 0, rows, out=self._spare[: len(rows)])
        self.cache, self._spare = self._spare[: len(rows)], self.cache
        if sentences is not None:
            self.memories = [memory.select(sentences) for memory in self.memories]
            self.listed = None if self.listed is None else self.listed[sentences]

    def _reserve(self, slots: int) -> None:
        old = self.cache
        if slots > old.size(4):
            self.cache = old.new_empty((*old.shape[:4], min(slots + GROWTH, self.model.max_slots), old.size(5)))
            self.cache[:, :, :, :, : self.slots] = old[:, :, :, :, : self.slots]
            self._spare = torch.empty_like(self.cache)
            self.codes = self.model.slot_codes(self.cache.size(4))
