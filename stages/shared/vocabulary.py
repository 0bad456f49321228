"""Loading of the vocabulary of an artifact or a system."""

from __future__ import annotations

import json
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from fewstep.bounded_files import read_bounded
from fewstep.byte_pieces import byte_pieces
from fewstep.mapped_pieces import MappedPieces
from fewstep.system.format import MERGES
from fewstep.vocabulary import RESERVED
from stages.errors import ArtifactError


def processor(directory: Path, side: str) -> SentencePieceProcessor:
    """Load the SentencePiece model of one side of a vocabulary.

    Raises ArtifactError when it is missing or has other reserved ids.
    """
    path = directory / f"{side}.spm"
    try:
        loaded = SentencePieceProcessor(model_proto=read_bounded(path))
    except (OSError, RuntimeError, ValueError) as error:
        raise ArtifactError(f"{path}: expected a SentencePiece model, got: {error}; remove the artifact and run again") from error
    first = tuple(loaded.id_to_piece(list(range(min(len(RESERVED), loaded.get_piece_size())))))
    if first != RESERVED:
        raise ArtifactError(f"{path}: expected the first pieces {' '.join(RESERVED)}, got {' '.join(first)}; train it with fewstep")
    return _mapped(loaded, directory, side)


def _mapped(pieces: SentencePieceProcessor, directory: Path, side: str) -> SentencePieceProcessor:
    """Return the pieces with the ids of an imported vocabulary, if the directory holds one."""
    if (directory / MERGES).is_file():
        return byte_pieces(directory / f"{side}.spm", pieces.get_piece_size(), directory / MERGES)
    path = directory / "vocabulary.json"
    described = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not described.get("mapped"):
        return pieces
    return MappedPieces(pieces.serialized_model_proto(), described[f"{side}_size"])
