"""Passes that do not fit the memory of the device are halved, and the result stays."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from models.family import Loss
from models.training.batch import Batch
from models.training.loop import updates
from models.training.memory import Passes, TrainingMemoryError
from models.training.worker import TrainingWorker
from tests.models.training.test_loop import RECIPE, make, toy_loss, toy_shares


def tokens(batch: Batch) -> int:
    return len(batch.ids) * max(batch.source.size(1), batch.target.size(1))


def limited(limit: int, error: type[BaseException] = torch.OutOfMemoryError) -> tuple[Callable[..., Loss], list[int]]:
    """Return a loss that needs memory in proportion to its batch, and the sizes of the passes that fit. It fails late: parts of an
    update are in the gradient, and the network has counted the batch."""
    sizes: list[int] = []

    def loss(model: Any, batch: Batch, update: int, label_smoothing: float) -> Loss:
        model.seen += len(batch.ids)
        if tokens(batch) > limit:
            raise error("no memory")
        sizes.append(tokens(batch))
        found: Loss = toy_loss(model, batch, update, label_smoothing)
        return found

    return loss, sizes


def trained(loss: Callable[..., Loss], **options: Any) -> tuple[list[Any], Any, Passes]:
    model, optimizer = make(RECIPE, dropout=0.0)
    model.register_buffer("seen", torch.zeros(()))
    passes = Passes()
    return list(updates(model, loss, toy_shares(**options), optimizer, RECIPE, TrainingWorker(), passes=passes)), model, passes


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
@pytest.mark.parametrize("microbatch_tokens", [0, 45])
def test_the_result_is_that_of_enough_memory(error: type[BaseException], microbatch_tokens: int) -> None:
    free, _ = limited(10**9)
    expected, model, _ = trained(free)
    loss, sizes = limited(20, error)
    found, other, passes = trained(loss, microbatch_tokens=microbatch_tokens)
    assert passes.max_tokens is not None
    assert max(sizes) <= 20
    assert [report.position for report in found] == [report.position for report in expected]
    for one, report in zip(expected, found, strict=True):
        assert report.sums["count"] == one.sums["count"]
        torch.testing.assert_close(report.sums["loss"], one.sums["loss"], rtol=1e-4, atol=1e-4)
    for one, same in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, same, atol=1e-5, rtol=1e-4)
    assert model.seen == other.seen  # failed passes leave no trace in buffers


def test_memory_is_searched_for_once() -> None:
    calls = []
    loss, _ = limited(20)

    def counted(*arguments: Any) -> Loss:
        try:
            return loss(*arguments)
        except torch.OutOfMemoryError:
            calls.append(arguments[2])
            raise

    trained(counted)
    assert 1 <= len(calls) <= math.ceil(math.log2(60 / 20)) + 1


def test_one_pair_that_does_not_fit_is_an_error() -> None:
    loss, _ = limited(3)
    with pytest.raises(
        TrainingMemoryError, match=r"out of memory with one pair of \d+ source and \d+ target tokens.*lower training.max_tokens"
    ):
        trained(loss)
