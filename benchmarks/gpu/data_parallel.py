"""The same training by two workers on the CPU, which communicate by gloo, and by one on a device with as many shares.

    python -m benchmarks.gpu.data_parallel DIRECTORY RANK     # one of the two workers

Initial weights come from the CPU, and nothing is dropped, so that only the order of sums differs. Epsilon is large enough that Adam
does not turn the rounding of gradients which are zero (those of the biases of keys) into steps of full size.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.decoding.networks import VOCABULARY, sentences
from benchmarks.gpu.training import family_loss, train_network
from models.training.batch import EpochPool, Pool, Ragged, Share, shares
from models.training.config import TrainingConfig
from models.training.loop import updates
from models.training.optimizer import Optimizer
from models.training.worker import TrainingWorker

SIZE = "tiny"
FAMILY = "stepwise"
NUM_SHARES = 2
UPDATES = 5
RECIPE = TrainingConfig(updates=UPDATES, learning_rate=0.01, warmup_updates=1, adam_epsilon=1e-3, batch_tokens=256)
SECONDS = 120
"""Time in which a worker must end, and wait for the other one."""
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""The interface of workers on one machine, which need no network."""


def stream(worker: TrainingWorker) -> Iterator[list[Share]]:
    """Yield the shares of a worker in batches of pairs of several lengths."""
    rows = [row for length in range(4, 20) for row in sentences(4, length, VOCABULARY[SIZE])]
    side = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    numbers = np.arange(len(rows))
    pools = (EpochPool(epoch, 0, Pool(numbers, side, side), numbers) for epoch in range(UPDATES))
    return shares(pools, RECIPE.batch_tokens, RECIPE.seed, rank=worker.rank, size=worker.world_size, num_shares=NUM_SHARES)


def trained(worker: TrainingWorker) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights before and after a training, on the CPU."""
    model = train_network(FAMILY, SIZE, dropout=0.0).to(worker.device)
    optimizer = Optimizer(model, RECIPE)
    start = optimizer.weights.cpu().clone()
    for _ in updates(model, family_loss(FAMILY), stream(worker), optimizer, RECIPE, worker):
        pass
    return start, optimizer.weights.detach().cpu()


def difference(device: str) -> float:
    """Return the distance between the weights of both trainings, relative to how far the training moved them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.gpu.data_parallel", directory]
        processes = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(NUM_SHARES)]
        try:
            start, found = trained(TrainingWorker(device="cpu" if device == "cpu" else "cuda:0"))
            check_communication(device, found, Path(directory) / "alone")
            codes = [process.wait(SECONDS) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes):
            raise RuntimeError(f"workers on the CPU: expected the exit codes 0, got {codes}")
        expected = torch.load(Path(directory) / "weights.pt", weights_only=True)
    return float((found - expected).norm() / (expected - start).norm())


def check_communication(device: str, weights: torch.Tensor, store: Path) -> None:
    """Raise AssertionError unless the device's library of communication returns the sum over a single worker."""
    connect("gloo" if device == "cpu" else "nccl", store, 0, 1)
    found = weights.to(device)
    dist.all_reduce(found)
    dist.destroy_process_group()
    assert torch.equal(found.cpu(), weights), "all_reduce: expected the values of the only worker, got others"


def connect(backend: str, store: Path, rank: int, world_size: int) -> None:
    os.environ.update(LOOPBACK)
    timeout = timedelta(seconds=SECONDS)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=timeout)


def main(directory: Path, rank: int) -> None:
    """Train as one of the workers on the CPU; the first one writes the weights."""
    connect("gloo", directory / "both", rank, NUM_SHARES)
    _, weights = trained(TrainingWorker(rank, NUM_SHARES))
    if rank == 0:
        torch.save(weights, directory / "weights.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
