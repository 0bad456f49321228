"""Lines of metrics from the reports of a training."""

from __future__ import annotations

import math
import time

import torch

from models.training.loop import Report


class Meter:
    """Sums over the updates since the last line of metrics. Only time spent training counts."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._seconds = 0.0
        self.resume()

    def resume(self) -> None:
        """Leave out the time since the last update."""
        self._mark = time.monotonic()

    def add(self, report: Report) -> None:
        self._reports.append(report)
        self._seconds += time.monotonic() - self._mark
        self.resume()

    def line(self) -> dict[str, float]:
        """The metrics of these updates, those that are finite; starts anew."""
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
    """e to the power of so many nats a token."""
    return math.exp(min(nats, 100.0))


def finite(line: dict[str, float]) -> dict[str, float]:
    """The values that JSON can hold."""
    return {name: value for name, value in line.items() if math.isfinite(value)}
