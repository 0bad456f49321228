"""Train SentencePiece on the training text, or import models that were trained elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import Ge, Gt, Le
from fewstep.text.masks import Kind
from stages.artifacts import ExternalFile, Text, Vocabulary
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class PieceFiles:
    """SentencePiece models that were trained elsewhere, with the dictionaries of fairseq that number their pieces, or dictionaries
    alone, whose symbols are tokens separated by spaces."""

    source: ExternalFile | None
    target: ExternalFile | None = None
    """None: the model of the source."""
    source_dictionary: ExternalFile | None = None
    """None: the order of the model."""
    target_dictionary: ExternalFile | None = None
    """None: the dictionary of the source."""

    @property
    def joint(self) -> bool:
        """Whether both sides have one vocabulary: one model without dictionaries, or one dictionary."""
        return self.target_dictionary is None and (self.target is None or self.source_dictionary is not None)


@dataclass(frozen=True)
class VocabularyInputs:
    text: Text | None = None
    """Text to train on; with `files` the text whose tokens a dictionary without models has to hold."""
    files: PieceFiles | None = None
    """Files to import; None trains on the text."""


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Subword vocabulary."""

    size: Annotated[int, Gt(8)] = 8000
    """Number of pieces, including the seven reserved ids (of each side if the vocabularies are separate)."""
    exact: bool = True
    """Train exactly `size` pieces. Otherwise as many as the text supports if it supports fewer, and twice as many as it has
    characters if `size` is less than that number; `size: auto` implies this."""
    joint: bool = True
    """Use one vocabulary for both sides, with tied embeddings, instead of one for each side."""
    model: Literal["unigram", "bpe", "word"] = "unigram"
    """Model type of SentencePiece. `word`: the text is split already, as by Moses and subword-nmt; tokens are separated by spaces,
    and the `size` most frequent ones are counted."""
    byte_fallback: bool | None = None
    """Write characters that have no piece as bytes, for which 256 pieces are reserved, so that no character is unknown. None: if
    `size` is at least 4,000."""
    character_coverage: Annotated[float, Gt(0), Le(1)] | None = None
    """Fraction of characters that the pieces cover; others are unknown, or bytes. None: 0.9995 with `byte_fallback`, so that bytes
    occur in training, else 1."""
    sentences: Annotated[int, Ge(1)] = 2_000_000
    """Largest number of lines of each side to train on; they are evenly spaced over the text."""


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(VocabularyOptions):
    """Training of a vocabulary."""

    placeholders: tuple[Kind, ...] = ()
    """Kinds of placeholders for which the vocabulary has masks (`fewstep.text.masks`)."""


BYTE_FALLBACK_SIZE = 4000
"""Size of vocabularies that have room for bytes."""

STAGE: Stage[VocabularyInputs, VocabularyConfig, Vocabulary] = Stage(
    name="vocabulary", version=2, run=Implementation(__name__), output=Vocabulary
)
