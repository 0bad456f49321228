"""The network of the stepwise family: a Transformer encoder-decoder with a generation order."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.families.stepwise.config import StepwiseConfig
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.vocabulary import EOS, PAD
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone, initialise
from models.common.layers.embeddings import Positions, embed
from models.stepwise.arrangement import permutation, step_mask


class SlotCodes(Positions):
    """Position codes of slots. A slot has the position of the token that it predicts (Zhang et al. 2020, equations 7, 10)."""

    def __init__(self, order: GenerationOrder, config: NetworkConfig, rows: int) -> None:
        kind: Literal["sinusoidal", "learned"] = (
            "learned" if "learned" in (config.positions, order.target_positions) else "sinusoidal"
        )
        super().__init__(kind, rows, config.width, rates=config.sinusoids, offset=config.position_offset)
        self.order = order
        self.directions = nn.Embedding(order.directions, config.width) if order.target_positions == "step-direction" else None

    def forward(self, slots: Tensor) -> Tensor:
        """Return the codes [T,D] of slots [T]. A learned table is indexed by the slot itself."""
        if self.table is not None:
            return super().forward(slots)
        if self.directions is not None:
            count = self.order.directions
            codes: Tensor = super().forward(slots // count) + self.directions(slots % count)
            return codes
        return super().forward(signed(slots) if self.order.target_positions == "signed" else slots)


def signed(slots: Tensor) -> Tensor:
    """Return 1, -1, 2, -2, ... for slots 0, 1, 2, 3, ...: the distance from the left end or (negative) from the right end."""
    return torch.where(slots % 2 == 0, slots // 2 + 1, -(slots // 2) - 1)


class StartVectors(nn.Module):
    """Inputs of the slots of the first step in place of tokens: one learned vector for all slots, or one for each."""

    def __init__(self, order: GenerationOrder, width: int) -> None:
        super().__init__()
        self.size = order.step_size
        self.table = nn.Embedding(order.step_size if order.start == "per-slot" else 1, width)

    def forward(self) -> Tensor:
        """Return [z,D], scaled like embedded tokens."""
        vectors: Tensor = self.table.weight.expand(self.size, -1) * math.sqrt(self.table.embedding_dim)
        return vectors


class Predictions(NamedTuple):
    """The states that predict the N labels of a batch, sentence by sentence, each in writing order."""

    states: Tensor
    """The states [N,D]; the logits are `states weight^T + bias`."""
    weight: Tensor
    """The output projection [V,D]."""
    bias: Tensor | None
    """The bias of the logits [V]; None for a network without one."""
    labels: Tensor
    """The labels [N], as token ids."""
    rows: Tensor
    """The sentence of each label [N]."""
    slots: Tensor
    """The slot of each label [N]."""


class StepwiseModel(Backbone):
    """A network that writes `order.step_size` tokens with each call of its decoder."""

    def __init__(self, config: StepwiseConfig, sizes: Sizes, order: GenerationOrder) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.order = order
        self.max_slots = config.max_positions + -config.max_positions % order.step_size
        self.target_positions = SlotCodes(order, config, self.max_slots)
        self.start = None if order.start == "zero" else StartVectors(order, config.width)
        self.source_norm, self.target_norm = (nn.LayerNorm(config.width) if config.embedding_norm else None for _ in range(2))
        self.begin = nn.Embedding(2, config.width) if config.begin_vectors else None
        """Rows of the encoder and of the decoder, with their position codes."""
        initialise(self)

    def source_inputs(self, source: Tensor) -> Tensor:
        """Return the inputs [B,N+S,D] of the encoder for sources [B,S], with N = 1 begin vector or none."""
        inputs = super().source_inputs(source)
        if self.begin is not None:
            inputs = torch.cat((self.begin.weight[:1].expand(len(source), 1, -1).to(inputs.dtype), inputs), 1)
        return normalised(inputs, self.source_norm)

    def slot_codes(self, count: int) -> Tensor:
        """Return [count,D], the sums of position codes and start vectors of the first `count` decoder slots."""
        codes: Tensor = self.target_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes if self.start is None else codes + F.pad(self.start(), (0, 0, 0, count - self.order.step_size))

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        return {**super().codes(), "slot_codes": self.slot_codes(self.max_slots)}

    def embed_slots(self, carried: Tensor, codes: Tensor) -> Tensor:
        """Return decoder inputs [R,T,D] of T slots with `codes` [T,D].

        `carried` [R,k] are the flat tokens that the last k slots carry, one step before those that they predict; slots of the first
        step carry none.
        """
        return self.slot_inputs(F.pad(embed(carried, self.target_embedding), (0, 0, codes.size(0) - carried.size(1), 0)), codes)

    def slot_inputs(self, embedded: Tensor, codes: Tensor) -> Tensor:
        """Return decoder inputs [R,T,D] of slots with `codes` [...,T,D] that carry tokens with embeddings [R,T,D], 0 for none."""
        return normalised(embedded + codes.to(embedded.dtype), self.target_norm)

    def begin_inputs(self, rows: int) -> Tensor:
        """Return the decoder's inputs [R,N,D] in front of the first slot, with N = 1 begin vector or none."""
        if self.begin is None:
            return self.target_embedding.weight.new_empty(rows, 0, self.config.width)
        return normalised(self.begin.weight[1:], self.target_norm).expand(rows, 1, -1)

    def hidden(self, flat: Tensor, memories: list[Memory]) -> Tensor:
        """Return teacher-forced decoder states [B,T,D] of flat targets [B,T], where T is a multiple of the step size."""
        slots = flat.size(1)
        step = self.order.step_size
        begin = self.begin_inputs(len(flat))
        embedded = self.embed_slots(flat[:, :-step], self.slot_codes(slots))
        inputs = self.dropout(embedded if self.begin is None else torch.cat((begin.to(embedded.dtype), embedded), 1))
        causal = step == 1 or self.order.mask == "causal"
        mask = None if causal else step_mask(self.order, slots, flat.device)
        states: Tensor = self.decoder(inputs, memories, mask, causal=causal)
        return states[:, begin.size(1) :]

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Predictions:
        """Return teacher-forced predictions of targets [B,T] in natural order with EOS."""
        flat = arrange(self.order, target, target_lengths)
        states = self.hidden(flat, self.encode(source, source_lengths))
        real = torch.arange(flat.size(1), device=flat.device) < labelled(self.order, target_lengths)[:, None]
        rows, slots = real.nonzero(as_tuple=True)
        return Predictions(states[rows, slots], self.output_table.weight, self.logits_bias, flat[rows, slots], rows, slots)


def normalised(inputs: Tensor, norm: nn.LayerNorm | None) -> Tensor:
    """Return inputs [...,D] after a norm, if there is one."""
    if norm is None:
        return inputs
    outputs: Tensor = norm(inputs)
    return outputs


def arrange(order: GenerationOrder, target: Tensor, target_lengths: Tensor) -> Tensor:
    """Return targets [B,T] of `target_lengths` tokens with EOS as flat targets [B,T'], where T' is a multiple of the step size."""
    size = target.size(1)
    if order.arrangement != "l2r":
        target = target.gather(1, permutation(order, target_lengths - 1, size))
    flat = F.pad(target, (0, -size % order.step_size), value=PAD)
    if order.tail == "none":
        return flat
    slots = torch.arange(flat.size(1), device=flat.device)
    tail = (slots >= target_lengths[:, None]) & (slots < labelled(order, target_lengths)[:, None])
    return flat.masked_fill(tail, EOS)


def labelled(order: GenerationOrder, target_lengths: Tensor) -> Tensor:
    """Return [B], the number of slots with a label, for targets of `target_lengths` tokens with EOS."""
    return target_lengths + -target_lengths % order.step_size if order.tail == "fill" else target_lengths


def build(config: StepwiseConfig, sizes: Sizes) -> StepwiseModel:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return StepwiseModel(config, sizes, config.generation())


def fits(config: StepwiseConfig, source_length: int, target_length: int) -> bool:
    """Return whether each side, with its EOS, has at most `max_positions` tokens."""
    return max(source_length, target_length) < config.max_positions
