"""The proof that a search never waits for the host, and the buffers that it has on a GPU, without a GPU.

Tensors on the device `meta` have shapes and no values: everything that would need a value on the host (`item`, `nonzero`,
boolean indexing, `numpy`, copies to the CPU) raises an error. The mode below also refuses operations with tensors of the CPU,
which would be copied to a GPU at each call, and numbers written to indices that are tensors: torch makes each a tensor of the CPU
first, which no capture may copy, but on `meta` looks like one of the device.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextmanager
def buffers_of_a_gpu():
    """Give decoders on the CPU the buffers of a GPU: rounded sizes, which serve one batch after another."""
    with patch("models.common.buffers.captures", lambda device: True):
        yield


WRITES = (torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default)


class DeviceAlone(TorchDispatchMode):
    """Refuse operations that read or return a tensor outside the device, and count those that are left."""

    def __init__(self, device="meta"):
        super().__init__()
        self.device, self.calls = device, 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function in WRITES:
            assert arguments[2].dim(), f"{function}: expected a tensor, got a number, which is copied from the host"
        found = function(*arguments, **(options or {}))
        tensors = [leaf for leaf in tree_leaves((arguments, options, found)) if isinstance(leaf, torch.Tensor)]
        strangers = [tensor for tensor in tensors if tensor.device.type != self.device]
        assert not strangers, f"{function}: expected tensors on {self.device}, got {[tensor.device for tensor in strangers]}"
        self.calls += 1
        return found
