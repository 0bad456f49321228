"""Glancing (Qian et al. 2021): in training, some slots receive as input the tokens that they should write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor


class GlancingSchedule(Protocol):
    """The options of a network that determine its ratio."""

    @property
    def glancing_ratio(self) -> float: ...
    @property
    def glancing_ratio_end(self) -> float: ...
    @property
    def glancing_updates(self) -> int: ...


def ratio(config: GlancingSchedule, update: int) -> float:
    """Return the ratio at an update.

    It changes linearly from `glancing_ratio` to `glancing_ratio_end` over `glancing_updates`, and is constant from then on.
    """
    done = min(update / config.glancing_updates, 1.0)
    return config.glancing_ratio + (config.glancing_ratio_end - config.glancing_ratio) * done


def random_slots(amounts: Tensor, eligible: Tensor, noise: Tensor) -> Tensor:
    """Return a mask [B,T] of `amounts` [B] of the `eligible` [B,T] slots of each sentence, or all of them if there are fewer.

    They are those of the lowest `noise` [B,T], which is in [0,1).
    """
    rank = noise.masked_fill(~eligible, 2.0).argsort(1).argsort(1)
    return (rank < amounts[:, None]) & eligible


@contextmanager
def first_pass(device: torch.device, *, same_dropout: bool = True) -> Iterator[None]:
    """Enter the first of two passes, which has no gradients and, with `same_dropout`, the dropout masks of the second one."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices, enabled=same_dropout), torch.no_grad():
        yield
