"""Vocabularies whose pieces are tokens that are separated by spaces, as models of SentencePiece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from fewstep.bounded_files import MAX_VOCABULARY_BYTES, read_bounded
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED, UNK
from stages.errors import DataError

MARK = "\u2581"


def word_model(tokens: Sequence[str]) -> bytes:
    """Return the serialised model of the reserved pieces and of `tokens` in their order."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    model = ModelProto()
    for number, name in enumerate(RESERVED):
        kind = model.SentencePiece.UNKNOWN if number == UNK else model.SentencePiece.CONTROL
        model.pieces.add(piece=name, score=0.0, type=kind)
    for rank, token in enumerate(tokens):
        model.pieces.add(piece=MARK + token, score=-float(rank), type=model.SentencePiece.NORMAL)
    spec = model.trainer_spec
    spec.model_type = spec.WORD
    spec.pad_id = PAD
    spec.bos_id = BOS
    spec.eos_id = EOS
    spec.unk_id = UNK
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = (RESERVED[number] for number in (PAD, BOS, EOS, UNK))
    spec.vocab_size = len(model.pieces)
    normaliser = model.normalizer_spec
    normaliser.name = "identity"
    normaliser.precompiled_charsmap = b""
    normaliser.add_dummy_prefix = normaliser.remove_extra_whitespaces = normaliser.escape_whitespaces = True
    return bytes(model.SerializeToString(deterministic=True))


def is_word_model(path: Path) -> bool:
    """Return whether a file is a model whose pieces are tokens that are separated by spaces; False for any other file."""
    try:
        status = path.stat()
    except OSError:
        return False
    return _is_word_model(path, status.st_mtime_ns, status.st_size)


@cache
def _is_word_model(path: Path, modified: int, size: int) -> bool:
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    model = ModelProto()
    try:
        model.ParseFromString(read_bounded(path, MAX_VOCABULARY_BYTES))
    except (OSError, ValueError, DecodeError):
        return False
    return bool(model.trainer_spec.model_type == model.trainer_spec.WORD)


def check_tokens(name: str, tokens: Sequence[str]) -> None:
    """Raise DataError for a dictionary, of this name, of pieces of SentencePiece."""
    if marked := next((token for token in tokens if MARK in token), None):
        raise DataError(
            f"{name}: expected tokens that are separated by spaces, got {marked!r}, a piece of SentencePiece; name its model too "
            "(vocabulary.source_pieces)"
        )


def check_covered(name: str, tokens: Sequence[str], lines: Iterable[str], side: str) -> None:
    """Raise DataError for the first token of the training text that a dictionary, of this name, lacks."""
    known = set(tokens)
    for number, line in enumerate(lines, 1):
        if not known.issuperset(words := line.split(" ")):
            missing = next(word for word in words if word not in known)
            raise DataError(
                f"{name}: expected every token of the training text, got none for {missing!r} in pair {number:,} of the cleaned "
                f"text ({side}); name the dictionary of this text, or count one (vocabulary: {{model: word, size: ...}})"
            )
