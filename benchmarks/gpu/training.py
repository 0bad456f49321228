"""Training speed of a device: the project's update compared with a bare loop over the same network and batches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any

import torch
from torch import nn

from benchmarks.decoding.networks import VOCABULARY, sentences, sizes
from benchmarks.gpu.limits import out_of_time, synchronize
from fewstep.config.network import SIZES
from fewstep.families.table import family_named as runtime_family
from models.family import family_named
from models.training.batch import Batch, Position, Share, collate
from models.training.config import TrainingConfig
from models.training.loop import updates
from models.training.optimizer import Optimizer
from models.training.precision import TYPES
from models.training.worker import TrainingWorker

LENGTH = 27


def train_network(family: str, size: str, dropout: float, **options: Any) -> nn.Module:
    """Return a network for training; `options` are those of its config."""
    torch.manual_seed(1)
    config = runtime_family(family).network(size=size, dropout=dropout, **SIZES[size], **options)  # type: ignore[arg-type]
    return family_named(family).functions.build(config, sizes(size)).train()


def family_loss(family: str) -> Callable[..., Any]:
    return family_named(family).functions.loss


def batch_of(size: str, pairs: int, length: int = LENGTH) -> Batch:
    rows = sentences(2 * pairs, length, VOCABULARY[size])
    return collate(range(pairs), rows[:pairs], rows[pairs:])


def bare(model: nn.Module, loss: Callable[..., Any], batch: Batch, recipe: TrainingConfig, device: str) -> Callable[[int], None]:
    """Return a function that makes n updates in a bare loop: autocast, backward, clipping, fused AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=True)

    def advance(number: int) -> None:
        for update in range(number):
            optimizer.zero_grad()
            with torch.autocast(device, TYPES[recipe.precision], enabled=recipe.precision != "float32"):
                found = loss(model, batch.to(device), update, recipe.label_smoothing)
            (found.total / found.count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return advance


def ours(model: nn.Module, loss: Callable[..., Any], batch: Batch, recipe: TrainingConfig, device: str) -> Callable[[int], None]:
    """Return a function that makes n updates as the train stage does, with batches that are there beforehand."""
    shares = ([Share([batch], 1.0, Position())] for _ in count())
    worker = TrainingWorker(device="cpu" if device == "cpu" else "cuda:0")
    reports = updates(model, loss, shares, Optimizer(model, recipe), recipe, worker)

    def advance(number: int) -> None:
        for _ in islice(reports, number):
            pass

    return advance


def measure(
    family: str, size: str, precision: str, device: str, tokens: int, number: int, rounds: int, deadline: float
) -> dict[str, Any]:
    """Return target tokens a second of both sides, which take turns. After an untimed round there is at least one, and further
    ones until `deadline` or up to `rounds`."""
    loss = family_loss(family)
    batch = batch_of(size, max(1, tokens // LENGTH))
    recipe = replace(TrainingConfig(), updates=10**6, precision=precision)  # type: ignore[arg-type]
    made = {side.__name__: side(train_network(family, size, 0.1).to(device), loss, batch, recipe, device) for side in (bare, ours)}
    speeds: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(rounds + 1):
        for name, advance in made.items():
            began = time.perf_counter()
            advance(number if turn else 1)
            synchronize(device)
            if turn:
                speeds[name].append(int(batch.target_lengths.sum()) * number / (time.perf_counter() - began))
        if turn and out_of_time(deadline):
            break
    return {"rounds": speeds, **{name: statistics.median(values) for name, values in speeds.items()}}
