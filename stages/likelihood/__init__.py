"""Score the references of a test set: the log-probability of each target under a system."""

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
    """There are no options: each target is scored as it is."""


STAGE: Stage[LikelihoodInputs, LikelihoodConfig, Likelihood] = Stage(
    name="likelihood", version=2, run=Implementation(__name__), output=Likelihood, distributes=True
)
"""The version was raised when batches changed, and with them the rounding of log-probabilities."""
