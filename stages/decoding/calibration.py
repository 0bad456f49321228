"""How many tokens a batch of decoding should have: tried out once for each kind of device, and kept for the rest of the step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.context import Context
from stages.decoding.batching import batches, decode_batch

if TYPE_CHECKING:
    import models.bundle.system

BUDGETS = (500, 1000, 2000, 4000, 8000, 16000, 32000)
"""Padded source tokens in a batch, tried in this order."""

LOSS = 0.9
"""Once a larger batch reaches less than this part of the best speed, none that is larger still is tried."""


class Calibration:
    """The batch size of one worker. Hypotheses do not depend on it (near-ties aside), so that it enters no fingerprint."""

    def __init__(self, system: models.bundle.system.System, search: Any, device: str, context: Context) -> None:
        self._system, self._search, self._work = system, search, context
        self._device = _name(device)

    def batch_tokens(self, lines: Sequence[str]) -> int:
        """What is on record for this kind of device in the step, or else found with `lines` and put on record."""
        path = self._work.records(f"batch_tokens.{self._device}.json")
        if (known := _recorded(path)) is not None:
            return known
        speeds = self.speeds(self._system.encode(lines))
        best = max(speeds, key=lambda budget: speeds[budget], default=BUDGETS[3])
        values = {
            "batch_tokens": best,
            "source_tokens_per_second": {str(budget): round(rate, 1) for budget, rate in speeds.items()},
        }
        temporary = self._work.temporary(path).with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        try:
            os.link(temporary, path)  # of several workers that tried at the same time the first is believed
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return _recorded(path) or best

    def speeds(self, sources: Sequence[list[int]]) -> dict[int, float]:
        """Source tokens a second with batches of each budget, of sentences of middle length; the first try only warms up."""
        found: dict[int, float] = {}
        lengths = [len(ids) for ids in sources]
        largest = sum(length + 1 for length in lengths)
        for warm, budget in ((False, BUDGETS[0]), *((True, budget) for budget in BUDGETS)):
            planned = batches(lengths, budget)
            if not planned or (found and budget > 2 * largest):
                break
            batch = [sources[index] for index in planned[len(planned) // 2]]
            began = time.perf_counter()
            decode_batch(self._system, self._search, batch)
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
    """The kind of a device, as a part of a file's name."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return "".join(letter if letter.isalnum() else "-" for letter in name)
