"""Vocabularies of other toolkits in the order of fewstep: reserved ids first, then the foreign pieces in their own order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewstep.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from models.imports.files import ForeignModelError


@dataclass(frozen=True)
class PieceOrder:
    """The pieces of a foreign vocabulary by their new ids."""

    file: str
    """Name of the file that lists the pieces."""
    rows: tuple[int | None, ...]
    """The old id of each new one; None for reserved ids that the foreign vocabulary does not have."""
    names: tuple[str, ...]
    """The piece of each new id."""

    def __len__(self) -> int:
        return len(self.rows)

    def permuted(self, table: Tensor, fill: float = 0.0) -> Tensor:
        """Return the rows of a foreign table in the new order, and `fill` for ids without an old row."""
        new = table.new_full((len(self), *table.shape[1:]), fill)
        for row, old in enumerate(self.rows):
            if old is not None:
                new[row] = table[old]
        return new

    def bias(self, old: Tensor) -> Tensor:
        """Return a logits bias [V] in the new order, minus infinity for pad and the other reserved ids without a row."""
        new = self.permuted(old, -torch.inf)
        new[PAD] = -torch.inf
        return new


def piece_order(file: str, ids: Mapping[str, Any], reserved: Mapping[int, str], size: int) -> PieceOrder:
    """Return the order of a vocabulary of pieces with their ids, in which `reserved` names the pieces of our reserved ids.

    Raises ForeignModelError unless each of `size` ids has one piece.
    """
    if missing := [name for name in reserved.values() if name not in ids]:
        raise ForeignModelError(
            f"{file}: expected the piece {missing[0]}, got {len(ids)} others; use the vocabulary of this network"
        )
    numbers = {number for number in ids.values() if type(number) is int}
    if len(ids) != size or numbers != set(range(size)):
        found = f"ids {min(numbers)} to {max(numbers)}" if numbers else "no numbers"
        raise ForeignModelError(
            f"{file}: expected {size} symbols with the ids 0 to {size - 1} for {size} rows, got {len(ids)} ({found}); use the "
            "vocabulary of this network"
        )
    taken = set(reserved.values())
    rest = [name for name in sorted(ids, key=ids.__getitem__) if name not in taken]
    first = [ids[reserved[token]] if token in reserved else None for token in range(len(RESERVED))]
    return PieceOrder(file, (*first, *(ids[name] for name in rest)), (*RESERVED, *rest))


def is_language_token(piece: str) -> bool:
    """Return whether a piece stands for a target language, such as >>deu<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def reordered(model: bytes, order: PieceOrder, file: str) -> tuple[bytes, int]:
    """Return a SentencePiece model with its pieces in a new order, and the number of its pieces behind them.

    Own pieces keep type and score. Pieces of the order that the model does not have are unused, reserved names and language tokens
    are control symbols, which match no text. Own pieces that the order does not have follow, so that text is segmented as before.
    Raises ForeignModelError for other files.
    """
    from sentencepiece import sentencepiece_model_pb2 as proto

    types = proto.ModelProto.SentencePiece
    parsed = proto.ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # protobuf's own class differs among its implementations
        raise ForeignModelError(f"{file}: expected a SentencePiece model, got: {error}; copy the file again") from error
    own = {piece.piece: (piece.type, piece.score) for piece in parsed.pieces if piece.type not in (types.CONTROL, types.UNKNOWN)}
    if not own:
        raise ForeignModelError(f"{file}: expected a SentencePiece model with pieces, got none; copy the file again")
    # The scores of BPE models rank merges: a piece that is not the model's own must not come before its own.
    last = min(score for _, score in own.values()) - 1.0
    entries: list[tuple[str, int, float]] = [
        (name, types.UNKNOWN if token == UNK else types.CONTROL, 0.0) for token, name in enumerate(RESERVED)
    ]
    for name in order.names[len(RESERVED) :]:
        if name in RESERVED or is_language_token(name):
            entries.append((f"{name}'" if name in RESERVED else name, types.CONTROL, 0.0))
        else:
            entries.append((name, *own.get(name, (types.UNUSED, last))))
    listed = {name for name, _, _ in entries}
    unmapped = [(name, *own[name]) for name in own if name not in listed]
    _write_pieces(parsed, [*entries, *unmapped])
    return parsed.SerializeToString(deterministic=True), len(unmapped)


def numbered(order: PieceOrder) -> bytes:
    """Return a SentencePiece model that numbers the pieces of an order; byte-level BPE segments text by merges instead."""
    from sentencepiece import sentencepiece_model_pb2 as proto

    types = proto.ModelProto.SentencePiece
    model = proto.ModelProto()
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.normalizer_spec.name = "identity"
    entries = [(name, types.UNKNOWN if token == UNK else types.CONTROL, 0.0) for token, name in enumerate(RESERVED)]
    own = order.names[len(RESERVED) :]
    _write_pieces(model, [*entries, *((name, types.NORMAL, -float(rank)) for rank, name in enumerate(own))])
    return bytes(model.SerializeToString(deterministic=True))


def _write_pieces(model: Any, entries: Sequence[tuple[str, int, float]]) -> None:
    del model.pieces[:]
    for name, kind, score in entries:
        model.pieces.add(piece=name, score=score, type=kind)
    trainer = model.trainer_spec
    trainer.vocab_size = len(entries)
    for token, key in ((PAD, "pad"), (BOS, "bos"), (EOS, "eos"), (UNK, "unk")):
        setattr(trainer, f"{key}_id", token)
        setattr(trainer, f"{key}_piece", RESERVED[token])
