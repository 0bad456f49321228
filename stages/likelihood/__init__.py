"""Score the translations of a test set itself: how likely does a system hold each?"""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Likelihood, System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class LikelihoodInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class LikelihoodConfig:
    """There is nothing to choose: each target is scored as it stands."""


STAGE: Stage[LikelihoodInputs, LikelihoodConfig, Likelihood] = Stage(
    name="likelihood", version=1, run=Implementation(__name__), output=Likelihood, distributes=True
)
"""Log-probabilities of given translations, and perplexity."""
