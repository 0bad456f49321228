"""Train SentencePiece on the training text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.artifacts import Text, Vocabulary
from stages.stage import Stage, Work


@dataclass(frozen=True)
class VocabularyInputs:
    text: Text


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Subword vocabulary."""

    size: int = 8000
    """Pieces, the seven reserved ids included (of each side when separate)."""
    joint: bool = True
    """One vocabulary for both sides, with tied embeddings, or one for each."""
    model: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece model type."""
    character_coverage: float = 1.0
    """Fraction of characters covered; the rest become unknown."""
    sentences: int = 2_000_000
    """Lines, evenly spaced over the text, that it is trained on at most (of each side)."""


def run(inputs: VocabularyInputs, config: VocabularyConfig, work: Work) -> None: ...


STAGE = Stage(name="vocabulary", version=1, run=run, output=Vocabulary)
