"""Incremental decoding, one step at a time, with cached keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from models.stepwise.arrangement import step_mask
from models.stepwise.ensemble import Ensemble, mean, networks
from models.stepwise.model import StepwiseModel

GROWTH = 16
"""Number of slots by which the cache grows."""


class _LayerCache:
    """The part of the shared cache that belongs to one layer."""

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
    """The decoding state of a batch.

    There is one row per sentence at first, then those that `select` keeps, grouped by sentence. Rows of a sentence share the keys
    and values of its source.
    """

    def __init__(self, model: StepwiseModel, source: Tensor, source_lengths: Tensor, allowed: Tensor | None = None) -> None:
        """Encode sources [B,S] with EOS. `allowed` [B,V] is a shortlist (None: all tokens)."""
        self.model, self.allowed = model, allowed
        self.memories = model.encode(source, source_lengths)
        self.slots = 0
        config = model.config
        shape = (source.size(0), config.decoder_layers, 2, config.heads, 0, config.width // config.heads)
        self.cache = torch.empty(shape, dtype=model.target_embedding.weight.dtype, device=source.device)
        self._spare = self.cache
        """The buffer to which `select` moves the remaining rows; alternating with `cache` avoids an allocation per step."""
        self.codes = self.cache
        """The codes [slots,D] of the slots for which the cache has space."""
        self.layers = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]
        self.front = 0
        """The entries of the cache before those of the first slot."""
        if model.begin is not None:
            self._begin(model.begin_inputs(source.size(0)))

    def _begin(self, inputs: Tensor) -> None:
        """Write the keys and values of the inputs [R,N,D] in front of the first slot."""
        self.front = inputs.size(1)
        self._reserve(self.front)
        self.model.decoder(inputs, self.memories, None, caches=self.layers)
        self.slots = self.front

    def step(self, tokens: Tensor | None) -> Tensor:
        """Return logits [R,z,V] of the next z slots, minus infinity for tokens that are not allowed.

        `tokens` [R,z] were written in the previous step (None at first). The mask `block` needs no tensor: all slots so far are
        visible to every slot of a new step.
        """
        order, size = self.model.order, self.model.order.step_size
        end = self.slots + size
        self._reserve(end)
        if tokens is None:
            tokens = torch.empty((self.cache.size(0), 0), dtype=torch.int64, device=self.cache.device)
        x = self.model.embed_slots(tokens, self.codes[self.slots - self.front : end - self.front])
        mask = None if order.mask == "block" else step_mask(order, end, x.device)[self.slots :]
        states = self.model.decoder(x, self.memories, mask, caches=self.layers)
        self.slots = end
        logits = self.model.logits(states).float()
        if self.allowed is None:
            return logits
        allowed = self.allowed.repeat_interleave(len(logits) // len(self.allowed), 0)
        return logits.masked_fill(~allowed[:, None], -torch.inf)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with these rows, in this order, the same number for each sentence; `sentences` are those that remain (None:
        all)."""
        if len(rows) > len(self._spare):
            self._spare = self.cache.new_empty((len(rows), *self.cache.shape[1:]))
        torch.index_select(self.cache, 0, rows, out=self._spare[: len(rows)])
        self.cache, self._spare = self._spare[: len(rows)], self.cache
        if sentences is not None:
            self.memories = [memory.select(sentences) for memory in self.memories]
            self.allowed = None if self.allowed is None else self.allowed[sentences]

    def _reserve(self, slots: int) -> None:
        old = self.cache
        if slots > old.size(4):
            self.cache = old.new_empty((*old.shape[:4], min(slots + GROWTH, self.front + self.model.max_slots), old.size(5)))
            self.cache[:, :, :, :, : self.slots] = old[:, :, :, :, : self.slots]
            self._spare = torch.empty_like(self.cache)
            self.codes = self.model.slot_codes(self.cache.size(4) - self.front)


class EnsembleState:
    """The decoding states of all networks of an ensemble, used as one `Incremental`."""

    def __init__(self, ensemble: Ensemble, source: Tensor, source_lengths: Tensor, allowed: Tensor | None = None) -> None:
        self._states = [Incremental(member, source, source_lengths, allowed) for member in networks(ensemble)]

    def step(self, tokens: Tensor | None) -> Tensor:
        """Return log-probabilities [R,z,V], which `log_softmax` leaves as they are."""
        return mean([state.step(tokens).log_softmax(2) for state in self._states])

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        for state in self._states:
            state.select(rows, sentences)


def begin(
    model: StepwiseModel | Ensemble, source: Tensor, source_lengths: Tensor, allowed: Tensor | None = None
) -> Incremental | EnsembleState:
    """Return the decoding state of sources [B,S] with EOS before the first step. `allowed` [B,V] is a shortlist (None: all
    tokens)."""
    if isinstance(model, Ensemble):
        return EnsembleState(model, source, source_lengths, allowed)
    return Incremental(model, source, source_lengths, allowed)
