"""The drafter's objective: fill a block behind a random prefix of the target (Xia et al. 2022, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.aggressive import glancing
from models.aggressive.config import AggressiveConfig
from models.aggressive.model import AggressiveModel, Source, sequences
from models.common.losses.cross_entropy import cross_entropy
from models.family import MASK, PAD, Loss
from models.training.batch import Batch

GOLDEN = 0.6180339887498949


class Blocks(NamedTuple):
    """Prefixes and blocks of a batch."""

    prefix_lengths: Tensor
    """[B] 0 to m - 1 tokens"""
    widths: Tensor
    """[B] slots behind them, also past the end of the target"""


def draw(config: AggressiveConfig, batch: Batch, *, training: bool) -> Blocks:
    """A prefix for each target of m tokens with EOS, each length from 0 to m - 1 as likely; drawn anew in training, otherwise a
    function of the pair's id."""
    device, count = batch.target.device, len(batch.ids)
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
    """(1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over the slots of the blocks that stand for a token of the target or
    its EOS (slots past it are not trained) and are not shown it; in nats, float32. The count is these slots.

    Statistics: `nll` (without smoothing), `correct` (slots that the network ranks first), `accepted` (of these, those before which
    all of their block are right too: what a verifier that writes the target would keep; not told in training without glancing),
    `shown` slots. Nothing is shown in evaluation mode.
    """
    network = cast(AggressiveModel, model)
    source = network.read(batch.source, batch.source_lengths)
    if network.training and network.config.prefixes > 1:
        rows = torch.arange(len(batch.ids), device=batch.ids.device).repeat_interleave(network.config.prefixes)
        batch, source = batch.select(rows), source.select(rows)
    blocks = draw(network.config, batch, training=network.training)
    ids = sequences(batch.target, blocks.prefix_lengths, blocks.widths)
    target = F.pad(batch.target, (0, max(0, ids.size(1) - batch.target.size(1))), value=PAD)[:, : ids.size(1)]
    place = torch.arange(ids.size(1), device=ids.device)
    labelled = (ids == MASK) & (place >= blocks.prefix_lengths[:, None]) & (place < batch.target_lengths[:, None])
    ids, hidden, right = _glance(network, ids, target, labelled, blocks, source, update)
    states = network.states(ids, blocks.prefix_lengths, blocks.prefix_lengths + blocks.widths, source)
    rows, slots = hidden.nonzero(as_tuple=True)
    labels = target[rows, slots]
    if network.training:
        network.words.add(labels)
    sums = cross_entropy(states[rows, slots], network.target_embedding.weight, labels, label_smoothing)
    statistics = {"nll": sums.nll, "correct": sums.correct, "shown": (labelled & ~hidden).sum()}
    if not network.training:
        right = _right(network, states, target, labelled)
    if right is not None:
        statistics["accepted"] = _accepted(right, labelled, blocks)
    return Loss(sums.total, torch.tensor(len(labels), device=labels.device), statistics)


def _glance(
    network: AggressiveModel, ids: Tensor, target: Tensor, labelled: Tensor, blocks: Blocks, source: Source, update: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sequences with what is shown, which labelled slots [B,T] are still hidden, and which the network got right by itself. What to
    show a first pass without gradient tells, in which dropout strikes out the same as in the second."""
    config = network.config
    share = glancing.ratio(config, update)
    if not network.training or share == 0.0:
        return ids, labelled, None
    noise = torch.rand(ids.shape, device=ids.device)
    devices = [ids.device] if ids.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        states = network.states(ids, blocks.prefix_lengths, blocks.prefix_lengths + blocks.widths, source)
        right = _right(network, states, target, labelled)
    shown = glancing.shown(share, labelled, right, noise)
    return torch.where(shown, target, ids), labelled & ~shown, right


def _right(network: AggressiveModel, states: Tensor, target: Tensor, labelled: Tensor) -> Tensor:
    """[B,T] True at labelled slots whose token the network ranks first."""
    rows, slots = labelled.nonzero(as_tuple=True)
    right = torch.zeros_like(labelled)
    right[rows, slots] = network.logits(states[rows, slots]).argmax(1) == target[rows, slots]
    return right


def _accepted(right: Tensor, labelled: Tensor, blocks: Blocks) -> Tensor:
    """How many slots of all blocks are right with all before them."""
    place = torch.arange(right.size(1), device=right.device)
    before = place < blocks.prefix_lengths[:, None]
    return ((right | before).long().cumprod(1).bool() & labelled).sum()
