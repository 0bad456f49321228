"""Vocabularies other than SentencePiece's own: byte-level BPE (Radford et al. 2019), as in BART, whose pieces SentencePiece numbers
and a list of merges forms; and SentencePiece models whose ids come from a map of pieces in a file of its own, as Marian's do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from fewstep.bounded_files import read_bounded
from fewstep.system.format import MERGES, SOURCE_PIECES, TARGET_PIECES, BundleError
from fewstep.vocabulary import RESERVED, UNK, load_pieces

INSTALL = "pip install tokenizers"


class BytePieces(SentencePieceProcessor):
    """Pieces of bytes, with a space in front of words as a part of them.

    No text is encoded to a reserved piece. Decoded text has single spaces, as cleaned lines do.
    """

    def __init__(self, model_proto: bytes, merges: str) -> None:
        """`merges` is the text of `merges.txt`: a version, and two pieces on each line, those to be merged first on top.

        Raises ValueError for lines of another form and for pieces that the model lacks; ImportError without the package tokenizers.
        """
        super().__init__(model_proto=model_proto)
        try:
            from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        except ImportError as error:
            raise ImportError(f"byte-level BPE: expected the package tokenizers, got: {error}; install it: {INSTALL}") from error
        names = super().id_to_piece(list(range(len(self))))
        pairs = merge_pairs(merges)
        if unknown := sorted({piece for pair in pairs for piece in (*pair, "".join(pair))} - set(names)):
            raise ValueError(f"merges.txt: expected merges of the vocabulary's pieces, got {len(unknown)} others ({unknown[0]!r})")
        vocabulary = {name: number for number, name in enumerate(names)}
        self._tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token=RESERVED[UNK]))
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._bytes = decoders.ByteLevel()

    def encode(self, text: Any, **options: Any) -> Any:  # type: ignore[override]
        """Return the ids of a line, or those of each line of a list."""
        if not isinstance(text, str):
            return [self.encode(line) for line in text]
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], **options: Any) -> Any:  # type: ignore[override]
        """Return the text of a line of ids; reserved ones have none."""
        text = self._bytes.decode([self.id_to_piece(int(token)) for token in ids if token >= len(RESERVED)])
        return " ".join(text.split())


def merge_pairs(merges: str) -> list[tuple[str, str]]:
    """Return the pairs in a list of merges. Raises ValueError for lines of another form."""
    pairs = []
    for number, line in enumerate(merges.split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"merges.txt, line {number}: expected two pieces, got {line[:100]!r}; copy the file again")
        pairs.append((pair[0], pair[1]))
    return pairs


def byte_pieces(path: Path, size: int, merges: Path) -> BytePieces:
    """Load a vocabulary of `size` pieces with its merges. Raises BundleError for other files and without tokenizers."""
    try:
        return BytePieces(load_pieces(path, size).serialized_model_proto(), read_bounded(merges).decode("utf-8"))
    except (ImportError, OSError, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{merges}: {error}") from error


class MappedPieces(SentencePieceProcessor):
    """A SentencePiece model that segments text, while the ids of pieces follow from their names.

    Pieces from `size` on, of which there are `unmapped`, are not in the map: they are the unknown token. A character that the model
    does not know may be a piece of the other language, and then has its id.
    """

    def __init__(self, model_proto: bytes, size: int) -> None:
        super().__init__(model_proto=model_proto)
        self.size = size
        self.unmapped = super().get_piece_size() - size
        own = [id_ for id_ in range(len(RESERVED), size) if not self.is_control(id_)]
        self._ids = dict(zip(self.id_to_piece(own), own, strict=True))

    def __len__(self) -> int:
        return self.size

    def get_piece_size(self) -> int:
        """Return the number of pieces with an id of their own."""
        return self.size

    def encode(self, text: Any, **options: Any) -> Any:  # type: ignore[override]
        """Return the ids of a line, or those of each line of a list."""
        return self._mapped(super().encode(text, out_type=str, **options))

    def _mapped(self, pieces: Any) -> Any:
        return [self._mapped(one) if isinstance(one, list) else self._ids.get(one, UNK) for one in pieces]


def pieces_of(directory: Path, description: Mapping[str, Any], side: str, size: int) -> SentencePieceProcessor:
    """Load the vocabulary of one side of a system (`source` or `target`), whose network has `size` rows for it.

    Raises BundleError as `load_pieces` does, and for merges that do not fit the pieces.
    """
    path = directory / {"source": SOURCE_PIECES, "target": TARGET_PIECES}[side]
    if MERGES in description["parts"]:
        return byte_pieces(path, size, directory / MERGES)
    unmapped = description.get("unmapped_pieces", {}).get(side)
    if unmapped is None:
        return load_pieces(path, size)
    return MappedPieces(load_pieces(path, size + unmapped).serialized_model_proto(), size)
