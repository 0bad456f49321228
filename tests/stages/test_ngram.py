"""The n-gram model does not depend on shards, workers, kills and engine; KenLM agrees with it, and errors name the cause."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.ngram import Perplexity
from fewstep.vocabulary import RESERVED, UNK
from kernels import NgramModel
from stages.artifacts import CHECKPOINTS, STOP, Text, Tokens, Vocabulary
from stages.context import StepContext
from stages.encode import EncodeConfig, EncodeInputs
from stages.encode.run import run as encode
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.ngram import NgramConfig, NgramInputs, perplexity
from stages.ngram import counting as ngram_counting
from stages.ngram import engines as ngram_engines
from stages.ngram.run import run
from stages.shared.embedded import pairs
from stages.shared.shards import write_shards
from stages.shared.vocabulary import processor
from stages.vocabulary import VocabularyConfig, VocabularyInputs
from stages.vocabulary.run import run as train_vocabulary
from stages.workers import Resources
from tests.stages.steps import ShuffledWorkers, context_in, metrics_of, write_text

PAIRS = list(pairs("train", 0, 400))
VALIDATION = list(pairs("validation", 0, 40))
FILES = ("model.ngram", "model.arpa", "ngram.json")


def work_in(directory: Path, threads: int = 1, **more: Any) -> StepContext:
    return context_in(directory, resources=Resources(workers=1, cpus=threads), **more)


class Corpus:
    """The text and tokens of a small corpus."""

    def __init__(self, folder: Path, shard_rows: int = 100) -> None:
        self.text, self.validation_text = (
            write_text(folder / "text", PAIRS, shard_rows),
            write_text(folder / "validation", VALIDATION),
        )
        train_vocabulary(VocabularyInputs(self.text), VocabularyConfig(size=300), work_in(folder / "vocabulary"))
        self.vocabulary = Vocabulary(folder / "vocabulary", "vocabulary")
        self.tokens = self.encoded(self.text, folder / "tokens")
        self.validation = self.encoded(self.validation_text, folder / "validation_tokens")

    def encoded(self, text: Text, folder: Path) -> Tokens:
        encode(EncodeInputs(text, self.vocabulary), EncodeConfig(), work_in(folder))
        return Tokens(folder, "tokens")

    @property
    def pieces(self) -> NgramInputs:
        return NgramInputs((self.tokens,), self.validation, self.vocabulary)

    @property
    def words(self) -> NgramInputs:
        return NgramInputs((self.text,), self.validation_text)


def make(folder: Path, inputs: NgramInputs, threads: int = 1, **config: Any) -> Path:
    run(inputs, NgramConfig(**{"order": 3, **config}), work_in(folder, threads))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"), shard_rows=30)


def metrics(folder: Path) -> dict[str, Any]:
    return metrics_of(folder)[0]


def test_a_model_over_pieces(tmp_path: Path, corpus: Corpus) -> None:
    model = NgramModel.load(make(tmp_path, corpus.pieces) / "model.ngram")
    pieces = processor(corpus.vocabulary.path, "target")
    lines = [[pieces.id_to_piece(i) for i in ids] for ids in pieces.encode([target for _, target in PAIRS])]
    expected = NgramModel.estimate(lines, 3, discount_fallback=(0.5, 1.0, 1.5))
    expected.save(tmp_path / "expected")
    assert (tmp_path / "model.ngram").read_bytes() == (tmp_path / "expected").read_bytes()
    scorer = model.for_vocabulary([pieces.id_to_piece(i) for i in range(pieces.get_piece_size())])
    assert len(scorer) == 300
    assert scorer.unknown >= len(RESERVED) - 3
    described = json.loads((tmp_path / "ngram.json").read_text())
    assert described["counts"] == model.counts
    assert described["distinct"] == model.counts
    assert described["vocabulary_digest"] == model.vocabulary_digest
    assert (described["sentences"], described["tokens"], described["skipped"]) == (400, sum(map(len, lines)), 0)
    assert [len(values) for values in described["discounts"]] == [3, 3, 3]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {*FILES, "expected"}


def test_perplexity_agrees_with_kenlm(tmp_path: Path, corpus: Corpus) -> None:
    make(tmp_path, corpus.words, unit="words")
    model = NgramModel.load(tmp_path / "model.arpa")
    found = model.perplexity([target.split() for _, target in VALIDATION])
    assert metrics(tmp_path)["perplexity"] == pytest.approx(found.perplexity, rel=1e-4)
    assert metrics(tmp_path)["perplexity_without_unknown"] == pytest.approx(found.known_perplexity, rel=1e-4)
    assert metrics(tmp_path)["unknown_rate"] == found.unknown_rate
    table = json.loads((tmp_path / "records" / "tables" / "ngram.json").read_text())
    assert [row[0] for row in table["rows"]] == ["1", "2", "3"]
    assert f"Perplexity {found.perplexity:.2f}" in table["caption"]


def test_a_perplexity_that_differs_from_kenlms_is_an_error(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perplexity, "kenlm_perplexity", lambda *_: Perplexity(40, 400, 0, -1000.0, 0.0))
    with pytest.raises(StageError, match="expected the perplexity that KenLM computes"):
        make(tmp_path, corpus.pieces)


@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_the_model_does_not_depend_on_shards_and_threads(tmp_path: Path, corpus: Corpus, unit: str) -> None:
    other = write_text(tmp_path / "text", PAIRS, shard_rows=7)
    tokens = corpus.encoded(other, tmp_path / "tokens")
    inputs = (
        NgramInputs((tokens,), corpus.validation, corpus.vocabulary)
        if unit == "pieces"
        else NgramInputs((other,), corpus.validation_text)
    )
    one = make(tmp_path / "one", corpus.pieces if unit == "pieces" else corpus.words, unit=unit, prune=(0, 1))
    assert contents(make(tmp_path / "many", inputs, threads=3, unit=unit, prune=(0, 1))) == contents(one)
    assert contents(make(tmp_path / "many", inputs, threads=3, unit=unit, prune=(0, 1))) == contents(one)  # over its own remains


def test_several_texts_are_concatenated(tmp_path: Path, corpus: Corpus) -> None:
    halves = tuple(write_text(tmp_path / str(half), PAIRS[half * 150 : (half + 1) * 150 + half * 100]) for half in (0, 1))
    both = make(tmp_path / "both", NgramInputs(halves, corpus.validation_text), unit="words")
    assert contents(both) == contents(make(tmp_path / "one", corpus.words, unit="words"))


def test_the_source_side(tmp_path: Path, corpus: Corpus) -> None:
    model = NgramModel.load(make(tmp_path, corpus.words, unit="words", side="source") / "model.ngram")
    assert set(model.words[3:]) == {word for source, _ in PAIRS for word in source.split()}


def test_unknown_pieces_and_literal_special_words_are_white_space(tmp_path: Path, corpus: Corpus) -> None:
    table = pa.table(
        {
            "id": pa.array([0, 1], pa.int64()),
            **{side: pa.array([[UNK, 40], [41]], pa.list_(pa.uint16())) for side in ("source", "target")},
        }
    )
    write_shards([table], tmp_path / "tokens", 10, work_in(tmp_path / "tokens"))
    make(tmp_path / "pieces", NgramInputs((Tokens(tmp_path / "tokens", "t"),), corpus.validation, corpus.vocabulary))
    assert json.loads((tmp_path / "pieces" / "ngram.json").read_text())["skipped"] == 1
    text = write_text(tmp_path / "text", [("x", "a <s> b"), ("x", "a\tb\u00a0c"), ("x", "")])
    make(tmp_path / "words", NgramInputs((text,), corpus.validation_text), unit="words")
    described = json.loads((tmp_path / "words" / "ngram.json").read_text())
    assert (described["skipped"], described["tokens"], described["sentences"]) == (1, 4, 3)


def test_ids_of_another_vocabulary(tmp_path: Path, corpus: Corpus) -> None:
    table = pa.table(
        {"id": pa.array([0], pa.int64()), **{side: pa.array([[300]], pa.list_(pa.uint16())) for side in ("source", "target")}}
    )
    write_shards([table], tmp_path / "tokens", 10, work_in(tmp_path / "tokens"))
    with pytest.raises(DataError, match="expected ids of the vocabulary's 300 pieces"):
        make(tmp_path / "m", NgramInputs((Tokens(tmp_path / "tokens", "t"),), corpus.validation, corpus.vocabulary))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"prune": (2, 1)}, DataError, r"ngram.prune: expected thresholds in ascending order, got \[2, 1\]"),
        ({"unit": "words"}, StageError, "ngram: unit words: expected texts"),
        (
            {"engine": "lmplz", "executable": "no-such-lmplz"},
            StageError,
            "ngram.executable: expected .* no-such-lmplz, found no such program",
        ),
    ],
)
def test_invalid_options_are_reported(
    tmp_path: Path, corpus: Corpus, config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(tmp_path, corpus.pieces, **config)


def test_a_text_beyond_the_memory_is_an_error(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_engines, "MEMORY_GIB", 1e-6)
    with pytest.raises(
        StageError, match=r"more than the limit of .*lmplz.*\(options cluster.resources.ngram.memory_gib, ngram.engine"
    ):
        make(tmp_path, corpus.pieces)


def test_text_too_small_for_discounts(tmp_path: Path, corpus: Corpus) -> None:
    inputs = NgramInputs((write_text(tmp_path / "text", [("x", "a b")]),), corpus.validation_text)
    with pytest.raises(DataError, match=r"ngram: the discounts of order 1 cannot be estimated.*\(option ngram.discount_fallback\)"):
        make(tmp_path / "m", inputs, unit="words", discount_fallback=None)
    make(tmp_path / "m", inputs, unit="words", order=6)  # four orders without any n-gram
    assert json.loads((tmp_path / "m" / "ngram.json").read_text())["counts"] == [5, 3, 2, 1, 0, 0]


def test_text_without_sentences(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(DataError, match="expected training and validation text, got 0 and 40 sentences"):
        make(tmp_path / "m", NgramInputs((write_text(tmp_path / "text", []),), corpus.validation_text), unit="words")


def test_an_invalid_vocabulary(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(ArtifactError, match="expected a SentencePiece model"):
        make(tmp_path / "m", NgramInputs((corpus.tokens,), corpus.validation, Vocabulary(tmp_path, "v")))
    with pytest.raises(StageError, match="unit pieces: expected tokens and their vocabulary"):
        make(tmp_path / "m", NgramInputs((corpus.tokens,), corpus.validation))


def program(folder: Path, body: str) -> str:
    """Write an executable that runs `body` in Python."""
    path = folder / "lmplz"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.path[:0] = {sys.path!r}\n{body}\n")
    path.chmod(0o755)
    return str(path)


ESTIMATE = """
from kernels import NgramModel
expected = f"-o 3 -S 8192M -T {sys.argv[6]} --skip_symbols --prune 0 1 --discount_fallback 0.5 1.0 1.5"
assert " ".join(sys.argv[1:]) == expected, sys.argv
model = NgramModel.estimate([line.split() for line in sys.stdin], 3, prune=(0, 1), discount_fallback=(0.5, 1.0, 1.5))
model.native.write_arpa("/dev/stdout")
for order, (one, two, three) in enumerate(model.estimation.discounts, 1):
    print(f"{order} 1/2 D1={one:g} D2={two:g} D3+={three:g}", file=sys.stderr)
"""


def test_lmplz_is_run_as_a_program(tmp_path: Path, corpus: Corpus) -> None:
    executable = program(tmp_path, ESTIMATE)
    theirs = make(tmp_path / "theirs", corpus.words, unit="words", prune=(0, 1), engine="lmplz", executable=executable)
    ours = make(tmp_path / "ours", corpus.words, unit="words", prune=(0, 1))
    assert contents(theirs)["model.ngram"] == contents(ours)["model.ngram"]
    said, expected = (json.loads(contents(folder)["ngram.json"]) for folder in (theirs, ours))
    assert said["discounts"] == [pytest.approx(values, rel=1e-4) for values in expected["discounts"]]
    assert said["engine"] == "lmplz"
    assert (theirs / "records" / "logs" / "lmplz.txt").read_text().startswith("1 1/2 D1=")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "sys.exit('first\\nBadDiscountException\\nrerun with --discount_fallback')",
            "ended with code 1; its last messages: BadDisc.*rerun",
        ),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9; its last messages: none"),
        (
            "print('no model')",
            r"expected a model in the ARPA format, got: .*lmplz.arpa: line 1: .*; check that ngram.executable is lmplz",
        ),
        (
            ESTIMATE.replace(
                "model.native.write_arpa", "NgramModel.estimate([['a']], 2, discount_fallback=(0, 0, 0)).native.write_arpa"
            ),
            "got order 2",
        ),
    ],
)
def test_a_failure_of_lmplz_is_reported(tmp_path: Path, corpus: Corpus, body: str, message: str) -> None:
    with pytest.raises(StageError, match=message):
        make(tmp_path / "m", corpus.words, unit="words", prune=(0, 1), engine="lmplz", executable=program(tmp_path, body))


def test_an_lmplz_that_cannot_be_run_is_reported(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "lmplz").write_bytes(b"\x7fELF nothing")
    (tmp_path / "lmplz").chmod(0o755)
    with pytest.raises(StageError, match="expected KenLM's program lmplz, but it cannot be run"):
        make(tmp_path / "m", corpus.words, unit="words", engine="lmplz", executable=str(tmp_path / "lmplz"))


def test_a_stop_ends_lmplz(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / STOP).touch()
    executable = program(tmp_path, f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with pytest.raises(TransientError, match="asked to stop while lmplz was running"):
        make(tmp_path / "m", corpus.words, unit="words", engine="lmplz", executable=executable)
    assert not (tmp_path / "pid").exists() or subprocess.run(["kill", "-0", (tmp_path / "pid").read_text()], check=False).returncode


@pytest.mark.skipif(shutil.which("lmplz") is None, reason="no lmplz on PATH")
@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_the_real_lmplz_makes_the_same_model(tmp_path: Path, corpus: Corpus, unit: str) -> None:
    inputs = corpus.pieces if unit == "pieces" else corpus.words
    folders = [
        make(tmp_path / engine, inputs, unit=unit, prune=(0, 0, 1), order=4, engine=engine) for engine in ("native", "lmplz")
    ]
    ours, theirs = (NgramModel.load(folder / "model.ngram") for folder in folders)
    assert (ours.counts, set(ours.words)) == (theirs.counts, set(theirs.words))
    for _, target in VALIDATION:
        assert ours.score(target.split()) == pytest.approx(theirs.score(target.split()), abs=1e-3)
    said = [json.loads(contents(folder)["ngram.json"])["discounts"] for folder in folders]
    assert said[0] == [pytest.approx(values, rel=1e-4) for values in said[1]]


def test_lmplz_gets_the_arguments_of_the_config() -> None:
    config = NgramConfig(order=5, prune=(0, 1, 5), discount_fallback=None)
    expected = "-o 5 -S 512M -T f/lmplz. --skip_symbols --prune 0 1 5"
    assert " ".join(ngram_engines.arguments_of(config, Path("f"), 0.5)) == expected
    assert ngram_engines.arguments_of(NgramConfig(order=2, prune=(0, 1, 5)), Path("f"), 0.5)[8:11] == [
        "0",
        "1",
        "--discount_fallback",
    ]


WORDS = st.sampled_from(["a", "b", "ä", "<s>", "\x0b", "the house", "\u00a0", "\t", ""])
SENTENCES = st.lists(WORDS, max_size=5).map(" ".join)
CONFIG = NgramConfig(order=3, unit="words", prune=(0, 1))


@pytest.fixture
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the 400 sentences of the corpus in shards of 30 in seven groups."""
    monkeypatch.setattr(ngram_counting, "RUN_ROWS", 60)


@given(
    lines=st.lists(SENTENCES, min_size=1, max_size=25), cut=st.integers(0, 25), shard_rows=st.integers(1, 9),
    run_rows=st.integers(1, 12), order=st.integers(2, 5), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shards_and_workers_give_the_bytes_of_one_process(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cut: int, shard_rows: int, run_rows: int, order: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    rows = [("x", line) for line in lines]
    validation = write_text(folder / "validation", VALIDATION[:3])
    config = NgramConfig(order=order, unit="words", prune=(0, 1))
    whole = write_text(folder / "text", rows)
    run(NgramInputs((whole,), validation), config, work_in(folder / "whole"))
    texts = tuple(write_text(folder / f"part {n}", part, shard_rows) for n, part in enumerate((rows[:cut], rows[cut:])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_counting, "RUN_ROWS", run_rows)
        run(NgramInputs(texts, validation), config, work_in(folder / "parts", workers=ShuffledWorkers(seed=seed)))
    assert contents(folder / "parts") == contents(folder / "whole")


@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_a_corpus_in_groups(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    inputs = corpus.pieces if unit == "pieces" else corpus.words
    expected = contents(make(tmp_path / "whole", inputs, unit=unit))
    monkeypatch.setattr(ngram_counting, "RUN_ROWS", 60)
    workers = ShuffledWorkers()
    run(inputs, NgramConfig(order=3, unit=unit), work_in(tmp_path / "parts", threads=2, workers=workers))
    assert contents(tmp_path / "parts") == expected
    names = [name for name, _ in workers.done]
    assert [names.count(f"make_{kind}") for kind in ("collector", "merger", "counter", "estimator")] == [7, 1, 7, 1]


@pytest.mark.usefixtures("_small_groups")
def test_a_kill_loses_no_finished_group(tmp_path: Path, corpus: Corpus) -> None:
    whole = ShuffledWorkers()
    run(corpus.words, CONFIG, work_in(tmp_path / "whole", workers=whole))
    assert len(whole.done) == 16
    for lives in range(16):
        out, done = tmp_path / f"out {lives}", []
        first = ShuffledWorkers(lives=[lives])
        with pytest.raises(KeyboardInterrupt):
            run(corpus.words, CONFIG, work_in(out, workers=first))
        kept = {path: path.stat().st_mtime_ns for path in (out / CHECKPOINTS).rglob("*") if path.is_file()}
        second = ShuffledWorkers()
        run(corpus.words, CONFIG, work_in(out, workers=second, attempt="a2"))
        done = [item for item in second.done if item[0] != "make_counter"]
        assert sorted(map(repr, [*(item for item in first.done if item[0] != "make_counter"), *done])) == sorted(
            repr(item) for item in whole.done if item[0] != "make_counter"
        )
        assert {path: path.stat().st_mtime_ns for path in kept} == kept
        assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.usefixtures("_small_groups")
def test_damaged_counts_of_an_earlier_attempt_are_made_again(tmp_path: Path, corpus: Corpus) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(corpus.words, CONFIG, work_in(out, workers=ShuffledWorkers(lives=[15])))
    runs = sorted((out / CHECKPOINTS / "counts").iterdir())
    assert len(runs) == 7
    runs[0].write_bytes(runs[0].read_bytes()[:-1])
    runs[1].write_bytes(b"")
    run(corpus.words, CONFIG, work_in(out, attempt="a2"))
    make(tmp_path / "whole", corpus.words, unit="words", prune=(0, 1))
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.usefixtures("_small_groups")
@pytest.mark.parametrize("name", ["counts/00002-00004.run", "words.txt"])
def test_damage_before_the_merge_is_an_error(tmp_path: Path, corpus: Corpus, name: str) -> None:
    class Damaging(ShuffledWorkers):
        def map(
            self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, shards: Sequence[Any]
        ) -> Iterator[tuple[int, Any]]:
            if make.__name__ == "make_estimator":
                path = tmp_path / CHECKPOINTS / name
                data = path.read_bytes()
                path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
            yield from super().map(make, argument, shards)

    message = r"words\.txt: .*(impossible records|with these \d+ words).*; remove .*checkpoints and run"
    with pytest.raises(ArtifactError, match=message):
        run(corpus.words, CONFIG, work_in(tmp_path, workers=Damaging()))


@pytest.mark.usefixtures("_small_groups")
def test_damaged_words_are_an_error(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(corpus.words, CONFIG, work_in(tmp_path, workers=ShuffledWorkers(lives=[8])))
    words = tmp_path / CHECKPOINTS / "words.txt"
    words.write_bytes(words.read_bytes()[:40])
    with pytest.raises(ArtifactError, match=r"expected the words of the whole text, got none for .*; remove .*checkpoints and run"):
        run(corpus.words, CONFIG, work_in(tmp_path, workers=ShuffledWorkers(), attempt="a2"))


@pytest.mark.usefixtures("_small_groups")
def test_a_request_to_stop_keeps_groups(tmp_path: Path, corpus: Corpus) -> None:
    context = work_in(tmp_path / "m")
    (tmp_path / "m" / STOP).touch()
    with pytest.raises(TransientError, match="asked to stop: 1 of 7 groups of words are kept"):
        run(corpus.words, CONFIG, context)
    (tmp_path / "m" / STOP).unlink()
    run(corpus.words, CONFIG, context)
    assert json.loads((tmp_path / "m" / "records" / "progress.json").read_text())["done"] == 3


@pytest.mark.usefixtures("_small_groups")
def test_errors_of_the_estimation_are_those_of_a_text_in_one_part(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text", [("x", "a b")] * 90, shard_rows=30)
    with pytest.raises(DataError, match=r"ngram: the discounts of order 1 cannot be estimated.*\(option ngram.discount_fallback\)"):
        make(tmp_path / "m", NgramInputs((text,), corpus.validation_text), unit="words", discount_fallback=None)
    monkeypatch.setattr(ngram_engines, "MEMORY_GIB", 1e-6)
    with pytest.raises(StageError, match=r"n-grams needs up to .*limit of .*lmplz.*\(options cluster.resources.ngram.memory_gib"):
        make(tmp_path / "n", corpus.words, unit="words")


def test_the_driver_is_given_a_few_numbers_for_each_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_counting, "RUN_ROWS", 100)
    validation = write_text(tmp_path / "validation", VALIDATION)

    def traffic(rows: int) -> ShuffledWorkers:
        lines = [("x", f"the sentence with number {n % 700} of {n}") for n in range(rows)]
        workers = ShuffledWorkers()
        inputs = NgramInputs((write_text(tmp_path / f"text {rows}", lines),), validation)
        run(inputs, NgramConfig(order=2, unit="words"), work_in(tmp_path / f"out {rows}", workers=workers))
        return workers

    small, large = traffic(1_000), traffic(4_000)
    assert max(large.sent) - max(small.sent) <= 2 * 30 * 40
    assert len(large.sent) == len(small.sent) + 2 * 30
