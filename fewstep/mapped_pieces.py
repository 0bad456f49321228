"""SentencePiece models of networks whose ids come from a map of pieces in a file of its own, as Marian's do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from fewstep.byte_pieces import byte_pieces
from fewstep.system.format import MERGES, SOURCE_PIECES, TARGET_PIECES
from fewstep.vocabulary import RESERVED, UNK, load_pieces


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
