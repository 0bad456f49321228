"""Statistics of drafting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fewstep.translation import Hypothesis


@dataclass
class DraftRecord:
    """Totals of a decoder over sentences."""

    sentences: int = 0
    tokens: int = 0
    """Number of written tokens, without EOS."""
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    fell_back: int = 0
    """Number of sentences for which drafting was given up."""
    proposed_at: list[int] = field(default_factory=list)
    """Number of drafts, by position in a block, whose predecessors in the block were all accepted."""
    accepted_at: list[int] = field(default_factory=list)
    """Number of drafts of `proposed_at`, by position in a block, that were accepted as well."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by part; native decoding only."""

    def add(self, best: Hypothesis) -> None:
        """Add the hypothesis of a sentence."""
        statistics = best.statistics
        self.sentences += 1
        self.tokens += len(best.ids)
        self.steps += best.steps
        self.drafted += statistics["drafted"]
        self.accepted += statistics["accepted"]
        self.fell_back += statistics["fell_back"]
        proposed, accepted = statistics["proposed_at"], statistics["accepted_at"]
        if (missing := len(proposed) - len(self.proposed_at)) > 0:
            self.proposed_at += [0] * missing
            self.accepted_at += [0] * missing
        for position, count in enumerate(proposed):
            if not count:  # later positions were not reached either
                break
            self.proposed_at[position] += count
            self.accepted_at[position] += accepted[position]

    def add_seconds(self, seconds: dict[str, float]) -> None:
        """Add the seconds of a batch, by part."""
        for part, value in seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value


def draft_statistics(
    margin: float, drafted: int, accepted: int, fell_back: bool, proposed_at: Sequence[int], accepted_at: Sequence[int]
) -> dict[str, Any]:
    """Return the statistics of a hypothesis; see `DraftRecord` for their meaning."""
    return {
        "margin": margin,
        "drafted": drafted,
        "accepted": accepted,
        "fell_back": fell_back,
        "proposed_at": proposed_at,
        "accepted_at": accepted_at,
    }
