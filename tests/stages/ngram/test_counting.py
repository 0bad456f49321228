"""A model that is counted in parts has the bytes of one that is counted whole, whatever the shards, workers and kills."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import durable
from stages.artifacts import CHECKPOINTS, STOP
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram import engines as ngram_engines
from stages.ngram import job as ngram_job
from stages.ngram.run import run
from stages.workers import LocalWorkers
from tests.stages.ngram.ngram_text import VALIDATION, Corpus, contents, make, text_of, work_in

WORDS = st.sampled_from(["a", "b", "ä", "<s>", "\x0b", "the house", "\u00a0", "\t", ""])
SENTENCES = st.lists(WORDS, max_size=5).map(" ".join)
CONFIG = NgramConfig(order=3, unit="words", prune=(0, 1))


@pytest.fixture(autouse=True, scope="module")
def _quick_disk() -> Iterator[None]:
    """Leave out the syncs, which many small files would wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable.RealDisk, "sync", lambda self, path: None)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"), shard_rows=30)


@pytest.fixture
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the 400 sentences of the corpus in shards of 30 in seven groups."""
    monkeypatch.setattr(ngram_job, "RUN_ROWS", 60)


@dataclass(frozen=True)
class ShuffledWorkers(LocalWorkers):
    """Processes items in another order, with pickled arguments as between processes; may die."""

    seed: int = 3
    lives: list[int] = field(default_factory=lambda: [10**9])
    done: list[Any] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """Bytes of arguments, items and results."""

    def map(self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        order = list(range(len(shards)))
        random.Random(self.seed).shuffle(order)
        for index in order:
            if self.lives[0] == 0:
                raise KeyboardInterrupt
            self.lives[0] -= 1
            self.done.append((make.__name__, shards[index]))
            sent = [pickle.dumps(value) for value in (argument, shards[index])]
            result = make(pickle.loads(sent[0]))(pickle.loads(sent[1]))
            self.sent.append(sum(map(len, sent)) + len(pickle.dumps(result)))
            yield index, result


@given(
    lines=st.lists(SENTENCES, min_size=1, max_size=25),
    cut=st.integers(0, 25),
    shard_rows=st.integers(1, 9),
    run_rows=st.integers(1, 12),
    order=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_any_shards_and_workers_give_the_bytes_of_one_process(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cut: int, shard_rows: int, run_rows: int, order: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    rows = [("x", line) for line in lines]
    validation = text_of(folder / "validation", VALIDATION[:3])
    config = NgramConfig(order=order, unit="words", prune=(0, 1))
    whole = text_of(folder / "text", rows)
    run(NgramInputs((whole,), validation), config, work_in(folder / "whole"))
    texts = tuple(text_of(folder / f"part {n}", part, shard_rows) for n, part in enumerate((rows[:cut], rows[cut:])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_job, "RUN_ROWS", run_rows)
        run(NgramInputs(texts, validation), config, work_in(folder / "parts", workers=ShuffledWorkers(seed=seed)))
    assert contents(folder / "parts") == contents(folder / "whole")


@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_a_corpus_in_groups(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    inputs = corpus.pieces if unit == "pieces" else corpus.words
    expected = contents(make(tmp_path / "whole", inputs, unit=unit))
    monkeypatch.setattr(ngram_job, "RUN_ROWS", 60)
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
    text = text_of(tmp_path / "text", [("x", "a b")] * 90, shard_rows=30)
    with pytest.raises(DataError, match=r"ngram: the discounts of order 1 cannot be estimated.*\(option ngram.discount_fallback\)"):
        make(tmp_path / "m", NgramInputs((text,), corpus.validation_text), unit="words", discount_fallback=None)
    monkeypatch.setattr(ngram_engines, "MEMORY_GIB", 1e-6)
    with pytest.raises(StageError, match=r"n-grams needs up to .*limit of .*lmplz.*\(options cluster.resources.ngram.memory_gib"):
        make(tmp_path / "n", corpus.words, unit="words")


def test_the_driver_is_given_a_few_numbers_for_each_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_job, "RUN_ROWS", 100)
    validation = text_of(tmp_path / "validation", VALIDATION)

    def traffic(rows: int) -> ShuffledWorkers:
        lines = [("x", f"the sentence with number {n % 700} of {n}") for n in range(rows)]
        workers = ShuffledWorkers()
        inputs = NgramInputs((text_of(tmp_path / f"text {rows}", lines),), validation)
        run(inputs, NgramConfig(order=2, unit="words"), work_in(tmp_path / f"out {rows}", workers=workers))
        return workers

    small, large = traffic(1_000), traffic(4_000)
    assert max(large.sent) - max(small.sent) <= 2 * 30 * 40
    assert len(large.sent) == len(small.sent) + 2 * 30
