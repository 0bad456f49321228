"""Incremental decoding, one step at a time, with cached keys and values in buffers of fixed sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.common import buffers
from models.common.buffers import Inputs, Size
from models.common.layers.attention import Memory
from models.common.layers.embeddings import embed
from models.stepwise.arrangement import step_mask
from models.stepwise.ensemble import Ensemble, mean, networks
from models.stepwise.model import StepwiseModel


class _LayerCache:
    """The part of the cache that belongs to one layer."""

    def __init__(self, decoder: IncrementalDecoder, layer: int) -> None:
        self.decoder = decoder
        self.layer = layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [R,H,z,D/H] of the new inputs; return those of all, of which the mask hides later ones."""
        kept_keys, kept_values = self.decoder.cache[:, self.layer].unbind(1)
        kept_keys.index_copy_(2, self.decoder.entries, keys)
        kept_values.index_copy_(2, self.decoder.entries, values)
        return kept_keys, kept_values


class IncrementalDecoder:
    """One network with the keys and values of the slots that are written.

    There are `beam` rows for each of B sentences. Attention reads the whole cache under a mask, so that the number of the step is
    a value on the device instead of a size.
    """

    def __init__(self, model: StepwiseModel, size: Size, beam: int, *, shortlists: bool) -> None:
        """Allocate the buffers, with `shortlists` also those for the tokens that a sentence may not write."""
        config = model.config
        table = model.target_embedding.weight
        heads = config.heads
        width = config.width // config.heads
        order = model.order
        device = table.device
        self.model = model
        self.front = int(config.begin_vectors)
        """The entries of the cache before those of the first slot."""
        self.memories: list[Memory] = []
        rows = size.sentences * beam
        entries = self.front + size.slots
        # Rows come first, so that a selection of rows copies large parts.
        self.cache = table.new_zeros(rows, config.decoder_layers, 2, heads, entries, width)
        self._spare: Tensor | None = None
        """A buffer for selected rows: an allocation of this size in each step would take longer than the copy."""
        self.layers = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]
        self.codes = table.new_zeros(size.slots, config.width)
        self.mask = F.pad(step_mask(order, size.slots, device), (self.front, 0), value=True)
        """True at the entries [T,front+T] that each slot attends to."""
        self.first = torch.arange(order.step_size, device=device)
        self.slots = self.first.clone()
        """The slots of the next step [z]."""
        self.entries = self.slots
        """The entries of the cache that the current inputs are written to."""
        self.excluded = torch.zeros((size.sentences, 1, table.size(0)), dtype=torch.bool, device=device) if shortlists else None

    def start(self, inputs: Inputs) -> None:
        """Encode a batch, and return to the first step."""
        self.memories = self.model.encode(inputs.source, inputs.lengths)  # a captured start writes the same tensors each time
        if self.excluded is not None and inputs.excluded is not None:
            self.excluded.copy_(inputs.excluded)
        self.codes.copy_(self.model.slot_codes(len(self.codes)))  # start vectors and learned positions change in training
        self.slots.copy_(self.first)
        # Values that the mask hides are multiplied by zero, which an earlier batch's infinities would not survive.
        self.cache.zero_()
        if self.front:
            self.entries = torch.arange(self.front, device=self.cache.device)
            seen = torch.arange(self.cache.size(4), device=self.cache.device) <= self.entries[:, None]
            self.model.decoder(self.model.begin_inputs(len(self.cache)), self.memories, seen, caches=self.layers)

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return log-probabilities [R,z,V] of the next z slots in float32. `tokens` [R,z] were written in the previous step; those
        given before the first step are ignored."""
        carried = embed(tokens, self.model.target_embedding) * (self.slots[:1] > 0)
        x = self.model.slot_inputs(carried, self.codes.index_select(0, self.slots))
        self.entries = self.slots + self.front
        states = self.model.decoder(x, self.memories, self.mask.index_select(0, self.slots), caches=self.layers)
        self.slots += self.model.order.step_size
        logits = self.model.logits(states)
        if self.excluded is not None:
            grouped = logits.view(len(self.excluded), -1, logits.size(2))
            logits = grouped.masked_fill(self.excluded, -torch.inf).view_as(logits)
        return logits.float().log_softmax(2)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows [R]."""
        if self._spare is None:
            self._spare = torch.empty_like(self.cache)
        torch.index_select(self.cache, 0, rows, out=self._spare)
        if buffers.captures(self.cache.device):
            self.cache.copy_(self._spare)  # captured steps read the cache at its address
        else:
            self.cache, self._spare = self._spare, self.cache


class IncrementalDecoders:
    """The networks of a system, which decode as one."""

    def __init__(self, model: StepwiseModel | Ensemble, size: Size, beam: int, *, shortlists: bool) -> None:
        self._members = [IncrementalDecoder(member, size, beam, shortlists=shortlists) for member in networks(model)]

    def start(self, inputs: Inputs) -> None:
        """See `IncrementalDecoder.start`."""
        for member in self._members:
            member.start(inputs)

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities [R,z,V] of the mean of the probabilities; see `IncrementalDecoder.log_probs`."""
        found = [member.log_probs(tokens) for member in self._members]
        return found[0] if len(found) == 1 else mean(found)

    def select(self, rows: Tensor) -> None:
        """See `IncrementalDecoder.select`."""
        for member in self._members:
            member.select(rows)
