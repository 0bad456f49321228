"""Autoregressive networks that verify drafts or write them, with cached keys and values.

Dimensions are named as in `models.family`; Q queries of a pass, N slots of the cache.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig
from fewstep.families.aggressive.roles import check_verifier
from models.aggressive.tree import DraftTree, ancestors, depths
from models.common.buffers import Inputs, Size
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import embed


class Autoregressive(Protocol):
    """The interface of a stepwise network that passes over drafts use."""

    config: NetworkConfig
    max_slots: int

    def slot_codes(self, count: int) -> Tensor: ...

    def slot_inputs(self, embedded: Tensor, codes: Tensor) -> Tensor: ...

    def begin_inputs(self, rows: int) -> Tensor: ...


def as_verifier(network: nn.Module) -> Backbone:
    """Return the network. Raises ValueError unless it writes one token per step from left to right."""
    check_verifier(getattr(network, "config", None))
    return cast(Backbone, network)


def codes_of(network: Backbone) -> Tensor:
    """Return the codes [N,D] of all slots of a verifier."""
    stepwise = cast(Autoregressive, network)
    return stepwise.slot_codes(stepwise.max_slots)


class _LayerCache:
    """The part of the cache that belongs to one layer."""

    def __init__(self, state: CachedDecoder, layer: int) -> None:
        self.state = state
        self.layer = layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [B,H,Q,D/H] at their slots; return those of the whole cache."""
        pair = self.state.cache[self.layer]
        index = self.state.slots[:, None, :, None].expand_as(keys)
        pair[0].scatter_(2, index, keys)
        pair[1].scatter_(2, index, values)
        return pair[0], pair[1]


class CachedDecoder:
    """An autoregressive network that passes over the next slots of the sentences of a batch, each at its own length.

    The first entries of the cache are those of the inputs in front of the first slot, if the network has such inputs (`front`).
    Rejected slots need no removal: stale entries are overwritten before any query attends to them. The last entry receives the keys
    and values of padding queries; no other query attends to it.
    """

    memories: list[Memory]

    def __init__(self, network: Backbone, size: Size, tree_nodes: int = 0) -> None:
        """Allocate the buffers; `tree_nodes` is the largest number of tokens of a draft tree, which may need entries behind the
        last slot."""
        self._stepwise = cast(Autoregressive, network)
        config = self._stepwise.config
        table = network.target_embedding.weight
        self.network = network
        self.excluded: Tensor | None = None
        """True at the tokens [B,1,V] outside the shortlists; None: all tokens may be written."""
        self.codes = table.new_zeros(codes_of(network).shape)
        self.padding = size.slots + tree_nodes
        self.front = self._stepwise.begin_inputs(1).size(1)
        self._entries = torch.arange(self.front + self.padding + 1, device=table.device)
        shape = (config.decoder_layers, 2, size.sentences, config.heads, len(self._entries), config.width // config.heads)
        self.cache = table.new_zeros(shape)
        self.slots = self._entries[:0, None]
        """The entries [B,Q] that the current queries are written to."""
        self._layers: list[Any] = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]

    def start(self, inputs: Inputs) -> None:
        """Encode a batch, and return to the first slot."""
        self.memories = self.network.encode(inputs.source, inputs.lengths)
        self.excluded = inputs.excluded
        self.codes.copy_(codes_of(self.network))
        self.cache.zero_()
        self._begin()

    def _begin(self) -> None:
        """Write the keys and values of the inputs in front of the first slot of all sentences."""
        if not self.front:
            return
        rows = self.cache.size(2)
        self.slots = self._entries[: self.front].expand(rows, -1)
        seen = self._entries <= self.slots[:, :, None]
        self.network.decoder(self._stepwise.begin_inputs(rows), self.memories, seen[:, None], caches=self._layers)

    def step(self, tokens: Tensor, slots: Tensor) -> Tensor:
        """Return the states [B,Q,D] of slots [B,Q], which carry the tokens [B,Q] written before them; slot 0 carries none.

        Slots equal to `padding` are padding.
        """
        entries = self.front + slots
        return self._states(tokens, entries, slots, self._entries <= entries[:, :, None])

    def step_tree(self, tokens: Tensor, lengths: Tensor, tree: DraftTree) -> Tensor:
        """Return the states [B,Q,D] of the nodes of trees, which carry the tokens [B,Q], behind `lengths` [B] written tokens.

        Node n occupies entry `front` + `lengths` + n of the cache until `keep`; it stands at the slot that its depth gives, and
        attends to the entries in front, of the written tokens, of its ancestors and of itself.
        """
        nodes = torch.arange(tokens.size(1), device=tokens.device)
        first = (self.front + lengths)[:, None]
        entries = torch.where(F.pad(tree.ids >= 0, (1, 0), value=True), first + nodes, self.front + self.padding)
        seen = (self._entries < first[:, :, None]).expand(-1, len(nodes), -1).clone()
        seen.scatter_(2, (first + nodes)[:, None].expand(-1, len(nodes), -1), ancestors(tree))
        return self._states(tokens, entries, lengths[:, None] + depths(tree), seen)

    def _states(self, tokens: Tensor, entries: Tensor, slots: Tensor, seen: Tensor) -> Tensor:
        """Return the states [B,Q,D] of slots [B,Q], kept in entries [B,Q] of the cache, that attend to entries `seen` [B,Q,N]."""
        self.slots = entries
        carried = embed(tokens, self.network.target_embedding) * (slots > 0)[:, :, None]
        x = self._stepwise.slot_inputs(carried, self.codes[slots.clamp(max=len(self.codes) - 1)])
        states: Tensor = self.network.decoder(x, self.memories, seen[:, None], caches=self._layers)
        return states

    def keep(self, lengths: Tensor, nodes: Tensor) -> None:
        """Move the keys and values of a path of nodes [B,P], from the root on, to the slots behind `lengths` [B] tokens."""
        first = (self.front + lengths)[:, None]
        offsets = torch.arange(nodes.size(1), device=nodes.device)
        source, target = (
            (first + part)[None, None, :, None, :, None].expand(*self.cache.shape[:2], -1, self.cache.size(3), -1, 1)
            for part in (nodes, offsets)
        )
        shape = (*source.shape[:-1], self.cache.size(5))
        self.cache.scatter_(4, target.expand(shape), self.cache.gather(4, source.expand(shape)))

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [B,Q,V] of states [B,Q,D] in float32, minus infinity for tokens outside the shortlists."""
        logits = self.network.logits(states).float()
        return logits if self.excluded is None else logits.masked_fill(self.excluded, -torch.inf)
