"""Vocabularies: reserved ids, SentencePiece models, and the normalisation of lines before they are encoded."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fewstep.bounded_files import read_bounded
from fewstep.system.format import BundleError
from fewstep.text.normalise import normalise

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

log = logging.getLogger("fewstep")

PAD, BOS, EOS, UNK, MASK, BLANK, LENGTH = range(7)
RESERVED = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", "<blank>", "<length>")
"""The first seven pieces of every vocabulary, source and target alike."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""The character in place of an invalid one."""

PIECES = ("source.spm", "target.spm")


def load_pieces(path: Path, size: int) -> SentencePieceProcessor:
    """Load a vocabulary of `size` pieces that begins with the reserved ones. Raises BundleError for any other file."""
    from sentencepiece import SentencePieceProcessor

    try:
        pieces = SentencePieceProcessor(model_proto=read_bounded(path))
        names = pieces.id_to_piece(list(range(len(pieces))))
    except (OSError, RuntimeError, ValueError) as error:
        raise BundleError(f"{path}: expected a SentencePiece model, got: {error}; the file is damaged") from error
    if len(pieces) != size:
        raise BundleError(f"{path}: expected {size} pieces as the network has, got {len(pieces)}; it is another vocabulary")
    first = tuple(names[: len(RESERVED)])
    if first != RESERVED:
        raise BundleError(
            f"{path}: expected the first pieces {' '.join(RESERVED)}, got {' '.join(first)}; it is another vocabulary"
        )
    return pieces


def clean(line: str, number: int) -> str:
    """Return a line as training text is: valid Unicode, normalised (`fewstep.text.normalise`).

    `number` names the line in the warning about invalid characters, which are replaced.
    """
    if line.isascii() and line.isprintable():  # This holds for most text and takes a fraction of the time.
        return " ".join(line.split())
    whole = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # UTF-16, so that pairs of surrogates are characters
    if whole != line:
        log.warning("line %d: not valid Unicode; invalid characters are replaced", number)
    return normalise(whole)


def vocabulary_digest(directory: Path) -> bytes:
    """Return 32 bytes that identify the vocabulary in `source.spm` and `target.spm` of a directory (a vocabulary or a system).

    Raises OSError or ValueError if one of them cannot be read.
    """
    parts = [hashlib.sha256(read_bounded(directory / name)).digest() for name in PIECES]
    return hashlib.sha256(b"".join(parts)).digest()


def unknown_pieces(pieces: SentencePieceProcessor, line: str, ids: list[int]) -> tuple[str, ...]:
    """Return the different pieces of a cleaned line, whose ids are `ids`, that the vocabulary lacks, in their order."""
    if UNK not in ids:
        return ()
    from sentencepiece import SentencePieceProcessor

    # The method of the base class: classes of the project that map pieces to ids return ids alone.
    names = SentencePieceProcessor.encode(pieces, line, out_type=str)
    unknown = (name.strip("\N{LOWER ONE EIGHTH BLOCK}") for name, token in zip(names, ids, strict=True) if token == UNK)
    return tuple(dict.fromkeys(unknown))
