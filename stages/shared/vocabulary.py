"""Loading of the vocabulary of an artifact or a system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from fewstep.bounded_files import read_bounded
from fewstep.pieces import MappedPieces, byte_pieces
from fewstep.system.format import MERGES, json_object
from fewstep.vocabulary import RESERVED
from stages.errors import ArtifactError

RECORD, SYSTEM = "vocabulary.json", "system.json"
"""The descriptions of a vocabulary and of a system."""


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
    described = vocabulary_record(directory) if (directory / RECORD).is_file() or (directory / SYSTEM).is_file() else {}
    if not described.get("mapped"):
        return pieces
    return MappedPieces(pieces.serialized_model_proto(), described[f"{side}_size"])


def vocabulary_record(directory: Path) -> dict[str, Any]:
    """Return `joint`, `source_size`, `target_size` and, for ids of an imported map, `mapped` of a vocabulary, or of the one that a
    system brings.

    Raises ArtifactError for files that do not state them.
    """
    path = directory / RECORD
    try:
        if path.is_file():
            found = json_object(read_bounded(path))
            return {**found, **{key: found[key] for key in ("joint", "source_size", "target_size")}}
        path = directory / SYSTEM
        described = json_object(read_bounded(path))
        sizes = described["sizes"]
        mapped = {"mapped": True} if "unmapped_pieces" in described else {}
        return {"joint": sizes["joint"], "source_size": sizes["source"], "target_size": sizes["target"], **mapped}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: expected JSON with joint, source_size and target_size, got: {error!r}; remove the artifact and run again"
        ) from error
