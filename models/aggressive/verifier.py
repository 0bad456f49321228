"""The autoregressive network that verifies drafts, with cached keys and values.

Dimensions are named as in `models.family`; Q queries of a pass, N slots of the cache.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig
from fewstep.families.aggressive.pair import check_verifier
from models.aggressive.tree import DraftTree, ancestors, depths
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import embed


class Autoregressive(Protocol):
    """The interface of a stepwise network that verification uses."""

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

    def __init__(self, state: Verifying, layer: int) -> None:
        self.state, self.layer = state, layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [R,H,Q,D/H] at their slots; return those of the whole cache."""
        pair = self.state.cache[self.layer]
        index = self.state.slots[:, None, :, None].expand_as(keys)
        pair[0].scatter_(2, index, keys)
        pair[1].scatter_(2, index, values)
        return pair[0], pair[1]


class Verifying:
    """Passes of a verifier over the next slots of the sentences of a batch, each at its own length.

    The cache has its full size from the start. Its first entries are those of the inputs in front of the first slot, if the network
    has such inputs (`front`). Rejected slots need no removal: stale entries are overwritten before any query attends to them. The
    last entry receives the keys and values of padding queries; no other query attends to it.
    """

    def __init__(
        self,
        network: Backbone,
        source: Tensor,
        source_lengths: Tensor,
        slots: int,
        allowed: Tensor | None = None,
        tree_nodes: int = 0,
    ) -> None:
        """Encode sources [B,S] with EOS; `slots` is the maximum output length, `allowed` [B,V] a shortlist (None: all tokens), and
        `tree_nodes` the largest number of tokens of a draft tree, which may need entries behind the last slot."""
        self._stepwise = cast(Autoregressive, network)
        config = self._stepwise.config
        self.network, self.allowed = network, allowed
        self.memories: list[Memory] = network.encode(source, source_lengths)
        self.codes = codes_of(network).to(network.target_embedding.weight.dtype)
        self.padding = slots + tree_nodes
        self.front = self._stepwise.begin_inputs(1).size(1)
        self._entries = torch.arange(self.front + self.padding + 1, device=source.device)
        shape = (config.decoder_layers, 2, source.size(0), config.heads, len(self._entries), config.width // config.heads)
        self.cache = self.codes.new_zeros(shape)
        self.slots = torch.empty((0, 0), dtype=torch.int64, device=source.device)
        self._layers: list[Any] = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]
        self.begin()

    def begin(self) -> None:
        """Write the keys and values of the inputs in front of the first slot of all sentences."""
        if not self.front:
            return
        rows = self.cache.size(2)
        self.slots = self._entries[: self.front].expand(rows, -1)
        seen = self._entries <= self.slots[:, :, None]
        self.network.decoder(self._stepwise.begin_inputs(rows), self.memories, seen[:, None], caches=self._layers)

    def step(self, tokens: Tensor, slots: Tensor) -> Tensor:
        """Return the states [R,Q,D] of slots [R,Q], which carry the tokens [R,Q] written before them; slot 0 carries none.

        Slots equal to `padding` are padding.
        """
        entries = self.front + slots
        return self._states(tokens, entries, slots, self._entries <= entries[:, :, None])

    def step_tree(self, tokens: Tensor, lengths: Tensor, tree: DraftTree) -> Tensor:
        """Return the states [R,Q,D] of the nodes of trees, which carry the tokens [R,Q], behind `lengths` [R] written tokens.

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
        """Return the states [R,Q,D] of slots [R,Q], kept in entries [R,Q] of the cache, that attend to entries `seen` [R,Q,N]."""
        self.slots = entries
        carried = embed(tokens, self.network.target_embedding) * (slots > 0)[:, :, None]
        x = self._stepwise.slot_inputs(carried, self.codes[slots.clamp(max=len(self.codes) - 1)])
        states: Tensor = self.network.decoder(x, self.memories, seen[:, None], caches=self._layers)
        return states

    def keep(self, lengths: Tensor, nodes: Tensor) -> None:
        """Move the keys and values of a path of nodes [R,P], from the root on, to the slots behind `lengths` [R] tokens."""
        first, offsets = (self.front + lengths)[:, None], torch.arange(nodes.size(1), device=nodes.device)
        source, target = (
            (first + part)[None, None, :, None, :, None].expand(*self.cache.shape[:2], -1, self.cache.size(3), -1, 1)
            for part in (nodes, offsets)
        )
        shape = (*source.shape[:-1], self.cache.size(5))
        self.cache.scatter_(4, target.expand(shape), self.cache.gather(4, source.expand(shape)))

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [R,Q,V] of states [R,Q,D], minus infinity for tokens that are not allowed."""
        logits = self.network.logits(states)
        return logits if self.allowed is None else logits.masked_fill(~self.allowed[:, None], -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self.cache = self.cache[:, :, rows]
        self.memories = [memory.select(rows) for memory in self.memories]
        self.allowed = None if self.allowed is None else self.allowed[rows]
