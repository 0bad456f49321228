"""The language model of a system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentencepiece import SentencePieceProcessor

from fewstep import NgramModel
from models.bundle.weights import NGRAM, TARGET_PIECES, BundleError

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


def language_model(directory: Path) -> NgramScorer | None:
    """Return the n-gram scorer of a system over target ids, or None. Raises BundleError for a model of another vocabulary."""
    if not (directory / NGRAM).exists():
        return None
    pieces = SentencePieceProcessor(model_proto=(directory / TARGET_PIECES).read_bytes())
    try:
        return NgramModel.load(directory / NGRAM).for_vocabulary([pieces.id_to_piece(token) for token in range(len(pieces))])
    except (RuntimeError, ValueError) as error:
        raise BundleError(f"{directory / NGRAM}: {error}") from error
