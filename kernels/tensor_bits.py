"""Tensors of half precision as arrays for native code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def tensor_bits(tensor: Tensor, name: str) -> Any:
    """Return an array that shares a tensor's memory: floats, or the bits of bfloat16, for which NumPy has no type, as integers.

    Raises TypeError for other types.
    """
    if tensor.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"{name}: expected float32 or bfloat16, got {tensor.dtype}; convert with .float()")
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
