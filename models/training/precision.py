"""What the products of a network are computed in while it is trained."""

from __future__ import annotations

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def arithmetic(precision: str, device: str) -> str:
    """`precision`, or fp32 in place of bf16 on a CPU without instructions for it, which would take ten times as long to lose
    digits. `device` is a torch device, as `cpu` or `cuda:0`."""
    on_cpu = torch.device(device).type == "cpu"
    return "fp32" if precision == "bf16" and on_cpu and not has_bf16() else precision


def has_bf16() -> bool:
    """Whether torch multiplies matrices in bf16 on this CPU with instructions of its own."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
