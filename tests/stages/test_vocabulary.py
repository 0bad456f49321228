"""Vocabularies that are trained here or elsewhere."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from fewstep.vocabulary import RESERVED, UNK
from stages.artifacts import ExternalFile, Text, Vocabulary
from stages.errors import ArtifactError, DataError
from stages.shared.dictionary import symbols
from stages.shared.embedded import pairs
from stages.shared.vocabulary import processor
from stages.vocabulary import PieceFiles, VocabularyConfig, VocabularyInputs
from stages.vocabulary.imported import imported_models
from stages.vocabulary.run import _lines, run, train_pieces, with_fallback
from stages.vocabulary.words import check_covered
from tests.stages.steps import context_in, read_json, write_text

# ---- trained


PAIRS = list(pairs("train", 0, 600))


def train(directory: Path, text: Text, **config: Any) -> Vocabulary:
    run(VocabularyInputs(text), VocabularyConfig(**{"size": 300, **config}), context_in(directory))
    return Vocabulary(directory, "vocabulary")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return write_text(tmp_path_factory.mktemp("text"), PAIRS)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_round_trips_and_sizes(tmp_path: Path, text: Text, joint: bool, model: Literal["unigram", "bpe"]) -> None:
    vocabulary = train(tmp_path, text, joint=joint, model=model)
    said = json.loads((tmp_path / "vocabulary.json").read_text())
    assert said == {"joint": joint, "source_size": 300, "target_size": 300}
    assert ((tmp_path / "source.spm").read_bytes() == (tmp_path / "target.spm").read_bytes()) is joint
    for side, column in (("source", 0), ("target", 1)):
        pieces = processor(vocabulary.path, side)
        lines = [pair[column] for pair in PAIRS]
        assert pieces.decode(pieces.encode(lines)) == lines
        ids = {index for line in pieces.encode(lines) for index in line}
        assert min(ids) >= len(RESERVED)
        assert max(ids) < 300


def test_reserved_ids(tmp_path: Path, text: Text) -> None:
    pieces = processor(train(tmp_path, text).path, "source")
    assert [pieces.id_to_piece(index) for index in range(len(RESERVED))] == list(RESERVED)
    assert (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id()) == (0, 1, 2, 3)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_no_text_is_encoded_to_a_reserved_id(tmp_path: Path, model: str) -> None:
    # SentencePiece learns nothing from the names themselves, so their characters also stand alone.
    rows = [(f"{source} {' '.join(RESERVED)} < / >", "".join(RESERVED) + target) for source, target in PAIRS]
    pieces = processor(train(tmp_path / "v", write_text(tmp_path / "t", rows), size=350, model=model).path, "source")
    forged = [*RESERVED, " ".join(RESERVED), "".join(RESERVED), *(row[0] for row in rows[:20])]
    for line in forged:
        ids = pieces.encode(line)
        assert not set(ids) & set(range(len(RESERVED))), line
        assert pieces.decode(ids) == line
    assert pieces.encode("the € sign").count(UNK) == 1


def test_repeated_training_gives_equal_bytes(tmp_path: Path, text: Text) -> None:
    copy = write_text(tmp_path / "another place", PAIRS)
    models = [(train(tmp_path / name, given).path / "source.spm").read_bytes() for name, given in (("a", text), ("b", copy))]
    assert models[0] == models[1]
    assert str(tmp_path).encode() not in models[0]


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_too_large_a_size_names_the_largest_possible(tmp_path: Path, text: Text, model: str) -> None:
    with pytest.raises(DataError, match=r"vocabulary\.size \(joint\): expected at most \d+ for this text, got 60000") as error:
        train(tmp_path, text, size=60_000, model=model)
    largest = int(str(error.value).split("at most ")[1].split()[0])
    train(tmp_path, text, size=largest, model=model)
    with pytest.raises(DataError, match=f"at most {largest} "):
        train(tmp_path, text, size=largest + 1, model=model)


def test_too_small_a_size_names_the_smallest_possible(tmp_path: Path, text: Text) -> None:
    with pytest.raises(DataError, match=r"vocabulary\.size \(target\): expected at least \d+|\(source\): expected at least \d+"):
        train(tmp_path, text, size=12, joint=False)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_bytes_stand_for_rare_characters(tmp_path: Path, model: Literal["unigram", "bpe"]) -> None:
    rows = [(f"word {n} of some {n * n}", f"Wort {n} von {n * n} \u00e9") for n in range(400)] + [("a \u2603 b", "\u2603")]
    text = write_text(tmp_path / "t", rows)
    pieces = processor(train(tmp_path / "v", text, size=340, model=model, byte_fallback=True).path, "source")
    for line in ("a \u2603 b", "\N{GRINNING FACE}\U00020bb7 x"):
        ids = pieces.encode(line)
        assert UNK not in ids
        assert pieces.decode(ids) == line
    rare = [pieces.id_to_piece(token) for token in pieces.encode("\u2603")]
    assert rare[-3:] == ["<0xE2>", "<0x98>", "<0x83>"], "a rare character of the training text is written as bytes in training"
    assert UNK in processor(train(tmp_path / "w", text, size=80, model=model).path, "source").encode("\N{GRINNING FACE}")


@pytest.mark.parametrize(
    ("size", "stated", "expected"), [(4000, None, True), (3999, None, False), (80, True, True), (9000, False, False)]
)
def test_large_vocabularies_have_bytes_by_default(size: int, stated: bool | None, expected: bool) -> None:
    config = with_fallback(VocabularyConfig(size=size, byte_fallback=stated))
    assert (config.byte_fallback, config.character_coverage) == (expected, 0.9995 if expected else 1.0)


def test_characters_beyond_the_coverage_are_unknown(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t", [("abc abd", "cab")] * 99 + [("z", "abc")])
    options = {"size": 20, "exact": False, "byte_fallback": False, "joint": False}
    for coverage, unknown in ((1.0, False), (0.99, True)):
        pieces = processor(train(tmp_path / str(coverage), text, character_coverage=coverage, **options).path, "source")
        assert (UNK in pieces.encode("z")) == unknown
        assert UNK not in pieces.encode("abc d")


def test_a_word_without_end_is_named(tmp_path: Path) -> None:
    text = write_text(tmp_path / "t", [("a b", "c"), ("d", f"e {'x' * 20_001}")])
    with pytest.raises(DataError, match=r"at most 20,000 characters, got one of 20,001 in pair 2 of the cleaned text \(target\)"):
        train(tmp_path / "v", text)


def test_an_inexact_size_gives_as_many_pieces_as_the_text_supports(tmp_path: Path, text: Text) -> None:
    for name, size in (("large", 60_000), ("small", 12)):
        fitted = json.loads((train(tmp_path / name, text, size=size, exact=False).path / "vocabulary.json").read_text())
        assert 12 < fitted["source_size"] < 60_000
    exact = [train(tmp_path / name, text, size=80, exact=name == "exact") for name in ("exact", "inexact")]
    assert len({(vocabulary.path / "source.spm").read_bytes() for vocabulary in exact}) == 1


def test_text_without_characters(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected text from which SentencePiece can learn"):
        train(tmp_path / "v", write_text(tmp_path / "t", [("", "")]))


def test_long_lines_are_trained_on(tmp_path: Path) -> None:
    long = " ".join(f"wörter{i}" for i in range(2000))
    pieces = processor(train(tmp_path / "v", write_text(tmp_path / "t", [(long, "ein Wort")]), size=40).path, "source")
    assert UNK not in pieces.encode(long)
    assert pieces.decode(pieces.encode(long)) == long


@pytest.mark.parametrize("most", [1, 7, 250, 600, 10_000])
def test_lines_are_evenly_spaced(text: Text, most: int) -> None:
    chosen = min(most, 600)
    expected = [PAIRS[i * 600 // chosen][column] for column in (0, 1) for i in range(chosen)]
    assert list(_lines(text.path, ("source", "target"), most)) == expected


def test_a_model_with_other_reserved_ids_is_refused(tmp_path: Path) -> None:
    import sentencepiece

    with (tmp_path / "source.spm").open("wb") as file:
        lines = iter(source for source, _ in PAIRS)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=file, vocab_size=200, minloglevel=2)
    with pytest.raises(ArtifactError, match="expected the first pieces <pad> <s> </s> <unk>"):
        processor(tmp_path, "source")
    (tmp_path / "source.spm").write_bytes(b"no model")
    with pytest.raises(ArtifactError, match="expected a SentencePiece model"):
        processor(tmp_path, "source")


# ---- imported


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
    run(VocabularyInputs(files=files), VocabularyConfig(), context_in(directory))
    return {side: processor(directory, side) for side in ("source", "target")}


def said(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / "vocabulary" / "vocabulary.json"))


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
    assert symbols("d", b"a 1\nb 2\na 3 #fairseq:overwrite\n\xe2\x96\x81 x 4\n") == ["a", "b", "▁ x"]


# ---- text that is split into tokens already

SPLIT = ["un@@ like@@ ly words , un@@ like words .", "words &apos;s un@@ do"]


def dictionary(path: Path, *symbols: str) -> ExternalFile:
    path.write_text("".join(f"{symbol} {9 - number}\n" for number, symbol in enumerate(symbols)))
    return ExternalFile(path, "")


def test_the_ids_of_a_dictionary_follow_its_order_and_text_comes_back(tmp_path: Path) -> None:
    symbols = list(dict.fromkeys(" ".join(SPLIT).split()))
    joint = PieceFiles(None, source_dictionary=dictionary(tmp_path / "dict.txt", *symbols))
    models = imported_models(joint)
    assert joint.joint
    assert models["source"] == models["target"]
    pieces = SentencePieceProcessor(model_proto=models["source"])
    assert pieces.encode(" ".join(symbols)) == list(range(len(RESERVED), len(RESERVED) + len(symbols)))
    for line in SPLIT:
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
    pieces = SentencePieceProcessor(model_proto=train_pieces(iter(SPLIT), config))
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
