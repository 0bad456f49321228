"""Vocabularies: reserved ids, SentencePiece models, and the normalisation of lines before they are encoded."""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from fewstep.system.format import BundleError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

log = logging.getLogger("fewstep")

PAD, BOS, EOS, UNK, MASK, BLANK, LENGTH = range(7)
RESERVED = ("<pad>", "<s>", "</s>", "<unk>", "<mask>", "<blank>", "<length>")
"""The first seven pieces of every vocabulary, source and target alike."""

PIECES = ("source.spm", "target.spm")

_CONTROLS = (*range(0x09), *range(0x0E, 0x1C), *range(0x7F, 0x85), *range(0x86, 0xA0), 0xFEFF)
# SentencePiece writes a space as U+2581: in text that character counts as a space.
_REMOVED = {**dict.fromkeys(_CONTROLS), 0x2581: " "}


def load_pieces(path: Path, size: int) -> SentencePieceProcessor:
    """Load a vocabulary of `size` pieces that begins with the reserved ones. Raises BundleError for any other file."""
    from sentencepiece import SentencePieceProcessor

    try:
        pieces = SentencePieceProcessor(model_proto=path.read_bytes())
        names = pieces.id_to_piece(list(range(len(pieces))))
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
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
    """Return a line as training text is: valid Unicode in NFC, without control characters, words separated by single spaces.

    `number` names the line in the warning about invalid characters, which are replaced.
    """
    if line.isascii() and line.isprintable():  # This holds for most text and takes a fraction of the time.
        return " ".join(line.split())
    whole = line.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if whole != line:
        log.warning("line %d: not valid Unicode; invalid characters are replaced", number)
    return " ".join(unicodedata.normalize("NFC", whole.translate(_REMOVED)).split())


def vocabulary_digest(directory: Path) -> bytes:
    """Return 32 bytes that identify the vocabulary in `source.spm` and `target.spm` of a directory (a vocabulary or a system).

    Raises OSError if one of them cannot be read.
    """
    parts = [hashlib.sha256((directory / name).read_bytes()).digest() for name in PIECES]
    return hashlib.sha256(b"".join(parts)).digest()
