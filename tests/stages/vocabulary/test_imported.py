"""Vocabularies that were trained elsewhere: the same pieces for every text, ids behind the reserved ones, and clear refusals."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from fewstep.vocabulary import RESERVED, UNK
from stages.artifacts import ExternalFile
from stages.context import StepContext
from stages.errors import DataError
from stages.shared.embedded import pairs
from stages.shared.vocabulary.processor import processor
from stages.vocabulary import PieceFiles, VocabularyConfig, VocabularyInputs
from stages.vocabulary.run import run
from stages.workers import LocalWorkers, Resources

PAIRS = list(pairs("train", 0, 600))
ODD = ["", "Ｆｕｌｌ　ｗｉｄｔｈ ①", "unknown 日本語 text", "<pad> <mask> </s>", "  two  spaces "]
LINES = [line for pair in PAIRS[:200] for line in pair] + ODD


def foreign(folder: Path, name: str, lines: list[str], **options: Any) -> ExternalFile:
    """Train a model with SentencePiece's own ids (unknown 0, begin 1, end 2, no padding) and normalisation."""
    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, **{"vocab_size": 300, "minloglevel": 2, "num_threads": 1, **options}
    )
    return written(folder / name, model.getvalue())


def written(path: Path, data: bytes) -> ExternalFile:
    path.write_bytes(data)
    return ExternalFile(path, path.name)


def imported(folder: Path, files: PieceFiles) -> dict[str, SentencePieceProcessor]:
    directory = folder / "vocabulary"
    directory.mkdir()
    resources = Resources(workers=1, cpus=1)
    context = StepContext(
        directory=directory, attempt="a", workers=LocalWorkers(), resources=resources, shard_cache=folder / "cache"
    )
    run(VocabularyInputs(files=files), VocabularyConfig(), context)
    return {side: processor(directory, side) for side in ("source", "target")}


def said(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "vocabulary" / "vocabulary.json").read_text()))


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram"},
        {"model_type": "bpe"},
        {"model_type": "unigram", "byte_fallback": True, "vocab_size": 500},
        {"model_type": "unigram", "pad_id": 3, "unk_piece": "[UNK]", "pad_piece": "[PAD]", "user_defined_symbols": ["<ctrl>"]},
    ],
)
def test_text_is_split_as_by_the_foreign_model(tmp_path: Path, options: dict[str, Any]) -> None:
    file = foreign(tmp_path, "joint.model", [line for pair in PAIRS for line in pair], **options)
    theirs = SentencePieceProcessor(model_proto=file.path.read_bytes())
    ours = imported(tmp_path, PieceFiles(file))
    assert (tmp_path / "vocabulary/source.spm").read_bytes() == (tmp_path / "vocabulary/target.spm").read_bytes()
    size = len(ours["source"])
    assert said(tmp_path) == {"joint": True, "source_size": size, "target_size": size}
    assert tuple(ours["source"].id_to_piece(list(range(7)))) == RESERVED
    for line in LINES:
        ids = ours["source"].encode(line)
        expected = theirs.encode(line)
        assert [theirs.id_to_piece(i) if i != theirs.unk_id() else "?" for i in expected] == [
            ours["source"].id_to_piece(i) if i != UNK else "?" for i in ids
        ]
        assert ours["target"].decode(ids) == theirs.decode(expected)
        assert all(i == UNK or i >= len(RESERVED) for i in ids)


def test_models_of_both_sides_are_separate(tmp_path: Path) -> None:
    english, german = (foreign(tmp_path, f"{side}.model", [pair[side] for pair in PAIRS], vocab_size=200 + side) for side in (0, 1))
    ours = imported(tmp_path, PieceFiles(english, german))
    assert said(tmp_path) == {"joint": False, "source_size": 200 + 4, "target_size": 201 + 4}
    theirs = SentencePieceProcessor(model_proto=german.path.read_bytes())
    assert ours["target"].encode(PAIRS[0][1], out_type=str) == theirs.encode(PAIRS[0][1], out_type=str)


def dictionary_of(model: ExternalFile, *further: str, leave: int = 0) -> bytes:
    """Return a dictionary in another order than the model's."""
    pieces = SentencePieceProcessor(model_proto=model.path.read_bytes())
    names = [pieces.id_to_piece(i) for i in range(3 + leave, len(pieces))][::-1]
    return "".join(f"{name} 7\n" for name in (*names, *further)).encode()


def test_pieces_are_numbered_by_dictionaries(tmp_path: Path) -> None:
    english, german = (foreign(tmp_path, f"{side}.model", [pair[side] for pair in PAIRS], vocab_size=250) for side in (0, 1))
    data = [dictionary_of(english, "madeupword0000", leave=5), dictionary_of(german)]
    dictionaries = [written(tmp_path / f"dict.{number}.txt", content) for number, content in enumerate(data)]
    ours = imported(tmp_path, PieceFiles(english, german, *dictionaries))
    symbols = [line.rpartition(" ")[0] for line in data[0].decode().splitlines()]
    assert [ours["source"].id_to_piece(i) for i in range(7, 7 + len(symbols))] == symbols
    assert said(tmp_path) == {"joint": False, "source_size": 7 + len(symbols) + 5, "target_size": 7 + 247}
    theirs = SentencePieceProcessor(model_proto=english.path.read_bytes())
    for source, _ in PAIRS[:50]:
        assert ours["source"].encode(source, out_type=str) == theirs.encode(source, out_type=str)
    assert ours["source"].is_unused(6 + len(symbols))


def test_one_dictionary_of_two_models_is_one_vocabulary(tmp_path: Path) -> None:
    english, german = (foreign(tmp_path, f"{side}.model", [pair[side] for pair in PAIRS], vocab_size=250) for side in (0, 1))
    lines = dict.fromkeys([*dictionary_of(english).decode().splitlines(), *dictionary_of(german).decode().splitlines()])
    ours = imported(tmp_path, PieceFiles(english, german, written(tmp_path / "dict.txt", "\n".join(lines).encode())))
    assert said(tmp_path)["joint"] is True
    assert [ours["source"].id_to_piece(i) for i in range(len(ours["source"]))] == [
        ours["target"].id_to_piece(i) for i in range(len(ours["target"]))
    ]
    for model, side, column in ((english, "source", 0), (german, "target", 1)):
        theirs = SentencePieceProcessor(model_proto=model.path.read_bytes())
        for pair in PAIRS[:50]:
            assert ours[side].encode(pair[column], out_type=str) == theirs.encode(pair[column], out_type=str)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"#version: 0.2\ne r\n", r"codes: expected a SentencePiece model, got BPE codes of subword-nmt or fastBPE.*Moses"),
        (b"e r</w> 1234\nt h 99\n", r"codes: expected a SentencePiece model, got BPE codes"),
        (b"\xff\xff\xff", r"codes: expected a SentencePiece model, got: "),
        (b"", r"codes: expected a SentencePiece model with one unknown piece"),
    ],
)
def test_other_files_than_models_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        imported(tmp_path, PieceFiles(written(tmp_path / "codes", data)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"the 10\nhou@@ 5\nse 5\n", r"dict: expected pieces of SentencePiece, got 1 symbols that end in @@ \(hou@@\)"),
        (b"the\n", r"dict, line 1: expected a symbol and its count"),
        (b"a 1\na 2\n", r"dict, line 2: expected each symbol once, got 'a' again"),
        (b"<s> 1\n", r"dict, line 1: expected each symbol once, got '<s>' again"),
        (b"foo 1\nbar 2\n", r"dict: expected the dictionary of these SentencePiece models, got 2 symbols, of which 0 are pieces"),
        (b"\xff 1\n", r"dict: expected a dictionary of fairseq in UTF-8"),
    ],
)
def test_other_dictionaries_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    model = foreign(tmp_path, "joint.model", [line for pair in PAIRS for line in pair])
    with pytest.raises(DataError, match=message):
        imported(tmp_path, PieceFiles(model, None, written(tmp_path / "dict", data)))


def test_rows_that_fairseq_overwrites_stay_in_place(tmp_path: Path) -> None:
    from stages.shared.vocabulary.dictionary import symbols

    assert symbols("d", b"a 1\nb 2\na 3 #fairseq:overwrite\n\xe2\x96\x81 x 4\n") == ["a", "b", "▁ x"]
