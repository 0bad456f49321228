"""The outputs of a batch while drafts are written and verified."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewstep.families.aggressive.record import draft_statistics
from fewstep.translation import Hypothesis
from fewstep.vocabulary import PAD
from models.common.buffers import Size


class DraftState:
    """Outputs in progress, in buffers; every tensor has a row for each sentence of the batch."""

    def __init__(self, size: Size, width: int, device: torch.device) -> None:
        """`width` is the largest number of tokens in a block."""
        count = size.sentences
        self.limits, self.lengths, self.steps = torch.zeros((3, count), dtype=torch.int64, device=device)
        self.blocks, self.gained, self.drafted, self.accepted = torch.zeros((4, count), dtype=torch.int64, device=device)
        # The last column receives tokens that are not written.
        self.tokens = torch.full((count, size.slots + 1), PAD, device=device)
        self.widths = torch.full_like(self.lengths, width)
        self.ended, self.fell_back = torch.zeros((2, count), dtype=torch.bool, device=device)
        self.scores = torch.zeros(count, dtype=torch.float64, device=device)
        self.margins = torch.full((count,), torch.inf, device=device)
        self.proposed, self.accepted_at = torch.zeros((2, count, width), dtype=torch.int64, device=device)
        self.rows = torch.arange(count, device=device)

    def start(self, limits: Tensor) -> None:
        """Forget all outputs, and begin with maximum lengths [B] in tokens with EOS."""
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

    def last_tokens(self) -> Tensor:
        """Return the last token [B,1] of each output; any token for an empty one."""
        return self.tokens.gather(1, (self.lengths - 1).clamp(min=0)[:, None])

    def write(self, written: Tensor, inside: Tensor, ends: Tensor, scores: Tensor, margins: Tensor) -> Tensor:
        """Append those of the tokens `written` [B,Q] that are `inside` [B,Q] without the EOS, where `ends` [B,Q] is True, with
        their log-probabilities and margins [B,Q]; return the mask [B,Q] of the appended ones."""
        tokens = inside & ~ends
        offsets = torch.arange(written.size(1), device=written.device)
        positions = torch.where(tokens, self.lengths[:, None] + offsets, self.tokens.size(1) - 1)
        self.tokens.scatter_(1, positions, written)
        self.scores += scores.double().masked_fill(~inside, 0.0).sum(1)
        torch.minimum(self.margins, margins.masked_fill(~inside, torch.inf).amin(1), out=self.margins)
        self.lengths += tokens.sum(1)
        self.ended |= (ends & inside).any(1)
        return tokens

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


def up_to_eos(ends: Tensor) -> Tensor:
    """Return [B,Q], True up to the first slot where `ends` [B,Q] is True, this slot included."""
    counts = ends.long()
    return counts.cumsum(1) - counts == 0
