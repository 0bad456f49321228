"""Arithmetic of products in training."""

from __future__ import annotations

import torch

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def arithmetic(precision: str, device: str) -> str:
    """Return the arithmetic of a device for the `precision` of a config: bfloat16 (or float16 on a GPU without it) for `auto`, and
    otherwise the precision itself, or float32 in place of bfloat16 on a CPU without instructions for it, where it would be ten
    times slower.
    `device` is a torch device such as `cpu` or `cuda:0`."""
    if precision == "auto":
        precision = "float16" if torch.device(device).type == "cuda" and not torch.cuda.is_bf16_supported() else "bfloat16"
    on_cpu = torch.device(device).type == "cpu"
    return "float32" if precision == "bfloat16" and on_cpu and not has_bf16() else precision


def has_bf16() -> bool:
    """Whether torch multiplies matrices in bfloat16 on this CPU with instructions of its own."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
