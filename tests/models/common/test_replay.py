"""Programs of fixed shapes and the check that they never wait for the host."""

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


def test_the_program_that_was_not_used_for_longest_is_dropped():
    made = []
    programs = Programs(lambda key: made.append(key) or key)
    for key in range(KEPT_PROGRAMS):
        assert programs[key] == key
    assert programs[0] == 0
    programs[KEPT_PROGRAMS]
    assert programs[0] == 0
    assert made == [*range(KEPT_PROGRAMS), KEPT_PROGRAMS]
    programs[1]
    assert made[-1] == 1
