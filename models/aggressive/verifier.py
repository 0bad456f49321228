"""The autoregressive network that drafts are verified with, at work over keys and values that it keeps.

Letters as in `models.family`; Q queries of a pass, N slots that there is room for.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import embed
from models.common.network import NetworkConfig


class Autoregressive(Protocol):
    """What is asked of a network of the `stepwise` family."""

    config: NetworkConfig
    max_slots: int

    def slot_codes(self, count: int) -> Tensor: ...


def as_verifier(network: nn.Module) -> Backbone:
    """The same network. Raises ValueError unless it writes one token a step from left to right."""
    order = getattr(network, "order", None)
    if order is None or (order.step_size, order.arrangement) != (1, "l2r"):
        got = "a network without an order" if order is None else f"{order.step_size} at a time, {order.arrangement}"
        raise ValueError(f"verifier: expected a network that writes one token a step from left to right, got {got}")
    return cast(Backbone, network)


def codes_of(network: Backbone) -> Tensor:
    """[N,D]: the codes of all slots of a verifier."""
    stepwise = cast(Autoregressive, network)
    return stepwise.slot_codes(stepwise.max_slots)


class _LayerCache:
    """The view of one layer on the cache."""

    def __init__(self, state: Verifying, layer: int) -> None:
        self.state, self.layer = state, layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values [R,H,Q,D/H] at the places of their slots; all slots there is room for."""
        pair = self.state.cache[self.layer]
        index = self.state.places[:, None, :, None].expand_as(keys)
        pair[0].scatter_(2, index, keys)
        pair[1].scatter_(2, index, values)
        return pair[0], pair[1]


class Verifying:
    """Passes of a verifier over the next slots of the sentences of a batch, wherever each has come to.

    The room for keys and values is there from the start. Slots are taken back by saying nothing: what is stale is written over
    before it may be seen. The last place takes what queries that stand for padding would write; nobody else sees it.
    """

    def __init__(self, network: Backbone, source: Tensor, source_lengths: Tensor, slots: int, listed: Tensor | None = None) -> None:
        """Sources [B,S] with EOS; `slots`: the longest output; `listed` [B,V]: may a word be written? None: all may."""
        config = cast(Autoregressive, network).config
        self.network, self.listed = network, listed
        self.memories: list[Memory] = network.encode(source, source_lengths)
        self.codes = codes_of(network)
        self.padding = slots
        shape = (config.decoder_layers, 2, source.size(0), config.heads, slots + 1, config.width // config.heads)
        self.cache = torch.zeros(shape, device=source.device)
        self.places = torch.empty((0, 0), dtype=torch.int64, device=source.device)
        self._layers: list[Any] = [_LayerCache(self, layer) for layer in range(config.decoder_layers)]

    def step(self, tokens: Tensor, slots: Tensor) -> Tensor:
        """States [R,Q,D] of slots [R,Q] (`padding`: none) that carry the tokens [R,Q] written before them; slot 0 carries none."""
        self.places = slots
        carried = embed(tokens, self.network.target_embedding) * (slots > 0)[:, :, None]
        x = carried + self.codes[slots.clamp(max=len(self.codes) - 1)]
        seen = torch.arange(self.padding + 1, device=slots.device) <= slots[:, :, None]
        states: Tensor = self.network.decoder(x, self.memories, seen[:, None], caches=self._layers)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """[R,Q,D] to [R,Q,V], minus infinity for words that are not listed"""
        logits = self.network.logits(states)
        return logits if self.listed is None else logits.masked_fill(~self.listed[:, None], -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self.cache = self.cache[:, :, rows]
        self.memories = [memory.select(rows) for memory in self.memories]
        self.listed = None if self.listed is None else self.listed[rows]
