"""Find the fastest batch size for decoding, once for each kind of device in a step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import fewstep
from fewstep.decoding import batches, decode_batch
from stages.context import Context

BUDGETS = (500, 1000, 2000, 4000, 8000, 16000, 32000)
"""Padded source tokens in a batch, measured in this order."""
DEFAULT_BUDGET = 4000
"""Budget for a text that has no sentence to measure with."""

LOSS = 0.9
"""Measuring ends at the first budget that is slower than this fraction of the highest speed."""


class Calibration:
    """The batch size of a worker. Hypotheses do not depend on it (except for near-ties), so it is not part of fingerprints."""

    def __init__(self, system: fewstep.System, search: Any, device: str, context: Context) -> None:
        self._system = system
        self._search = search
        self._context = context
        self._device = _name(device)

    def batch_tokens(self, lines: Sequence[str]) -> int:
        """Return the recorded batch size for this kind of device. If it is not recorded yet, measure it with `lines`."""
        path = self._context.records(f"batch_tokens.{self._device}.json")
        if (known := _recorded(path)) is not None:
            return known
        speeds = self.speeds(self._system.encode(lines))
        best = max(speeds, key=lambda budget: speeds[budget], default=DEFAULT_BUDGET)
        values = {
            "batch_tokens": best,
            "source_tokens_per_second": {str(budget): round(rate, 1) for budget, rate in speeds.items()},
        }
        temporary = self._context.temporary(path).with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        try:
            os.link(temporary, path)  # the first of several workers that measured at the same time wins
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return _recorded(path) or best

    def speeds(self, sources: Sequence[list[int]]) -> dict[int, float]:
        """Return source tokens per second by budget, for batches of sentences of medium length. The first batch is a warm-up."""
        found: dict[int, float] = {}
        lengths = [len(ids) for ids in sources]
        largest = sum(length + 1 for length in lengths)
        for warm, budget in ((False, BUDGETS[0]), *((True, budget) for budget in BUDGETS)):
            planned = batches(lengths, budget)
            if not planned or (found and budget > 2 * largest):
                break
            batch = [sources[index] for index in planned[len(planned) // 2]]
            began = time.perf_counter()
            decode_batch(self._system.decoder, batch, self._search)
            if not warm:
                continue
            found[budget] = sum(len(ids) + 1 for ids in batch) / max(time.perf_counter() - began, 1e-9)
            if found[budget] < LOSS * max(found.values()):
                break
        return found


def _recorded(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["batch_tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _name(device: str) -> str:
    """The kind of a device, as a part of a file name."""
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return "".join(letter if letter.isalnum() else "-" for letter in name)
