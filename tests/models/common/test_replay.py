"""Programs of fixed shapes and the check that they never wait for the host."""

import gc
import weakref

import pytest
import torch

from models.common.replay import KEPT_PROGRAMS, Programs
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
    """A program that refers to itself, as real ones do."""

    def __init__(self, key):
        self.key, self.step = key, self.run

    def run(self):
        return self.key


def test_the_program_that_was_not_used_for_longest_is_dropped_with_its_memory():
    made = []
    programs = Programs(lambda key: made.append(weakref.ref(program := Buffers(key))) or program)
    for key in range(KEPT_PROGRAMS):
        assert programs.call(key, Buffers.run) == key
    assert programs.call(0, Buffers.run) == 0
    programs.call(KEPT_PROGRAMS, Buffers.run)
    assert [number for number, program in enumerate(made) if program() is None] == [1]
    programs.call(0, Buffers.run)
    assert len(made) == KEPT_PROGRAMS + 1
    programs.call(1, Buffers.run)
    assert len(made) == KEPT_PROGRAMS + 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), MemoryError()])
def test_programs_leave_their_memory_to_a_smaller_batch(error):
    made = []
    programs = Programs(lambda key: made.append(weakref.ref(program := Buffers(key))) or program)

    def fails(program):
        raise error

    programs.call(1, Buffers.run)
    with pytest.raises(type(error)):
        programs.call(2, fails)
    error.__traceback__ = None  # it holds the frames of the call
    gc.collect()
    assert [program() for program in made] == [None, None]
    assert programs.call(1, Buffers.run) == 1
