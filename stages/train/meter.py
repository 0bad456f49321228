"""Metrics of a training from the reports of its updates."""

from __future__ import annotations

import math
import time

import torch

from models.training.loop import Report


class Meter:
    """Sums over the updates since the last line of metrics. Time outside of updates is not counted."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._seconds = 0.0
        self.resume()

    def resume(self) -> None:
        """Exclude the time since the last update."""
        self._mark = time.monotonic()

    def add(self, report: Report) -> None:
        """Add the report of an update."""
        self._reports.append(report)
        self._seconds += time.monotonic() - self._mark
        self.resume()

    def line(self) -> dict[str, float]:
        """Return the finite metrics of these updates, and reset the sums."""
        reports, names = self._reports, list(self._reports[0].sums)
        tensor = torch.stack([torch.stack([report.sums[name] for name in names]) for report in reports]).sum(0)
        sums = dict(zip(names, tensor.tolist(), strict=True))
        count = sums.pop("count")
        self._seconds += time.monotonic() - self._mark
        line = {name: value / count for name, value in sums.items()}
        line |= {
            "perplexity": perplexity(line.get("nll", line["loss"])),
            "learning_rate": reports[-1].learning_rate,
            "gradient_norm": float(reports[-1].gradient_norm),
            "target_tokens_per_second": count / max(self._seconds, 1e-9),
            "padding_efficiency": sum(r.real_tokens for r in reports) / sum(r.padded_tokens for r in reports),
        }
        self._reports, self._seconds = [], 0.0
        self.resume()
        return finite(line)


def perplexity(nats: float) -> float:
    """Return the perplexity of a loss in nats per token, with an upper limit of exp(100)."""
    return math.exp(min(nats, 100.0))


def finite(line: dict[str, float]) -> dict[str, float]:
    """Return the finite values, since JSON has no others."""
    return {name: value for name, value in line.items() if math.isfinite(value)}
