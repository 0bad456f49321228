from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import stages.decode.run
import stages.shared.decoding.systems
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from stages.artifacts import STOP, System, Text
from stages.context import StepContext
from stages.decode import DecodeConfig, DecodeInputs
from stages.errors import ArtifactError, StageError, TransientError
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.workers import LocalWorkers, Resources

SEARCH = StepwiseSearch(strategy="beam", beam_size=2, n_best=2)


class Upside:
    """A system that turns words around; a word is its letters' code points, a second hypothesis lacks the last word."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self, log: Log) -> None:
        self.decoder, self.log = self, log

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[100 + ord(word[0]) for word in line.split()] for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(chr(id_ - 100) for id_ in row) for row in ids]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> list[list[int]]:
        assert all(sources), "blank lines do not reach the network"
        return [list(ids) for ids in sources]

    def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        self.log.batches.append([len(ids) for ids in prepared])
        if len(self.log.batches) > self.log.dies_after:
            raise StageError("killed")
        return [
            [
                Hypothesis(ids[::-1], -float(len(ids)), len(ids) + 1, {"margin": 5e-5 if len(ids) == 3 else 0.5}),
                Hypothesis(ids[:0:-1], -float(len(ids)) - 1, len(ids)),
            ][: search.n_best]
            for ids in prepared
        ]


@dataclass
class Log:
    loads: int = 0
    batches: list[list[int]] = field(default_factory=list)
    dies_after: int = 10**9


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()

    def load_system(directory: Path, device: str = "cpu") -> Upside:
        log.loads += 1
        return Upside(log)

    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", load_system)
    monkeypatch.setattr(stages.decode.run, "processor", lambda directory, side: Upside(log))
    return log


@dataclass(frozen=True)
class LastFirst:
    """Workers that finish shards in the opposite order, each with a pickled copy of the argument."""

    def map(self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for index in reversed(range(len(shards))):
            function, own, shard = pickle.loads(pickle.dumps((make, argument, shards[index])))
            yield index, pickle.loads(pickle.dumps(function(own)(shard)))

    def train(self, loop: Any, argument: Any) -> None:
        raise NotImplementedError


LINES = ["a b c", "", "d", "e f", "g h i j", "   ", "k l m", "n o p q r s t", "u", "v w"]


def make_text(path: Path, lines: Sequence[str], shard_rows: int = 6) -> Text:
    context = make_work(path)
    for index, start in enumerate(range(0, len(lines), shard_rows)):
        part = list(lines[start : start + shard_rows])
        ids = [3 * row for row in range(start, start + len(part))]
        write_shard(shard_path(path, index), pa.table({"id": ids, "source": part, "target": part}), context)
    return Text(path, "text")


def make_work(directory: Path, **changes: Any) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    context = StepContext(
        directory=directory,
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory.parent / "cache",
    )
    return replace(context, **changes)


def run(
    context: StepContext, text: Text, search: StepwiseSearch = SEARCH, batch_tokens: int = 12, system: str = "s"
) -> dict[str, bytes]:
    config = DecodeConfig(search=search, batch_tokens=batch_tokens)
    stages.decode.run.run(DecodeInputs(System(Path("nowhere"), system), text), config, context)
    files = [path for path in sorted(context.directory.rglob("*")) if path.is_file() and "records" not in path.parts]
    return {str(path.relative_to(context.directory)): path.read_bytes() for path in files}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.decode.run, "PIECE_ROWS", 2)


def test_all_rows_are_in_order_with_their_ranks(tmp_path: Path, log: Log) -> None:
    files = run(make_work(tmp_path / "out"), make_text(tmp_path / "text", LINES))
    assert files["hypotheses.txt"].decode().splitlines() == [" ".join(line.split()[::-1]) for line in LINES]
    rows = [row for table in read_shards(tmp_path / "out") for row in table.to_pylist()]
    assert [row["id"] for row in rows if row["rank"] == 0] == [3 * row for row in range(len(LINES))]
    assert [(row["rank"], row["text"]) for row in rows if row["id"] == 0] == [(0, "c b a"), (1, "c b")]
    assert [(row["rank"], row["text"], row["steps"]) for row in rows if row["id"] in (3, 15)] == [(0, "", 0), (0, "", 0)]
    decoded = json.loads(files["decode.json"])
    assert decoded["rows"] == len(LINES)
    assert decoded["near_ties"] == {"count": 2, "first": [0, 18]}
    assert decoded["search"]["beam_size"] == 2
    assert log.loads == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_order_in_which_pieces_finish_does_not_matter(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    first = run(make_work(tmp_path / "a"), text)
    assert run(make_work(tmp_path / "b", workers=LastFirst(), shard_cache=tmp_path / "other"), text) == first


def test_results_do_not_depend_on_batches(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    large = run(make_work(tmp_path / "a"), text, batch_tokens=1000)
    small = run(make_work(tmp_path / "b"), text, batch_tokens=1)
    assert max(map(len, log.batches)) > 1
    assert log.batches[-1:] == [[2]]
    assert small == large


def test_decoded_pieces_are_kept_across_runs(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    first = run(make_work(tmp_path / "a"), text)
    log.batches.clear()
    assert run(make_work(tmp_path / "b"), text) == first
    assert log.batches == []
    assert log.loads == 1
    run(make_work(tmp_path / "c"), text, system="another")
    again = len(log.batches)
    assert again > 0
    run(make_work(tmp_path / "d"), text, search=replace(SEARCH, n_best=1))
    assert len(log.batches) == 2 * again


def test_only_appended_text_is_decoded(tmp_path: Path, log: Log) -> None:
    run(make_work(tmp_path / "a"), make_text(tmp_path / "text", LINES))
    log.batches.clear()
    files = run(make_work(tmp_path / "b"), make_text(tmp_path / "longer", [*LINES, "x y", "z"]))
    assert sorted(length for batch in log.batches for length in batch) == [1, 2]
    assert files["hypotheses.txt"].decode().splitlines()[-3:] == ["w v", "y x", "z"]


def test_a_killed_attempt_continues_at_the_next_piece(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    log.dies_after = 3
    with pytest.raises(StageError, match="killed"):
        run(make_work(tmp_path / "a"), text, batch_tokens=1000)
    log.batches.clear()
    log.dies_after = 10**9
    killed = run(make_work(tmp_path / "a", attempt="a2"), text, batch_tokens=1000)
    assert len(log.batches) == 2
    assert killed == run(make_work(tmp_path / "b", shard_cache=tmp_path / "other"), text, batch_tokens=1000)


def test_a_request_to_stop_keeps_decoded_pieces(tmp_path: Path, log: Log) -> None:
    text, context = make_text(tmp_path / "text", LINES), make_work(tmp_path / "a")
    (context.directory / STOP).touch()
    with pytest.raises(TransientError, match="2 of 10 sentences are decoded"):
        run(context, text, batch_tokens=1000)
    (context.directory / STOP).unlink()
    log.batches.clear()
    run(context, text, batch_tokens=1000)
    assert len(log.batches) == 4


def test_a_damaged_piece_is_decoded_again(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    first = run(make_work(tmp_path / "a"), text)
    for path in (tmp_path / "cache").iterdir():
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(whole[: len(whole) // 2])
    assert run(make_work(tmp_path / "b"), text) == first


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ([0], r"expected 2 ids \(0 to 3\), got 1 \(0 to 0\) \(missing \[3\]"),
        ([0, 3, 3], r"repeated \[3\]"),
        ([0, 4], r"unexpected \[4\]"),
    ],
)
def test_missing_and_repeated_ids_are_errors(tmp_path: Path, log: Log, ids: list[int], complaint: str) -> None:
    @dataclass(frozen=True)
    class Careless:
        def map(self, make: Any, argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            for index, pace in LocalWorkers().map(make, argument, shards):
                write_shard(shards[index].decoded, pa.table({"id": ids, "rank": [0] * len(ids)}), context)
                yield index, pace

        def train(self, loop: Any, argument: Any) -> None:
            raise NotImplementedError

    context = make_work(tmp_path / "a", workers=Careless())
    with pytest.raises(ArtifactError, match=complaint):
        run(context, make_text(tmp_path / "text", LINES))


def test_damage_to_an_artifact_does_not_affect_kept_pieces(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", LINES)
    first = run(make_work(tmp_path / "a"), text)
    for path in (tmp_path / "a").rglob("*.arrow"):
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"damage")
    assert run(make_work(tmp_path / "b"), text) == first


def test_progress_and_throughput_are_recorded(tmp_path: Path, log: Log) -> None:
    context = make_work(tmp_path / "a")
    run(context, make_text(tmp_path / "text", LINES))
    progress = json.loads(context.records("progress.json").read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (10, 10, "rows")
    lines = [json.loads(line) for line in context.records("metrics.a1.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10]
    assert all(line["sentences_per_second"] > 0 and line["target_tokens_per_second"] > 0 for line in lines)
