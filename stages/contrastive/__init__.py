"""Compare the probabilities of correct translations with those of translations that differ from them by one error."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Artifact, ExternalFile, System
from stages.shared.embedded.contrast import Language
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class Contrasted(Artifact):
    """A contrastive evaluation.

    `shards/00000.arrow` (source, right, wrong, type; distance int32, frequency int64; log-probabilities and tokens of both),
    `contrastive.json` (`stages.contrastive.run.summarise`).
    """


@dataclass(frozen=True)
class ContrastiveInputs:
    system: System
    pairs: ExternalFile | None = None
    """Contrastive pairs in the form of LingEval97 (`stages.contrastive.sentences`). None: those of the embedded grammar."""


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig:
    """Minimal pairs of the embedded grammar (`stages.shared.embedded.contrast`)."""

    pairs: int
    """Number of pairs of right and wrong translations. A file of pairs replaces them."""
    target_language: Language
    """Language of the translations. The sources are in the other language."""


STAGE: Stage[ContrastiveInputs, ContrastiveConfig, Contrasted] = Stage(
    name="contrastive", version=3, run=Implementation(__name__), output=Contrasted, distributes=True
)
"""Raise the version when the pairs of `stages.shared.embedded.contrast` or the batches change."""
