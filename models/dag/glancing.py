"""Glancing (Qian et al. 2021): in training, some vertices of the best path receive as input the tokens that they should write."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.dag.config import DagConfig, Pin
from models.common.glancing import random_slots, ratio


class Glance(NamedTuple):
    """The tokens that are shown for a batch."""

    vertices: Tensor
    """The vertex of each target token on the best path, [B,M]; -1 if there is no path."""
    shown: Tensor
    """A mask [B,M] of the tokens that are shown."""
    correct: Tensor
    """The number of tokens of the path that the network ranks first at their vertices, [B]."""


def choose(config: DagConfig, update: int, vertices: Tensor, correct_mask: Tensor, lengths: Tensor, noise: Tensor) -> Glance:
    """Draw the tokens that are shown.

    `vertices` [B,M] are as in `Glance`; `correct_mask` [B,M] is True where the network ranks the token first at its vertex;
    `lengths` [B] are the lengths of targets with BOS and EOS; `noise` [B,M+1] is uniform in [0,1), with one number for each token
    and one for the sentence.

    Let p be the ratio, M the number of tokens and C the number of correct ones. `number-random` shows exactly int((M - C) p + 1/2)
    random tokens; `uniform` shows int(M u + 1/2) with u uniform in [0,1); `fixed` shows int(M p + 1/2); `bernoulli` shows each
    token with probability p (M - C) / M.
    """
    on_path = vertices >= 0
    correct = (correct_mask & on_path).sum(1)
    share = ratio(config, update)
    wrong = lengths - correct
    if config.glancing == "bernoulli":
        return Glance(vertices, (noise[:, :-1] < (share * wrong / lengths)[:, None]) & on_path, correct)
    amount = {"number-random": wrong * share, "uniform": lengths * noise[:, -1], "fixed": lengths * share}[config.glancing]
    return Glance(vertices, random_slots((amount + 0.5).long(), on_path, noise[:, :-1]), correct)


def reveal(empty: Tensor, target: Tensor, glance: Glance) -> Tensor:
    """Return the inputs of vertices [B,L] with the shown tokens of `target` [B,M] at their vertices."""
    rows, tokens = glance.shown.nonzero(as_tuple=True)
    revealed = empty.clone()
    revealed[rows, glance.vertices[rows, tokens]] = target[rows, tokens]
    return revealed


def pinned(scores: Tensor, glance: Glance, pin: Pin) -> Tensor:
    """Return token scores [B,M,L] constrained by the shown tokens, whose scores have no gradient.

    With `row`, a shown token is written at its vertex with score 0, and nowhere else. With `column`, the vertex of a shown token
    writes no other token, and keeps the score of this one.
    """
    if pin == "none":
        return scores
    rows, tokens = glance.shown.nonzero(as_tuple=True)
    vertices = glance.vertices[rows, tokens]
    here = torch.zeros_like(scores, dtype=torch.bool)
    here[rows, tokens, vertices] = True
    if pin == "row":
        return scores.masked_fill(glance.shown[:, :, None] & ~here, -torch.inf).masked_fill(here, 0.0)
    taken = here.any(1, keepdim=True)
    return torch.where(here, scores.detach(), scores.masked_fill(taken, -torch.inf))
