"""Train SentencePiece on the training text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Le
from stages.artifacts import Text, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class VocabularyInputs:
    text: Text


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Subword vocabulary."""

    size: Annotated[int, Gt(8)] = 8000
    """Number of pieces, including the seven reserved ids (of each side if the vocabularies are separate)."""
    exact: bool = True
    """Train exactly `size` pieces. Otherwise as many as the text supports if it supports fewer, and twice as many as it has
    characters if `size` is less than that number; `size: auto` implies this."""
    joint: bool = True
    """Use one vocabulary for both sides, with tied embeddings, instead of one for each side."""
    model: Literal["unigram", "bpe"] = "unigram"
    """Model type of SentencePiece."""
    character_coverage: Annotated[float, Gt(0), Le(1)] = 1.0
    """Fraction of characters that the pieces cover; other characters are unknown."""
    sentences: Annotated[int, Ge(1)] = 2_000_000
    """Largest number of lines of each side to train on; they are evenly spaced over the text."""


STAGE: Stage[VocabularyInputs, VocabularyConfig, Vocabulary] = Stage(
    name="vocabulary", version=1, run=Implementation(__name__), output=Vocabulary
)
