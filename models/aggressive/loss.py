"""The objective of a block drafter: fill a block behind a random prefix of the target (Xia et al. 2022, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.vocabulary import MASK, PAD
from models.aggressive.model import AggressiveModel, Source, sequences
from models.common.glancing import first_pass, random_slots, ratio
from models.common.losses.cross_entropy import cross_entropy
from models.family import Loss
from models.training.batch import Batch

GOLDEN = 0.6180339887498949


class Blocks(NamedTuple):
    """Prefixes and blocks of a batch."""

    prefix_lengths: Tensor
    """The number of tokens in each prefix [B], 0 to m - 1."""
    widths: Tensor
    """The number of slots behind each prefix [B]; they may extend past the end of the target."""


def draw(config: AggressiveConfig, batch: Batch, *, training: bool) -> Blocks:
    """Draw a prefix for each target of m tokens with EOS, uniformly from 0 to m - 1 tokens. Outside training its length is a
    function of the pair's id."""
    device = batch.target.device
    count = len(batch.ids)
    low, high = config.widths
    if training:
        share = torch.rand(count, device=device)
        widths = torch.randint(low, high + 1, (count,), device=device)
    else:
        share = ((batch.ids.double() + 1.0) * GOLDEN % 1.0).float()
        widths = torch.full((count,), config.draft_width, device=device)
    masked = ((share * batch.target_lengths).long() + 1).clamp(max=batch.target_lengths)
    return Blocks(batch.target_lengths - masked, widths)


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return (1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over the labelled slots of the blocks that are not shown their
    token; in nats, float32.

    A slot is labelled if it stands for a token of the target or its EOS; slots past it are not trained. The count is the number of
    these slots. Statistics: `nll` (without smoothing), `correct` (slots whose token the network ranks first), `accepted` (correct
    slots whose predecessors in the block are all correct, which a verifier that writes the target would accept; not reported in
    training without glancing), `shown` slots. No token is shown in evaluation mode.
    """
    network = cast(AggressiveModel, model)
    source = network.read(batch.source, batch.source_lengths)
    if network.training and network.config.prefixes > 1:
        rows = torch.arange(len(batch.ids), device=batch.ids.device).repeat_interleave(network.config.prefixes)
        batch, source = batch.select(rows), source.select(rows)
    blocks = draw(network.config, batch, training=network.training)
    ids = sequences(batch.target, blocks.prefix_lengths, blocks.widths)
    target = F.pad(batch.target, (0, max(0, ids.size(1) - batch.target.size(1))), value=PAD)[:, : ids.size(1)]
    position = torch.arange(ids.size(1), device=ids.device)
    labelled = (ids == MASK) & (position >= blocks.prefix_lengths[:, None]) & (position < batch.target_lengths[:, None])
    ids, hidden, correct = _glance(network, ids, target, labelled, blocks, source, update)
    states = network.states(ids, blocks.prefix_lengths, blocks.prefix_lengths + blocks.widths, source)
    rows, slots = hidden.nonzero(as_tuple=True)
    labels = target[rows, slots]
    if network.training:
        network.words.add(labels)
    sums = cross_entropy(states[rows, slots], network.target_embedding.weight, labels, label_smoothing, bias=network.logits_bias)
    statistics = {"nll": sums.nll, "correct": sums.correct, "shown": (labelled & ~hidden).sum()}
    if not network.training:
        correct = _correct(network, states, target, labelled)
    if correct is not None:
        statistics["accepted"] = _accepted(correct, labelled, blocks)
    return Loss(sums.total, torch.tensor(len(labels), device=labels.device), statistics)


def _glance(
    network: AggressiveModel, ids: Tensor, target: Tensor, labelled: Tensor, blocks: Blocks, source: Source, update: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sequences with shown tokens, the labelled slots [B,T] that are still hidden, and those that the network predicted
    correctly by itself.

    A first pass without gradients, with the same dropout masks as the second one, determines the tokens to show.
    """
    config = network.config
    share = ratio(config, update)
    if not network.training or share == 0.0:
        return ids, labelled, None
    noise = torch.rand(ids.shape, device=ids.device)
    with first_pass(ids.device):
        states = network.states(ids, blocks.prefix_lengths, blocks.prefix_lengths + blocks.widths, source)
        correct = _correct(network, states, target, labelled)
    shown = shown_slots(share, labelled, correct, noise)
    return torch.where(shown, target, ids), labelled & ~shown, correct


def shown_slots(share: float, labelled: Tensor, correct: Tensor, noise: Tensor) -> Tensor:
    """Return [B,T], True at slots that glancing (Qian et al. 2021) shows their token: floor(share x (n - s)) random ones of a
    sentence's n labelled slots, where s slots are correct.

    `labelled` and `correct` [B,T] are True where a slot has a label and where the network ranks it first; `noise` [B,T] is uniform
    in [0,1).
    """
    counts = labelled.sum(1)
    amount = (share * (counts - (correct & labelled).sum(1)) + 1e-6).long()
    return random_slots(amount, labelled, noise)


def _correct(network: AggressiveModel, states: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
    """Return [B,T], True at labelled slots whose token the network ranks first."""
    rows, slots = labelled.nonzero(as_tuple=True)
    correct = torch.zeros_like(labelled)
    correct[rows, slots] = network.logits(states[rows, slots]).argmax(1) == target[rows, slots]
    return correct


def _accepted(correct: Tensor, labelled: Tensor, blocks: Blocks) -> Tensor:
    """Return the number of slots of all blocks that are correct together with all slots before them."""
    position = torch.arange(correct.size(1), device=correct.device)
    before = position < blocks.prefix_lengths[:, None]
    return ((correct | before).long().cumprod(1).bool() & labelled).sum()
