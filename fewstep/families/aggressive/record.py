"""Statistics of drafting."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.translation import Hypothesis

log = logging.getLogger("fewstep")


class Drafting(NamedTuple):
    """The hypotheses of a batch of sources."""

    hypotheses: list[Hypothesis]
    seconds: dict[str, float]
    """Seconds by part, summed over threads; empty where they are not measured."""


@dataclass
class DraftRecord:
    """Totals of a decoder over sentences. Several threads may add to them."""

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

    _warned: bool = False
    _lock: Lock = field(default_factory=Lock)

    def add(self, found: Drafting, search: AggressiveSearch) -> None:
        """Add the hypotheses of a batch, and warn once if `search` gave up drafting for most sentences."""
        with self._lock:
            for hypothesis in found.hypotheses:
                self._add(hypothesis)
            for part, value in found.seconds.items():
                self.seconds[part] = self.seconds.get(part, 0.0) + value
            self._warn(search)

    def _add(self, best: Hypothesis) -> None:
        statistics: Mapping[str, Any] = best.statistics
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

    def _warn(self, search: AggressiveSearch) -> None:
        if self._warned or search.strategy in ("greedy", "draft") or self.sentences < 10 or 2 * self.fell_back <= self.sentences:
            return
        self._warned = True
        if search.looks_up:
            cause = "few n-grams of their outputs stand in the text that is looked up; shorten `ngram`, or draft with the network"
        elif search.drafts_by == "jacobi":
            cause = "the verifier changes most of its own guesses, as is usual in Jacobi decoding; draft with the network"
        elif search.drafts_by == "draft_model":
            cause = "the draft model writes other tokens than the verifier; train it with `data: distilled`, or use another search"
        else:
            cause = (
                "the drafter is untrained, or was trained on text other than the verifier's output; train it longer with "
                "`data: verifier`, or use another search"
            )
        log.warning(
            "drafting was given up for %d of %d sentences, which were decoded greedily: %s", self.fell_back, self.sentences, cause
        )


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
