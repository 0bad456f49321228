"""The corpus step: its output, the inputs that it refuses, and equal bytes whatever the pieces, workers and interruptions."""

import gzip
import json
import os
import pickle
import re
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts import CHECKPOINTS, STOP, ExternalFile, Text
from stages.corpus import CorpusConfig, CorpusInputs, Filters, TextFiles, duplicates
from stages.corpus.filters import Cleaner, comparison_keys
from stages.corpus.ledger import REASONS, SAMPLES
from stages.corpus.readers import READERS, lines
from stages.corpus.readers.reader import IndexedFile
from stages.corpus.run import run
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.shared.embedded import documents
from stages.shared.normalise import normalise
from stages.shared.shards import read_shards, row_counts, shard_path, shard_paths
from stages.workers import A, LocalWorkers, R, T
from tests.shared import public_data
from tests.stages.steps import context_in, opened, results, rows_of

PAIRS = [(f"Sentence number {i} is here.", f"Der Satz mit der Nummer {i} steht da.") for i in range(50)]


def sides(folder: Path, pairs: list[tuple[str, str]], *references: list[str]) -> TextFiles:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, side in enumerate([[s for s, _ in pairs], [t for _, t in pairs], *references]):
        (folder / str(name)).write_text("".join(line + "\n" for line in side), encoding="utf-8")
        files.append((ExternalFile(folder / str(name), f"digest {name}"),))
    return TextFiles(source=files[0], target=files[1], references=tuple(files[2:]))


def write(directory: Path, files: TextFiles | None = None, exclude: tuple[Text, ...] = (), **config: Any) -> Text:
    settings = {"source_language": "en", "target_language": "de", "shard_rows": 16, **config}
    run(CorpusInputs(files or TextFiles(), exclude), CorpusConfig(**settings), context_in(directory))
    return Text(directory, directory.name)


def rows(text: Text) -> list[dict[str, Any]]:
    return rows_of(text.path)


def test_training_text(tmp_path: Path) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", [("Sentence: NUMBER 3 is here!", "unlike anything")]))
    dirty = [("", "x"), *PAIRS, PAIRS[0], ("  Two\u00a0 spaces ", "Zwei  Leerzeichen")]
    text = write(tmp_path / "train", sides(tmp_path / "y", dirty), (test,), filters=Filters())
    expected = [pair for i, pair in enumerate(PAIRS) if i != 3] + [("Two spaces", "Zwei Leerzeichen")]
    assert [(row["id"], row["source"], row["target"]) for row in rows(text)] == [(i, *pair) for i, pair in enumerate(expected)]
    assert next(read_shards(text.path)).schema == pa.schema([("id", pa.int64()), ("source", pa.string()), ("target", pa.string())])
    assert row_counts(text.path) == [16, 16, 16, 2]
    assert json.loads((text.path / "text.json").read_text()) == {"rows": 50, "shards": 4, "shard_rows": 16}
    ledger = json.loads((text.path / "ledger.json").read_text())
    assert (ledger["pairs_in"], ledger["pairs_out"]) == (53, 50)
    assert {reason: n for reason, n in ledger["dropped"].items() if n} == {"empty": 1, "overlap": 1, "duplicate": 1}
    assert ledger["samples"]["duplicate"] == [{"pair": 52, "source": PAIRS[0][0], "target": PAIRS[0][1], "file": 1, "line": 52}]
    assert [(file["side"], file["digest"], file["lines"]) for file in ledger["files"]] == [
        ("source", "digest 0", 53),
        ("target", "digest 1", 53),
    ]


def test_a_test_text_keeps_every_line(tmp_path: Path) -> None:
    lines = [("same", "same"), ("", ""), ("same", "same"), (" a\tb ", "…")]
    text = write(tmp_path / "test", sides(tmp_path / "x", lines, ["r", " s", "t", "u"], ["1", "2", "3", "4"]))
    assert rows(text) == [
        {"id": 0, "source": "same", "target": "same", "references": ["same", "r", "1"]},
        {"id": 1, "source": "", "target": "", "references": ["", "s", "2"]},
        {"id": 2, "source": "same", "target": "same", "references": ["same", "t", "3"]},
        {"id": 3, "source": "a b", "target": "…", "references": ["…", "u", "4"]},
    ]
    assert not (text.path / "ledger.json").exists()


def test_further_references_are_kept_out_of_training_too(tmp_path: Path) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", [("s", "t")], [PAIRS[7][1].upper()]))
    text = write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (test,), filters=Filters())
    assert PAIRS[7][0] not in {row["source"] for row in rows(text)}
    assert len(rows(text)) == 49


@pytest.mark.parametrize("break_it", ["no shards", "cut shard", "blank lines"])
def test_an_excluded_text_that_cannot_be_compared_stops_the_step(tmp_path: Path, break_it: str) -> None:
    lines = [(" ", "")] * 3 if break_it == "blank lines" else PAIRS[:3]
    good = write(tmp_path / "good", sides(tmp_path / "g", PAIRS[4:5]))
    test = write(tmp_path / "test", sides(tmp_path / "x", lines))
    if break_it == "no shards":
        shard_path(test.path, 0).unlink()
    if break_it == "cut shard":
        os.truncate(shard_path(test.path, 0), 40)
    with pytest.raises((DataError, ArtifactError), match=str(test.path)):
        write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (good, test), filters=Filters())
    assert not (tmp_path / "train" / "text.json").exists()


def test_overlap_that_passes_the_filter_is_found_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = write(tmp_path / "test", sides(tmp_path / "x", PAIRS[:1]))
    monkeypatch.setattr("stages.corpus.filters._among", lambda keys, excluded: np.zeros(len(keys), bool))
    monkeypatch.setattr(
        "stages.corpus.run.overlap", lambda texts, excluded: np.isin(comparison_keys(texts).to_pylist(), excluded.to_pylist())
    )
    with pytest.raises(StageError, match="expected no sentence of a validation or test text in the source side"):
        write(tmp_path / "train", sides(tmp_path / "y", PAIRS), (test,), filters=Filters())
    assert not (tmp_path / "train" / "text.json").exists()


def test_an_empty_text_is_an_error(tmp_path: Path) -> None:
    for filters in (None, Filters()):
        with pytest.raises(DataError, match=r"got an empty text: .*x/0, .*x/1"):
            write(tmp_path / "text", sides(tmp_path / "x", []), filters=filters)


def test_a_text_whose_pairs_are_all_dropped_is_an_error_with_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'got none of 2; the ledger: .*"length": 2'):
        write(tmp_path / "text", sides(tmp_path / "x", [("a b", "c d"), ("e f", "g h")]), filters=Filters(min_length=3))


def test_an_error_late_in_a_file_leaves_no_finished_text(tmp_path: Path) -> None:
    files = sides(tmp_path / "x", PAIRS)
    for side, line in ((files.source, b"good"), (files.target, b"\xff")):
        with side[0].path.open("ab") as file:
            file.write(line + b"\n")
    with pytest.raises(DataError, match=r"x/1, line 51"):
        write(tmp_path / "text", files, filters=Filters())
    assert not (tmp_path / "text" / "text.json").exists()


def test_repeated_runs_write_equal_bytes_whatever_an_earlier_attempt_left(tmp_path: Path) -> None:
    test = write(tmp_path / "test", embedded=40, part="test")
    for name in ("one", "two"):
        if name == "two":
            write(tmp_path / name, embedded=900, part="other", filters=Filters())
        write(tmp_path / name, exclude=(test,), embedded=500, filters=Filters())
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_the_result_does_not_depend_on_paths(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, sides(tmp_path / f"files of {name}", PAIRS), filters=Filters())
    assert results(tmp_path / "one") == results(tmp_path / "two")


@pytest.mark.parametrize("filters", [None, Filters()])
def test_appended_text_does_not_change_earlier_shards(tmp_path: Path, filters: Filters | None) -> None:
    first = write(tmp_path / "one", sides(tmp_path / "x", PAIRS[:36]), filters=filters)
    second = write(tmp_path / "two", sides(tmp_path / "y", PAIRS), filters=filters)
    whole = [path.read_bytes() for path in shard_paths(first.path)[:2]]
    assert whole == [path.read_bytes() for path in shard_paths(second.path)[:2]]


def test_the_embedded_corpus_in_both_directions(tmp_path: Path) -> None:
    forth = rows(write(tmp_path / "forth", embedded=20, part="demo"))
    back = rows(write(tmp_path / "back", embedded=20, part="demo", source_language="de", target_language="en"))
    assert [(row["source"], row["target"]) for row in forth] == [(row["target"], row["source"]) for row in back]
    assert forth[0]["source"] != forth[0]["target"]
    with pytest.raises(DataError, match="expected languages en and de, got en and fr"):
        write(tmp_path / "french", embedded=20, target_language="fr")


def test_embedded_documents(tmp_path: Path) -> None:
    languages = {"task": "summarization", "target_language": "en"}
    text = rows(write(tmp_path / "text", embedded=20, part="demo", **languages))
    assert [(row["source"], row["target"]) for row in text] == list(documents("demo", 0, 20))
    with pytest.raises(DataError, match="expected languages en and en, got en and de"):
        write(tmp_path / "german", embedded=20, task="summarization")


def test_training_text_shares_nothing_with_the_embedded_test_text(tmp_path: Path) -> None:
    test = write(tmp_path / "test", embedded=300, part="train")
    train = write(tmp_path / "train", exclude=(test,), embedded=1000, part="train", filters=Filters())
    known = {row[side] for row in rows(test) for side in ("source", "target")}
    assert not known & {row[side] for row in rows(train) for side in ("source", "target")}
    assert 0 < len(rows(train)) <= 700


@pytest.mark.slow  # it traces each allocation
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    def peak(copies: int) -> int:
        lines = [(f"The man with number {i} sleeps here.", f"Der Mann mit der Nummer {i} schläft da.") for i in range(copies)]
        files = sides(tmp_path / f"in {copies}", lines)
        del lines
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        write(tmp_path / f"out {copies}", files, filters=Filters(), shard_rows=4096)
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - arrow < 1 << 20
        return python

    peak(100)  # imports and caches
    assert peak(60_000) < 40 << 20


def test_real_text(tmp_path: Path) -> None:
    folder = public_data("multi30k")

    def of(name: str) -> TextFiles:
        return TextFiles(source=(ExternalFile(folder / f"{name}.en", "s"),), target=(ExternalFile(folder / f"{name}.de", "t"),))

    test = write(tmp_path / "test", of("test_2016"))
    text = write(tmp_path / "validation", of("val"), (test,), filters=Filters())
    lines = (folder / "val.de").read_text(encoding="utf-8").splitlines()
    kept = [row["target"] for row in rows(text)]
    assert len(rows(test)) == 1000
    assert len(kept) > 1000
    assert set(kept) <= {re.sub("[ \t]+", " ", line).strip() for line in lines}, "no-break spaces are kept"


WORDS = st.sampled_from(["a", "B", "ß", "1", ".", "\u3000", "the house", "das Haus", ""])
SENTENCE = st.lists(WORDS, max_size=3).map(" ".join)

DRAWN_PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=40)

CONFIG = CorpusConfig(source_language="en", target_language="de", filters=Filters(min_letters=0.3), shard_rows=3)


class Shuffled:
    """Workers that process parts in threads and in another order."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        function = make(argument)
        with ThreadPoolExecutor(self.workers) as pool:
            order = sorted(range(len(shards)), key=lambda index: (index * 7 + 3) % 5)
            futures = {pool.submit(function, shards[index]): index for index in order}
            for done in as_completed(futures):
                yield futures[done], done.result()

    def train(self, loop: Callable[..., None], argument: object) -> None:
        raise AssertionError("the corpus stage trains nothing")


def files(folder: Path, pairs: Sequence[tuple[str, str]], cut: int = 0, packed: bool = False) -> TextFiles:
    """Write the sources as two files, of which the second may be compressed, and the targets as one."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"s1": pairs[:cut], "s2.gz" if packed else "s2": pairs[cut:], "t": pairs}
    for name, rows in parts.items():
        data = "".join(row[name == "t"] + "\n" for row in rows).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    first, second, target = (ExternalFile(folder / name, name) for name in parts)
    return TextFiles(source=(first, second), target=(target,))


@pytest.fixture(scope="module")
def excluded(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A test text of one pair."""
    folder = tmp_path_factory.mktemp("test")
    test = files(folder / "files", [("The HOUSE!", "das Haus B")])
    run(CorpusInputs(test), CorpusConfig(source_language="en", target_language="de"), context_in(folder / "text"))
    return Text(folder / "text", "test")


def simplest(pairs: Sequence[tuple[str, str]], excluded: list[str], cut: int) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the pairs that a program with a set of all pairs keeps, and its account. `cut` sources are in the first file."""
    rows = [tuple(normalise(pa.array(row, pa.string())).to_pylist()) for row in pairs]
    assert CONFIG.filters
    ratios = [len(target) / len(source) for source, target in rows if source and target]
    cleaner = Cleaner(CONFIG.filters, "en", "de", comparison_keys(pa.array(excluded, pa.string())), median(ratios or [1.0]))
    kept, seen = [], set[tuple[str, ...]]()
    dropped, samples = dict.fromkeys(REASONS, 0), dict[str, list[dict[str, Any]]]()
    for number, row in enumerate(rows, 1):
        table = pa.table([[row[0]], [row[1]]], pa.schema({"source": pa.string(), "target": pa.string()}))
        reasons = [reason for reason, mask in cleaner.masks(table).items() if mask[0]] + ["duplicate"] * (row in seen)
        if reasons:
            dropped[reasons[0]] += 1
            place = {"file": 1, "line": number} if number <= cut else {"file": 2, "line": number - cut}
            samples.setdefault(reasons[0], []).append({"pair": number, "source": row[0], "target": row[1], **place})
        else:
            seen.add(row)
            kept.append(row)
    first = {reason: found[:SAMPLES] for reason, found in samples.items()}
    return kept, {"pairs_in": len(rows), "pairs_out": len(kept), "dropped": dropped, "samples": first}


@given(
    pairs=DRAWN_PAIRS, cut=st.integers(0, 40), packed=st.booleans(), piece_rows=st.integers(1, 50), block=st.integers(1, 30),
    partition=st.integers(1, 20), workers=st.integers(1, 4),
)  # fmt: skip
def test_any_pieces_and_workers_give_the_bytes_of_one_process(
    tmp_path_factory: pytest.TempPathFactory,
    excluded: Text,
    pairs: list[tuple[str, str]],
    cut: int,
    packed: bool,
    piece_rows: int,
    block: int,
    partition: int,
    workers: int,
) -> None:
    usual = [(f"always kept {number}", f"immer dabei {number}") for number in range(len(pairs) + 1)]  # most have one ratio
    pairs = [*pairs, *usual]
    folder = tmp_path_factory.mktemp("pieces")
    inputs = CorpusInputs(files(folder / "in", pairs, cut, packed), (excluded,))
    run(inputs, CONFIG, context_in(folder / "one"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(lines, "SPAN_BLOCKS", 2)
        patch.setattr(duplicates, "PARTITION_KEYS", partition)
        run(inputs, CONFIG, context_in(folder / "many", workers=Shuffled(workers)), piece_rows)
    assert results(folder / "many") == results(folder / "one")
    kept, account = simplest(pairs, ["the house", "das haus b"], cut)
    ledger = json.loads((folder / "one" / "ledger.json").read_text())
    assert {name: ledger[name] for name in account} == account
    assert account["pairs_in"] == account["pairs_out"] + sum(account["dropped"].values())
    assert [(row["source"], row["target"]) for row in rows_of(folder / "one")] == kept


@given(st.lists(st.text("ab\n", max_size=6), min_size=1, max_size=8), st.integers(1, 9), st.data())
def test_any_range_of_lines_is_read(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], block: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "s"
    path.write_bytes("".join(parts).encode())
    expected = path.read_text().splitlines(keepends=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        given = ExternalFile(path, "")
        reader = READERS["lines"]
        counts = [rows for span in reader.spans(given, path, ("en", "de")) for rows in reader.count(span)]
        file = IndexedFile.of(given, path, counts)
        assert file.rows == len(expected) == reader.rows(given, None)
        start = data.draw(st.integers(0, len(expected)))
        stop = data.draw(st.integers(start, len(expected)))
        found = [line for part in reader.read(file, start, stop, "source", ("en", "de")) for line in part["source"].to_pylist()]
    assert found == expected[start:stop]


class Recorded:
    """Workers that are a loop, whose traffic is measured as if it crossed processes. The step is asked to stop after some parts."""

    def __init__(self, directory: Path, stop_after: int | None = None) -> None:
        self.directory, self.left = directory, stop_after
        self.arguments: list[int] = []
        self.results: list[int] = []
        """Bytes."""

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        self.arguments.append(len(pickle.dumps(argument)))
        for index, result in LocalWorkers().map(make, pickle.loads(pickle.dumps(argument)), shards):
            self.results.append(len(pickle.dumps(result)))
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    (self.directory / STOP).touch()
            yield index, result

    def train(self, loop: Callable[..., None], argument: object) -> None:
        raise AssertionError("the corpus stage trains nothing")


def test_an_interrupted_step_continues_with_the_pieces_that_are_missing(tmp_path: Path) -> None:
    inputs = CorpusInputs(files(tmp_path / "in", [(f"sentence {n % 60}", f"Satz {n % 60}") for n in range(100)], 7, True))
    run(inputs, CONFIG, context_in(tmp_path / "whole"), 10)
    parts, interrupted = tmp_path / "parts", True
    attempt = 0
    while interrupted:
        before = {path: path.stat().st_mtime_ns for path in (parts / CHECKPOINTS).glob("*")}
        try:
            run(inputs, CONFIG, context_in(parts, attempt=str(attempt), workers=Recorded(parts, attempt + 4)), 10)
            interrupted = False
        except TransientError:
            pass
        (parts / STOP).unlink(missing_ok=True)
        assert {path: path.stat().st_mtime_ns for path in before} == before, "a finished piece was not reused"
        attempt += 1
    assert attempt > 10
    assert results(parts) == results(tmp_path / "whole")


def test_the_driver_is_given_a_few_numbers_for_each_piece(tmp_path: Path) -> None:
    """Neither text nor hashes reach the process that all pieces go through."""

    def traffic(pairs: int) -> Recorded:
        lines = [(f"the sentence with number {n % 700}", f"der Satz mit der Nummer {n % 700}") for n in range(pairs)]
        workers = Recorded(tmp_path)
        config = replace(CONFIG, shard_rows=100)
        run(
            CorpusInputs(files(tmp_path / f"in {pairs}", lines)),
            config,
            context_in(tmp_path / f"out {pairs}", workers=workers),
            200,
        )
        return workers

    small, large = traffic(1_000), traffic(6_000)
    assert max(large.results) < 4000
    assert max(large.arguments) - max(small.arguments) <= 32 * 25
    assert len(large.results) < 6 * len(small.results) + 6


@pytest.mark.parametrize(("custom", "maps"), [({}, 0), ({"fast_disk": 1.0}, 7)])
def test_workers_with_resources_of_their_own_read_even_small_text(tmp_path: Path, custom: dict[str, float], maps: int) -> None:
    """The user's files may be on these machines alone."""
    inputs = CorpusInputs(files(tmp_path / "in", [("a small text", "ein kleiner Text")], packed=True))
    workers = Recorded(tmp_path)
    context = context_in(tmp_path / "out", workers=workers)
    run(inputs, CONFIG, replace(context, resources=replace(context.resources, custom=custom)))
    assert len(workers.arguments) == maps


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    inputs = CorpusInputs(files(tmp_path / "in", [(f"s {n}", f"t {n}") for n in range(50)]))
    text = opened(inputs.files, tmp_path)
    (tmp_path / "in" / "s2").write_text("fewer\n" * 20)
    with pytest.raises(DataError, match=r"in/s2.*changed"):
        list(text.read(30, 40))
