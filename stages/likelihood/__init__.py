"""Score the references of a test set: the log-probability of each target under a system."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Artifact, System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class Likelihood(Artifact):
    """Log-probabilities of given translations.

    `shards/00000.arrow`, ... (id int64; log_probability float64, null for a pair that is left out; tokens int32 with EOS; left_out
    string: the reason), `likelihood.json` (rows, left_out by reason, tokens and log_probability of the others, perplexity,
    vocabulary).
    """


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
