"""RunnerCache of fixed shapes and the check that they never wait for the host."""

import gc
import weakref

import pytest
import torch

from models.common.replay import KEPT_RUNNERS, RunnerCache
from tests.models.common.device_alone import DeviceAlone


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: bool(x.any()),
        lambda x: x.item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
        lambda x: x.repeat_interleave(x),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.cpu(),
        lambda x: torch.ones(3).to(x.device),
        lambda x: torch.ones(3)[x],
        lambda x: x + torch.ones(3),
    ],
)
def test_an_operation_that_needs_the_host_is_found(waits):
    with pytest.raises((AssertionError, NotImplementedError, RuntimeError, TypeError)), DeviceAlone():
        waits(torch.ones(3, dtype=torch.int64, device="meta"))


def test_operations_on_the_device_are_counted():
    with DeviceAlone() as calls:
        x = torch.arange(6, device="meta")
        (x * 2).cumsum(0)
    assert calls.calls == 3


class Buffers:
    """A runner that refers to itself, as real ones do."""

    def __init__(self, key):
        self.key, self.step = key, self.run

    def run(self):
        return self.key


def test_a_cpu_keeps_no_runner():
    made = []
    kept = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cpu"))
    assert [kept.call(1, Buffers.run), kept.call(1, Buffers.run)] == [1, 1]
    gc.collect()
    assert [runner() for runner in made] == [None, None]


def test_the_runner_that_was_not_used_for_longest_is_dropped_with_its_memory():
    made = []
    runners = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cuda"))
    for key in range(KEPT_RUNNERS):
        assert runners.call(key, Buffers.run) == key
    assert runners.call(0, Buffers.run) == 0
    runners.call(KEPT_RUNNERS, Buffers.run)
    assert [number for number, runner in enumerate(made) if runner() is None] == [1]
    runners.call(0, Buffers.run)
    assert len(made) == KEPT_RUNNERS + 1
    runners.call(1, Buffers.run)
    assert len(made) == KEPT_RUNNERS + 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), MemoryError()])
def test_runners_leave_their_memory_to_a_smaller_batch(error):
    made = []
    runners = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cuda"))

    def fails(runner):
        raise error

    runners.call(1, Buffers.run)
    with pytest.raises(type(error)):
        runners.call(2, fails)
    error.__traceback__ = None  # it holds the frames of the call
    gc.collect()
    assert [runner() for runner in made] == [None, None]
    assert runners.call(1, Buffers.run) == 1
