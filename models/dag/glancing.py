"""Glancing: in training some vertices of the best path are shown the tokens that they are to write (Qian et al. 2021)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.dag.config import DagConfig, Pin


class Glance(NamedTuple):
    """What is shown to a batch."""

    vertices: Tensor
    """[B,M] where each target token stands on the best path; -1 where it is none"""
    shown: Tensor
    """[B,M] True at tokens that are shown"""
    correct: Tensor
    """[B] tokens of the path that the network ranks first at their vertices"""


def ratio(config: DagConfig, update: int) -> float:
    """The share at an update: from `glancing_ratio` evenly to `glancing_ratio_end` over `glancing_updates`, then constant."""
    done = min(update / config.glancing_updates, 1.0)
    return config.glancing_ratio + (config.glancing_ratio_end - config.glancing_ratio) * done


def choose(config: DagConfig, update: int, vertices: Tensor, right: Tensor, lengths: Tensor, noise: Tensor) -> Glance:
    """Draw what is shown.

    vertices [B,M] as in `Glance`; right [B,M]: does the network rank the token first there; lengths [B] of targets with BOS and
    EOS; noise [B,M+1] even in [0,1): one number a token, and one a sentence.

    With the share p, M tokens and C of them right: `number-random` shows exactly int((M - C) p + 1/2) of them, any; `uniform`
    int(M u + 1/2) with u even in [0,1); `fixed` int(M p + 1/2); `bernoulli` each with probability p (M - C) / M.
    """
    on_path = vertices >= 0
    correct = (right & on_path).sum(1)
    share = ratio(config, update)
    draws = noise[:, :-1].masked_fill(~on_path, 2.0)
    wrong = lengths - correct
    if config.glancing == "bernoulli":
        return Glance(vertices, draws < (share * wrong / lengths)[:, None], correct)
    amount = {"number-random": wrong * share, "uniform": lengths * noise[:, -1], "fixed": lengths * share}[config.glancing]
    rank = draws.argsort(1).argsort(1)
    return Glance(vertices, (rank < (amount + 0.5).long()[:, None]) & on_path, correct)


def reveal(empty: Tensor, target: Tensor, glance: Glance) -> Tensor:
    """Vertices [B,L] with the shown tokens of `target` [B,M] in their places."""
    rows, tokens = glance.shown.nonzero(as_tuple=True)
    revealed = empty.clone()
    revealed[rows, glance.vertices[rows, tokens]] = target[rows, tokens]
    return revealed


def pinned(scores: Tensor, glance: Glance, pin: Pin) -> Tensor:
    """Token scores [B,M,L] under what is shown, which no gradient enters.

    row: a shown token is written at its vertex with score 0, and nowhere else. column: the vertex of a shown token writes no
    other, and that one with the score that it has.
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
