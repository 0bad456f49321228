"""A text in pieces: the bytes of the simplest program, whatever the pieces, workers, partitions and interruptions."""

import gzip
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import durable
from stages.artifacts import CHECKPOINTS, STOP, ExternalFile, Text
from stages.corpus import CorpusConfig, CorpusInputs, Filters, TextFiles, duplicates
from stages.corpus.filters import Cleaner, comparison_keys
from stages.corpus.ledger import REASONS, SAMPLES
from stages.corpus.readers import READERS, lines
from stages.corpus.readers.reader import IndexedFile
from stages.corpus.run import run
from stages.errors import DataError, TransientError
from stages.shared.shards import read_shards
from stages.shared.text.normalise import normalise
from stages.workers import A, LocalWorkers, R, T
from tests.stages.corpus.texts import context_in, opened

WORDS = st.sampled_from(["a", "B", "ß", "1", ".", "\u3000", "the house", "das Haus", ""])
SENTENCE = st.lists(WORDS, max_size=3).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=40)
CONFIG = CorpusConfig(source_language="en", target_language="de", filters=Filters(min_letters=0.3), shard_rows=3)


@pytest.fixture(autouse=True, scope="module")
def _quick_disk() -> Iterator[None]:
    """Leave out the syncs, which many small files would wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable.RealDisk, "sync", lambda self, path: None)
        yield


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


def results(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file() and not {"records", CHECKPOINTS} & {*path.parts}]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def excluded(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A test text of one pair."""
    folder = tmp_path_factory.mktemp("test")
    test = files(folder / "files", [("The HOUSE!", "das Haus B")])
    run(CorpusInputs(test), CorpusConfig(source_language="en", target_language="de"), context_in(folder / "text"))
    return Text(folder / "text", "test")


def simplest(pairs: Sequence[tuple[str, str]], excluded: list[str]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the pairs that a program with a set of all pairs keeps, and its account."""
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
            samples.setdefault(reasons[0], []).append({"pair": number, "source": row[0], "target": row[1]})
        else:
            seen.add(row)
            kept.append(row)
    first = {reason: found[:SAMPLES] for reason, found in samples.items()}
    return kept, {"pairs_in": len(rows), "pairs_out": len(kept), "dropped": dropped, "samples": first}


@given(
    pairs=PAIRS,
    cut=st.integers(0, 40),
    packed=st.booleans(),
    piece_rows=st.integers(1, 50),
    block=st.integers(1, 30),
    partition=st.integers(1, 20),
    workers=st.integers(1, 4),
)
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
    kept, account = simplest(pairs, ["the house", "das haus b"])
    ledger = json.loads((folder / "one" / "ledger.json").read_text())
    assert {name: ledger[name] for name in account} == account
    assert account["pairs_in"] == account["pairs_out"] + sum(account["dropped"].values())
    assert [(row["source"], row["target"]) for table in read_shards(folder / "one") for row in table.to_pylist()] == kept


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
        assert file.rows == len(expected) == reader.rows(given)
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
            run(inputs, CONFIG, context_in(parts, str(attempt), Recorded(parts, attempt + 4)), 10)
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
