"""Times of work on a device."""

from __future__ import annotations

import time

import torch


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def out_of_time(deadline: float) -> bool:
    """Return whether `deadline`, by the monotonic clock that all processes share, has passed."""
    return time.monotonic() > deadline
