"""What decoders of all families do around their networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from models.family import RESERVED, UNK
from models.training.batch import Batch, collate

N = TypeVar("N", bound=nn.Module)


@contextmanager
def at_work(network: nn.Module) -> Iterator[torch.device]:
    """Evaluation mode, float32, no gradients; the device. Afterwards the mode from before."""
    device, training = next(network.parameters()).device, network.training
    if training:  # changing it takes a while: every module is visited
        network.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield device
    finally:
        if training:
            network.train()


def check_lengths(name: str, rows: Sequence[Sequence[int]], longest: int) -> None:
    """Raises ValueError for a row of more than `longest` tokens."""
    for row, ids in enumerate(rows):
        if len(ids) > longest:
            raise ValueError(f"{name}[{row}]: expected at most {longest} tokens, got {len(ids)}; cut or leave it out")


def score_pairs(
    network: N,
    log_probability: Callable[[N, Batch], Tensor],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    longest: int,
) -> list[float]:
    """`models.family.Decoder.score` by a function of a batch. Raises what `_check_pairs` does."""
    _check_pairs(sources, targets, longest)
    if not sources:
        return []
    batch = collate(range(len(sources)), sources, targets)
    with at_work(network) as device:
        scores: list[float] = log_probability(network, batch.to(device)).tolist()
    return scores


def _check_pairs(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], longest: int) -> None:
    """Raises ValueError for sides of unequal number, for a row of more than `longest` tokens, and for a target with a reserved id
    other than that of the unknown token."""
    if len(sources) != len(targets):
        raise ValueError(f"targets: expected {len(sources)}, one for each source, got {len(targets)}")
    check_lengths("sources", sources, longest)
    check_lengths("targets", targets, longest)
    for row, target in enumerate(targets):
        if reserved := [token for token in target if token < len(RESERVED) and token != UNK]:
            raise ValueError(f"targets[{row}]: expected ids of text, got the reserved id {reserved[0]} ({RESERVED[reserved[0]]})")
