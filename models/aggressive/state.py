"""The outputs of a batch while drafts are written and verified."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewstep.families.aggressive.record import draft_statistics
from fewstep.translation import Hypothesis
from fewstep.vocabulary import PAD


class State:
    """Outputs in progress; every tensor has a row for each sentence of the batch."""

    def __init__(self, limits: Tensor, width: int, slots: int | None = None) -> None:
        """`limits` [B] are maximum output lengths, and `slots` is the largest one that any batch has; None: that of this batch."""
        count, device = len(limits), limits.device
        self.limits = limits
        self.tokens = torch.full((count, (int(limits.max()) if slots is None else slots) + 1), PAD, device=device)
        self.lengths, self.steps, self.blocks, self.gained, self.drafted, self.accepted = torch.zeros(
            (6, count), dtype=torch.int64, device=device
        )
        self.widths = torch.full_like(self.lengths, width)
        self.ended, self.fell_back = torch.zeros((2, count), dtype=torch.bool, device=device)
        self.scores = torch.zeros(count, dtype=torch.float64, device=device)
        self.margins = torch.full((count,), torch.inf, device=device)
        self.proposed, self.accepted_at = torch.zeros((2, count, width), dtype=torch.int64, device=device)

    def restart(self, limits: Tensor) -> None:
        """Forget all outputs, in place, and begin with other maximum lengths [B]."""
        self.limits.copy_(limits)
        self.tokens.fill_(PAD)
        counts = (self.lengths, self.steps, self.blocks, self.gained, self.drafted, self.accepted, self.proposed, self.accepted_at)
        for part in (*counts, self.ended, self.fell_back, self.scores):
            part.zero_()
        self.widths.fill_(self.proposed.size(1))
        self.margins.fill_(torch.inf)

    def going(self) -> Tensor:
        """Return [B], True for unfinished outputs."""
        going: Tensor = ~self.ended & (self.lengths < self.limits)
        return going

    def last_tokens(self, rows: Tensor) -> Tensor:
        """Return the last token [R,1] of each output; any token for an empty one."""
        return self.tokens[rows, (self.lengths[rows] - 1).clamp(min=0)][:, None]

    def hypotheses(self) -> list[Hypothesis]:
        """Return the hypothesis of each sentence."""
        scores = self.scores / (self.lengths + self.ended).clamp(min=1)
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), scores.tolist(), self.steps.tolist(), strict=True)
        return [
            Hypothesis(row[:length], score, steps, statistics)
            for (row, length, score, steps), statistics in zip(rows, self._statistics(), strict=True)
        ]

    def _statistics(self) -> list[dict[str, Any]]:
        tensors = (self.margins, self.drafted, self.accepted, self.fell_back, self.proposed, self.accepted_at)
        return [draft_statistics(*row) for row in zip(*(values.tolist() for values in tensors), strict=True)]
