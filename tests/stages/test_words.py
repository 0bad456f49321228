"""Vocabularies of text that is split into tokens already."""

from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from fewstep.vocabulary import RESERVED, UNK
from stages.artifacts import ExternalFile
from stages.errors import DataError
from stages.vocabulary import PieceFiles, VocabularyConfig
from stages.vocabulary.imported import imported_models
from stages.vocabulary.run import train_pieces
from stages.vocabulary.words import check_covered

LINES = ["un@@ like@@ ly words , un@@ like words .", "words &apos;s un@@ do"]


def dictionary(path: Path, *symbols: str) -> ExternalFile:
    path.write_text("".join(f"{symbol} {9 - number}\n" for number, symbol in enumerate(symbols)))
    return ExternalFile(path, "")


def test_the_ids_of_a_dictionary_follow_its_order_and_text_comes_back(tmp_path: Path) -> None:
    symbols = list(dict.fromkeys(" ".join(LINES).split()))
    joint = PieceFiles(None, source_dictionary=dictionary(tmp_path / "dict.txt", *symbols))
    models = imported_models(joint)
    assert joint.joint
    assert models["source"] == models["target"]
    pieces = SentencePieceProcessor(model_proto=models["source"])
    assert pieces.encode(" ".join(symbols)) == list(range(len(RESERVED), len(RESERVED) + len(symbols)))
    for line in LINES:
        assert pieces.decode(pieces.encode(line)) == line
    assert pieces.encode("words unknown") == [len(RESERVED) + symbols.index("words"), UNK]


def test_sides_have_dictionaries_of_their_own(tmp_path: Path) -> None:
    files = PieceFiles(None, None, dictionary(tmp_path / "a", "a@@", "b"), dictionary(tmp_path / "b", "c"))
    assert not files.joint
    sizes = {side: SentencePieceProcessor(model_proto=model).get_piece_size() for side, model in imported_models(files).items()}
    assert sizes == {"source": len(RESERVED) + 2, "target": len(RESERVED) + 1}


def test_tokens_are_counted() -> None:
    """The most frequent ones, without characters or bytes of their own."""
    config = VocabularyConfig(size=len(RESERVED) + 3, model="word")
    pieces = SentencePieceProcessor(model_proto=train_pieces(iter(LINES), config))
    counted = {pieces.id_to_piece(number) for number in range(len(RESERVED), pieces.get_piece_size())}
    assert len(counted) == 3
    assert counted > {"\u2581words", "\u2581un@@"}  # three times each, the others once
    assert pieces.decode(pieces.encode("words un@@ words")) == "words un@@ words"


def test_a_dictionary_of_pieces_and_one_that_lacks_a_token_are_refused_by_name(tmp_path: Path) -> None:
    marked = PieceFiles(None, source_dictionary=dictionary(tmp_path / "dict.txt", "a", "\u2581the"))
    with pytest.raises(DataError, match=r"dict.txt: expected tokens that are separated by spaces, got '\u2581the', a piece"):
        imported_models(marked)
    with pytest.raises(DataError, match=r"d: expected every token .* got none for 'ly' in pair 2 of the cleaned text \(target\)"):
        check_covered("d", ["a", "un@@"], ["a a", "un@@ ly"], "target")
    check_covered("d", ["a", "un@@", "ly"], ["a a", "un@@ ly"], "target")
