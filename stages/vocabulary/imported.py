"""SentencePiece models that were trained elsewhere, with the reserved pieces in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fewstep.bounded_files import MAX_VOCABULARY_BYTES, read_bounded
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.shared.dictionary import BPE_CODES, FILLER, symbols
from stages.shared.members import read_member
from stages.vocabulary import PieceFiles
from stages.vocabulary.words import check_tokens, word_model

BLOCK_BYTES = 1 << 20
MIN_KNOWN = 0.5
"""Smallest fraction of a dictionary's symbols that the models of its sides know. The rest belongs to neither."""


def imported_models(files: PieceFiles) -> dict[str, bytes]:
    """Return the serialised models of source and target, whose ids begin with `RESERVED`.

    Without dictionaries the other pieces follow in their own order. With a dictionary of fairseq they follow in its order; of its
    symbols those that a model lacks are unused there, and pieces that it lacks come last. Types, scores and the settings of
    normalisation stay, so that text is split into the same pieces.

    Without models, the symbols of the dictionaries are tokens that are separated by spaces.

    Raises DataError for a file that is not a SentencePiece model (such as BPE codes) or not a dictionary of its pieces.
    """
    if files.source is None:
        return {side: word_model(symbols) for side, symbols in dictionaries(files).items()}
    target = files.target or files.source
    models = {"source": _model(files.source), "target": _model(target)}
    if files.source_dictionary is None:
        return {side: _rewritten(model, _own_pieces(model)) for side, model in models.items()}
    lists = dictionaries(files)
    if files.joint:
        rest = [piece for model in models.values() for piece in _own_pieces(model)]
        order = list(dict.fromkeys([*lists["source"], *rest]))
        _check_known(files.source_dictionary, lists["source"], set(rest))
        return {side: _rewritten(model, order) for side, model in models.items()}
    for side, file in (("source", files.source_dictionary), ("target", files.target_dictionary)):
        assert file is not None  # else the vocabulary is joint
        _check_known(file, lists[side], set(_own_pieces(models[side])))
    return {side: _rewritten(model, list(dict.fromkeys([*lists[side], *_own_pieces(model)]))) for side, model in models.items()}


def _model(file: ExternalFile) -> Any:
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    name = file.path / file.member
    data = _data(file)
    if data.startswith(b"#version") or _is_fastbpe(data):
        raise DataError(f"{name}: expected a SentencePiece model, got BPE codes of {BPE_CODES}")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise DataError(
            f"{name}: expected a SentencePiece model, got: {error}; name the file that ends in .model or .spm"
        ) from error
    kinds = ModelProto.SentencePiece.Type
    if sum(piece.type == kinds.UNKNOWN for piece in model.pieces) != 1:
        raise DataError(f"{name}: expected a SentencePiece model with one unknown piece, got {len(model.pieces)} pieces without")
    for piece in model.pieces:
        if piece.piece in RESERVED and piece.type not in (kinds.UNKNOWN, kinds.CONTROL, kinds.USER_DEFINED, kinds.UNUSED):
            raise DataError(
                f"{name}: expected the reserved piece {piece.piece} to match no text, got an ordinary piece of this name"
            )
    return model


def _data(file: ExternalFile) -> bytes:
    """Return the content of a file of a vocabulary. Raises DataError for one that is no regular file, or too large."""
    if not file.member:
        try:
            return read_bounded(file.path)
        except ValueError as error:
            raise DataError(str(error)) from error
    data = bytearray()
    for block in read_member(file.path, file.member, lambda stream: iter(lambda: stream.read(BLOCK_BYTES), b"")):
        data += block
        if len(data) > MAX_VOCABULARY_BYTES:
            raise DataError(f"{file.path / file.member}: expected at most {MAX_VOCABULARY_BYTES:,} bytes of a vocabulary, got more")
    return bytes(data)


def _is_fastbpe(data: bytes) -> bool:
    """Return whether the first line has the form of fastBPE's codes: two subwords and a count."""
    words = data.partition(b"\n")[0].split(b" ")
    return len(words) == 3 and words[2].strip().isdigit()


def dictionaries(files: PieceFiles) -> dict[str, list[str]]:
    """Return the symbols of the dictionary of each side, tokens without a model of pieces."""
    assert files.source_dictionary is not None
    named = {"source": files.source_dictionary, "target": files.target_dictionary or files.source_dictionary}
    return {side: _symbols(file, split=files.source is None) for side, file in named.items()}


def _symbols(file: ExternalFile, *, split: bool) -> list[str]:
    name = str(file.path / file.member)
    found = symbols(name, _data(file), split=split)
    if split:
        check_tokens(name, found)
    return found


def _own_pieces(model: Any) -> list[str]:
    """Return the pieces of a model except the reserved ones and those with the same role, such as its own unknown piece."""
    spec = model.trainer_spec
    special = {*RESERVED, spec.bos_piece, spec.eos_piece, spec.pad_piece, spec.unk_piece}
    special |= {piece.piece for piece in model.pieces if piece.type == piece.UNKNOWN}
    return [piece.piece for piece in model.pieces if piece.piece not in special]


def _check_known(file: ExternalFile, listed: Sequence[str], pieces: set[str]) -> None:
    ordinary = [symbol for symbol in listed if not symbol.startswith(FILLER)]
    known = sum(symbol in pieces for symbol in ordinary)
    if known < MIN_KNOWN * len(ordinary) or not ordinary:
        raise DataError(
            f"{file.path / file.member}: expected the dictionary of these SentencePiece models, got {len(ordinary)} symbols, of "
            f"which {known} are pieces; name the dictionary and the models of one data set"
        )


def _rewritten(model: Any, order: Sequence[str]) -> bytes:
    """Return a model of the reserved pieces and those of `order`; those that `model` lacks are unused."""
    known = {piece.piece: piece for piece in model.pieces}
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.pieces[:]
    for number, name in enumerate(RESERVED):
        kind = changed.SentencePiece.UNKNOWN if number == UNK else changed.SentencePiece.CONTROL
        changed.pieces.add(piece=name, score=0.0, type=kind)
    for name in order:
        if name in known:
            changed.pieces.append(known[name])
        else:
            changed.pieces.add(piece=name, score=0.0, type=changed.SentencePiece.UNUSED)
    spec = changed.trainer_spec
    spec.pad_id = PAD
    spec.bos_id = BOS
    spec.eos_id = EOS
    spec.unk_id = UNK
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = (RESERVED[number] for number in (PAD, BOS, EOS, UNK))
    spec.vocab_size = len(changed.pieces)
    return bytes(changed.SerializeToString(deterministic=True))
