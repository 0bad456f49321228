"""Checks and contexts around the networks of decoders of all families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from fewstep.sources import check_lengths
from fewstep.vocabulary import RESERVED, UNK
from models.training.batch import Batch, collate

N = TypeVar("N", bound=nn.Module)

MEMORY_ERRORS = (torch.OutOfMemoryError, MemoryError)
"""The errors of a batch that does not fit into the memory of its device."""


@contextmanager
def inference_mode(network: nn.Module) -> Iterator[torch.device]:
    """Enter evaluation mode with float32 and without gradients, and yield the network's device. Restores the mode on exit."""
    device = next(network.parameters()).device
    training = network.training
    if training:  # a change visits every module
        network.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield device
    finally:
        if training:
            network.train()


def score_pairs(
    network: N,
    log_probability: Callable[[N, Batch], Tensor],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    max_tokens: int,
) -> list[float]:
    """Implement `ScoringDecoder.score` by a function of a batch. Raises ValueError for pairs that cannot be scored."""
    _check_pairs(sources, targets, max_tokens)
    if not sources:
        return []
    batch = collate(range(len(sources)), sources, targets)
    with inference_mode(network) as device:
        scores: list[float] = log_probability(network, batch.to(device)).tolist()
    return scores


def _check_pairs(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], max_tokens: int) -> None:
    """Raise ValueError for different numbers of sources and targets, for a row of more than `max_tokens` tokens, and for a target
    with a reserved id other than that of the unknown token."""
    if len(sources) != len(targets):
        raise ValueError(f"targets: expected {len(sources)}, one for each source, got {len(targets)}")
    check_lengths("sources", sources, max_tokens)
    check_lengths("targets", targets, max_tokens)
    for row, target in enumerate(targets):
        if reserved := [token for token in target if token < len(RESERVED) and token != UNK]:
            raise ValueError(f"targets[{row}]: expected ids of text, got the reserved id {reserved[0]} ({RESERVED[reserved[0]]})")
