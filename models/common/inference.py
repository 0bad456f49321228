"""Around the networks of decoders of all families: contexts, checks, batches of sources, and copies in half precision for GPUs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from fewstep.config.options import HALF_PRECISIONS, Precision
from fewstep.config.problems import Problem
from fewstep.sources import Sources, check_lengths
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


def source_tensors(sources: Sources, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Return the ids and the lengths of a batch on a device; on the CPU they share its memory."""
    return torch.from_numpy(sources.ids).to(device), torch.from_numpy(sources.lengths).to(device)


class Precisions(Generic[N]):
    """A network in float32 and its copies in half precision, which are made when a search asks for them."""

    def __init__(self, network: N, *, frozen: bool) -> None:
        """`frozen` states that the weights do not change any more."""
        self._networks: dict[str, N] = {"float32": network}
        self._frozen = frozen

    def __getitem__(self, precision: Precision) -> N:
        """Return the network in a precision."""
        if precision not in self._networks:
            self._networks[precision] = copy.deepcopy(self._networks["float32"]).to(getattr(torch, precision))
        return self._networks[precision]

    def problems(self, precision: Precision) -> Iterator[Problem]:
        """Yield a problem for a precision other than float32, unless it is a half precision of a frozen network on a GPU."""
        on_gpu = self._frozen and next(self._networks["float32"].parameters()).device.type != "cpu"
        if precision != "float32" and not (on_gpu and precision in HALF_PRECISIONS):
            expected = "float32, float16 or bfloat16" if on_gpu else "float32"
            yield Problem(("precision",), f"{expected} in torch on this device", precision)
