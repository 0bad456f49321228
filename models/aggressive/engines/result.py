"""The result of an engine."""

from __future__ import annotations

from typing import NamedTuple

from fewstep.translation import Hypothesis


class Drafting(NamedTuple):
    """The hypotheses of a batch of sources."""

    hypotheses: list[Hypothesis]
    seconds: dict[str, float]
    """Seconds by part, summed over threads; empty where they are not measured."""
