"""The training loop: a generator of update reports, independent of files and trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from models.family import Loss
from models.training.batch import Batch, Position, Share
from models.training.config import TrainingConfig
from models.training.memory import Passes, within_memory
from models.training.optimizer import Optimizer
from models.training.parallel import all_reduce
from models.training.precision import TYPES, arithmetic
from models.training.seeds import noise_seed, seed_of
from models.training.worker import TrainingWorker

CHECK_EVERY = 20
"""Updates between two checks whether training has diverged. The first ones are checked one by one."""


class Report(NamedTuple):
    """The result of one update. Tensors are scalars on the training device, so that reading them can be deferred."""

    update: int
    position: Position
    """The position of the stream after this update."""
    sums: dict[str, Tensor]
    """Sums over the batch: `loss`, `count`, and the statistics of the family; float64, over all workers."""
    gradient_norm: Tensor
    """Norm of the gradient of the loss per counted token, before clipping."""
    learning_rate: float
    real_tokens: int
    """Source and target tokens with EOS in this worker's share."""
    padded_tokens: int
    """Source and target tokens with padding in this worker's share."""


def updates(
    model: nn.Module,
    loss: Callable[[nn.Module, Batch, int, float], Loss],
    shares: Iterator[Sequence[Share]],
    optimizer: Optimizer,
    config: TrainingConfig,
    worker: TrainingWorker,
    start: int = 0,
    passes: Passes | None = None,
) -> Iterator[Report]:
    """Make the updates `start` + 1 to `config.updates`; `shares` holds this worker's shares of each one's batch.

    An update for which memory does not suffice is repeated in smaller `passes`. Raises TrainingMemoryError if it does not suffice
    for a single pair, NotFiniteError when training diverges, which is looked for in each of the first 20 updates and in every
    20th later.
    """
    passes = passes or Passes()
    for update in range(start + 1, config.updates + 1):
        own = next(shares)
        model.train()
        sums = accumulate_shares(model, loss, own, optimizer, config, worker, update, passes)
        totals = torch.stack(list(sums.values()))
        all_reduce(worker, optimizer.gradient, totals)
        sums = dict(zip(sums, totals, strict=True))
        norm = optimizer.step(update, sums["count"].float())
        if update <= CHECK_EVERY or update % CHECK_EVERY == 0 or update == config.updates:
            optimizer.check(update, sums["loss"])
        slices = [batch for share in own for batch in share.slices]
        real = sum(int(batch.source_lengths.sum()) + int(batch.target_lengths.sum()) for batch in slices)
        padded = sum(batch.source.numel() + batch.target.numel() for batch in slices)
        yield Report(update, own[0].position, sums, norm, optimizer.learning_rate(update), real, padded)


def accumulate_shares(
    model: nn.Module,
    loss: Callable[[nn.Module, Batch, int, float], Loss],
    own: Sequence[Share],
    optimizer: Optimizer,
    config: TrainingConfig,
    worker: TrainingWorker,
    update: int,
    passes: Passes,
) -> dict[str, Tensor]:
    """Set the model's gradient to the sum over a worker's shares, in their order; return the sums of `accumulate`.

    Each share has its own seed of dropout, and its gradient is computed from zero as if it had a worker of its own; in smaller
    `passes` if memory runs out. The noise of pairs has one seed for all shares. Raises TrainingMemoryError if memory does not
    suffice for a single pair.
    """
    sums: dict[str, Tensor] = {}
    for share in own:
        earlier = optimizer.gradient.clone() if sums else None

        def attempt(share: Share) -> dict[str, Tensor]:
            optimizer.clear()
            torch.manual_seed(seed_of(config.seed, update, share.number, "dropout"))
            with noise_seed(seed_of(config.seed, update, 0, "dropout")):
                return accumulate(model, loss, share, optimizer.scale, config, worker, update)

        parts = within_memory(passes, model, share, attempt)
        if earlier is not None:
            optimizer.gradient += earlier
        sums = {name: sums.get(name, 0.0) + value for name, value in parts.items()}
    return sums


def accumulate(
    model: nn.Module,
    loss: Callable[[nn.Module, Batch, int, float], Loss],
    share: Share,
    scale: Tensor,
    config: TrainingConfig,
    worker: TrainingWorker,
    update: int,
) -> dict[str, Tensor]:
    """Add `scale` x the gradient of the summed losses of a share to the model's gradient; return the sums of losses, counts and
    statistics."""
    sums: dict[str, Tensor] = {}
    kind = torch.device(worker.device).type
    precision = arithmetic(config.precision, worker.device)
    for batch in share.slices:
        with torch.autocast(kind, TYPES[precision], enabled=precision != "float32"):
            result = loss(model, batch.to(worker.device), update, config.label_smoothing)
        (result.total * (scale * share.weight)).backward()  # type: ignore[no-untyped-call]
        parts = {"loss": result.total.detach(), "count": result.count, **result.statistics}
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + value.double() * share.weight
    return sums
