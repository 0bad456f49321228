"""Ask a system which of two translations it prefers: one is right, the other has a verb in the wrong number."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Contrasted, System
from stages.corpus.embedded.contrast import Language
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class ContrastiveInputs:
    system: System


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig:
    """Which minimal pairs of the embedded grammar (`stages.corpus.embedded.contrast`) are compared."""

    pairs: int
    """Pairs of right and wrong translations."""
    target_language: Language
    """Language of the translations; the sources are in the other one."""


STAGE: Stage[ContrastiveInputs, ContrastiveConfig, Contrasted] = Stage(
    name="contrastive", version=1, run=Implementation(__name__), output=Contrasted, distributes=True
)
"""Raise the version when the pairs of `stages.corpus.embedded.contrast` change."""
