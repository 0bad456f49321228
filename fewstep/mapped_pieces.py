"""SentencePiece models with more pieces than the network that they belong to has rows."""

from __future__ import annotations

from typing import Any

from sentencepiece import SentencePieceProcessor

from fewstep.vocabulary import UNK


class MappedPieces(SentencePieceProcessor):  # type: ignore[misc]  # SentencePiece has no types
    """A SentencePiece model whose pieces from `size` on only segment text: `encode` replaces them by the unknown token.

    Marian's vocabularies map pieces to ids in a file of their own, which may leave out pieces of the model.
    """

    def __init__(self, model_proto: bytes, size: int) -> None:
        super().__init__(model_proto=model_proto)
        self.size = size

    def __len__(self) -> int:
        return self.size

    def get_piece_size(self) -> int:
        """Return the number of pieces with an id of their own."""
        return self.size

    def encode(self, text: Any, **options: Any) -> Any:
        """Return the ids of a line, or those of each line of a list."""
        return self._mapped(super().encode(text, **options))

    def _mapped(self, ids: Any) -> Any:
        return [self._mapped(one) if isinstance(one, list) else one if one < self.size else UNK for one in ids]
