"""Arithmetic of products in training."""

from __future__ import annotations

import torch

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def arithmetic(precision: str, device: str) -> str:
    """Return `precision`, or float32 in place of bfloat16 on a CPU without instructions for it, where it would be ten times slower.
    `device` is a torch device such as `cpu` or `cuda:0`."""
    on_cpu = torch.device(device).type == "cpu"
    return "float32" if precision == "bfloat16" and on_cpu and not has_bf16() else precision


def has_bf16() -> bool:
    """Whether torch multiplies matrices in bfloat16 on this CPU with instructions of its own."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
