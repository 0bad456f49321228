"""Train SentencePiece on the training text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from stages.artifacts import Text, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class VocabularyInputs:
    text: Text


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Subword vocabulary."""

    size: Annotated[int, Gt(8)] = 8000
    """Pieces, the seven reserved ids included (of each side when separate)."""
    joint: bool = True
    """One vocabulary for both sides, with tied embeddings, or one for each."""
    model: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece model type."""
    character_coverage: Annotated[float, Gt(0), Le(1)] = 1.0
    """Fraction of characters covered; the rest become unknown."""
    sentences: Annotated[int, Ge(1)] = 2_000_000
    """Lines, evenly spaced over the text, that it is trained on at most (of each side)."""


STAGE: Stage[VocabularyInputs, VocabularyConfig, Vocabulary] = Stage(
    name="vocabulary", version=1, run=Implementation(__name__), output=Vocabulary
)
