"""The decoding state of a batch in buffers of fixed sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from models.common.device_batch import Inputs, Size, copy_memories
from models.common.layers.attention import Memory
from models.stepwise.arrangement import step_mask
from models.stepwise.ensemble import Ensemble, mean, networks
from models.stepwise.model import StepwiseModel


class _LayerCache:
    """The part of the cache that belongs to one layer."""

    def __init__(self, state: StaticState, layer: int) -> None:
        self.state, self.layer = state, layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [R,H,z,D/H] of the new slots; return those of all slots, of which the mask hides later ones."""
        pair = self.state.cache[self.layer]
        pair[0].index_copy_(2, self.state.slots, keys)
        pair[1].index_copy_(2, self.state.slots, values)
        return pair[0], pair[1]


class StaticState:
    """The counterpart of `models.stepwise.search.incremental.Incremental` whose tensors never change their shapes.

    There are `beam` rows for each of B sentences. Attention reads the whole cache under a mask, so that the number of the step is
    a value on the device instead of a size.
    """

    def __init__(self, model: StepwiseModel, size: Size, beam: int, *, shortlists: bool) -> None:
        """Allocate the buffers, with `shortlists` also those for the tokens that a sentence may not write."""
        config, table = model.config, model.target_embedding.weight
        heads, width = config.heads, config.width // config.heads
        self.model, order = model, model.order
        self.memories = [_memory(table, size, heads, width) for _ in range(config.decoder_layers)]
        self.cache = table.new_zeros(config.decoder_layers, 2, size.sentences * beam, heads, size.slots, width)
        self.layers = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]
        self.codes = model.slot_codes(size.slots).to(table.dtype)
        self.mask = step_mask(order, size.slots, table.device)
        self.slots = torch.arange(order.step_size, device=table.device)
        """The slots of the next step [z]."""
        shape = (size.sentences, 1, table.size(0))
        self.excluded = torch.zeros(shape, dtype=torch.bool, device=table.device) if shortlists else None

    def start(self, inputs: Inputs) -> None:
        """Encode a batch, and return to the first step."""
        copy_memories(self.memories, self.model.encode(inputs.source, inputs.lengths))
        if self.excluded is not None and inputs.excluded is not None:
            self.excluded.copy_(inputs.excluded)
        torch.arange(len(self.slots), device=self.slots.device, out=self.slots)
        self.cache.zero_()

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return log-probabilities [R,z,V] of the next z slots in float32. `tokens` [R,z] were written in the previous step."""
        codes = self.codes.index_select(0, self.slots)
        x = torch.where(self.slots[:1] > 0, self.model.embed_slots(tokens, codes), codes)
        states = self.model.decoder(x, self.memories, self.mask.index_select(0, self.slots), caches=self.layers)
        self.slots += self.model.order.step_size
        logits = self.model.logits(states)
        if self.excluded is not None:
            grouped = logits.view(len(self.excluded), -1, logits.size(2))
            logits = grouped.masked_fill(self.excluded, -torch.inf).view_as(logits)
        return logits.float().log_softmax(2)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows [R]."""
        self.cache.copy_(self.cache.index_select(2, rows))


def _memory(like: Tensor, size: Size, heads: int, width: int) -> Memory:
    keys, values = like.new_zeros(2, size.sentences, heads, size.source, width)
    return Memory(keys, values, like.new_ones(size.sentences, 1, 1, size.source, dtype=torch.bool))


class States:
    """The states of the networks of a system, used as one."""

    def __init__(self, model: StepwiseModel | Ensemble, size: Size, beam: int, *, shortlists: bool) -> None:
        self._states = [StaticState(member, size, beam, shortlists=shortlists) for member in networks(model)]

    def start(self, inputs: Inputs) -> None:
        """See `StaticState.start`."""
        for state in self._states:
            state.start(inputs)

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities [R,z,V] of the mean of the probabilities; see `StaticState.log_probs`."""
        found = [state.log_probs(tokens) for state in self._states]
        return found[0] if len(found) == 1 else mean(found)

    def select(self, rows: Tensor) -> None:
        """See `StaticState.select`."""
        for state in self._states:
            state.select(rows)
