"""The sizes of the tensors that torch makes."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class TensorSizes(TorchDispatchMode):
    """Record the number of elements of each tensor that an operation returns, of the backward pass as well."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        if isinstance(found, torch.Tensor):
            self.sizes.append(found.numel())
        return found
