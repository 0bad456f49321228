"""The decode stage: pieces that are kept, the size of batches, and the same outputs as the runtime, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import fewstep
import stages.decode.run
import stages.shared.decoding.calibration
import stages.shared.decoding.systems
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis
from stages.artifacts import STOP, System, Text
from stages.context import StepContext
from stages.decode import STAGE, DecodeConfig, DecodeInputs
from stages.errors import ArtifactError, StageError, TransientError
from stages.shared.decoding.calibration import BUDGETS, Calibration
from stages.shared.decoding.text import translate
from stages.shared.shards import write_shard
from stages.workers import LocalWorkers, Resources
from tests.fewstep.systems import LINES, SYSTEMS
from tests.stages.steps import ShuffledWorkers, context_in, metrics_of, read_json, results, rows_of, write_text

SEARCH = StepwiseSearch(strategy="beam", beam_size=2, n_best=2)


class Upside:
    """A system that turns words around; a word is its letters' code points, a second hypothesis lacks the last word."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)
    masks = ()

    def __init__(self, log: Log) -> None:
        self.decoder, self.log = self, log

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[100 + ord(word[0]) for word in line.split()] for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]], lines: Sequence[str] | None = None) -> list[str]:
        return [" ".join(chr(id_ - 100) for id_ in row) for row in ids]

    def piece_to_id(self, piece: str) -> int:
        return 0

    def id_to_piece(self, id_: int) -> str:
        """It has no masks."""
        return "<unk>"

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
    monkeypatch.setattr(stages.decode.run, "PIECE_ROWS", 2)
    return log


WRITTEN = ["a b c", "", "d", "e f", "g h i j", "   ", "k l m", "n o p q r s t", "u", "v w"]


def make_text(path: Path, lines: Sequence[str], shard_rows: int = 6) -> Text:
    return write_text(path, [(line, line) for line in lines], shard_rows, range(0, 3 * len(lines), 3))


def make_work(directory: Path, **changes: Any) -> StepContext:
    """Return a context whose decoded pieces all steps of a test share."""
    return context_in(directory, **{"shard_cache": directory.parent / "cache", **changes})


def run(
    context: StepContext, text: Text, search: StepwiseSearch = SEARCH, batch_tokens: int = 12, system: str = "s"
) -> dict[str, bytes]:
    config = DecodeConfig(search=search, batch_tokens=batch_tokens)
    stages.decode.run.run(DecodeInputs(System(Path("nowhere"), system), text), config, context)
    return results(context.directory)


def test_all_rows_are_in_order_with_their_ranks(tmp_path: Path, log: Log) -> None:
    files = run(make_work(tmp_path / "out"), make_text(tmp_path / "text", WRITTEN))
    assert files["hypotheses.txt"].decode().splitlines() == [" ".join(line.split()[::-1]) for line in WRITTEN]
    rows = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows if row["rank"] == 0] == [3 * row for row in range(len(WRITTEN))]
    assert [(row["rank"], row["text"]) for row in rows if row["id"] == 0] == [(0, "c b a"), (1, "c b")]
    assert [(row["rank"], row["text"], row["steps"]) for row in rows if row["id"] in (3, 15)] == [(0, "", 0), (0, "", 0)]
    decoded = json.loads(files["decode.json"])
    assert decoded["rows"] == len(WRITTEN)
    assert decoded["near_ties"] == {"count": 2, "first": [0, 18]}
    assert decoded["search"]["beam_size"] == 2
    assert log.loads == 1
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_order_in_which_pieces_finish_does_not_matter(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
    first = run(make_work(tmp_path / "a"), text)
    assert run(make_work(tmp_path / "b", workers=ShuffledWorkers(), shard_cache=tmp_path / "other"), text) == first


def test_results_do_not_depend_on_batches(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
    large = run(make_work(tmp_path / "a"), text, batch_tokens=1000)
    small = run(make_work(tmp_path / "b"), text, batch_tokens=1)
    assert max(map(len, log.batches)) > 1
    assert log.batches[-1:] == [[2]]
    assert small == large


def test_decoded_pieces_are_kept_across_runs(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
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
    monkeypatch.setattr(stages.decode.run, "STAGE", replace(STAGE, version=STAGE.version + 1))
    run(make_work(tmp_path / "e"), text)
    assert len(log.batches) == 3 * again


def test_only_appended_text_is_decoded(tmp_path: Path, log: Log) -> None:
    run(make_work(tmp_path / "a"), make_text(tmp_path / "text", WRITTEN))
    log.batches.clear()
    files = run(make_work(tmp_path / "b"), make_text(tmp_path / "longer", [*WRITTEN, "x y", "z"]))
    assert sorted(length for batch in log.batches for length in batch) == [1, 2]
    assert files["hypotheses.txt"].decode().splitlines()[-3:] == ["w v", "y x", "z"]


def test_a_killed_attempt_continues_at_the_next_piece(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
    log.dies_after = 3
    with pytest.raises(StageError, match="killed"):
        run(make_work(tmp_path / "a"), text, batch_tokens=1000)
    log.batches.clear()
    log.dies_after = 10**9
    killed = run(make_work(tmp_path / "a", attempt="a2"), text, batch_tokens=1000)
    assert len(log.batches) == 2
    assert killed == run(make_work(tmp_path / "b", shard_cache=tmp_path / "other"), text, batch_tokens=1000)


def test_a_request_to_stop_keeps_decoded_pieces(tmp_path: Path, log: Log) -> None:
    text, context = make_text(tmp_path / "text", WRITTEN), make_work(tmp_path / "a")
    (context.directory / STOP).touch()
    with pytest.raises(TransientError, match="2 of 10 sentences are decoded"):
        run(context, text, batch_tokens=1000)
    (context.directory / STOP).unlink()
    log.batches.clear()
    run(context, text, batch_tokens=1000)
    assert len(log.batches) == 4


def test_a_damaged_piece_is_decoded_again(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
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
        run(context, make_text(tmp_path / "text", WRITTEN))


def test_damage_to_an_artifact_does_not_affect_kept_pieces(tmp_path: Path, log: Log) -> None:
    text = make_text(tmp_path / "text", WRITTEN)
    first = run(make_work(tmp_path / "a"), text)
    for path in (tmp_path / "a").rglob("*.arrow"):
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"damage")
    assert run(make_work(tmp_path / "b"), text) == first


def test_progress_and_throughput_are_recorded(tmp_path: Path, log: Log) -> None:
    context = make_work(tmp_path / "a")
    run(context, make_text(tmp_path / "text", WRITTEN))
    progress = json.loads(context.records("progress.json").read_text())
    assert (progress["done"], progress["total"], progress["unit"]) == (10, 10, "rows")
    lines = metrics_of(context.directory)
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 10]
    assert all(line["sentences_per_second"] > 0 and line["target_tokens_per_second"] > 0 for line in lines)


CASES = [(name, label) for name, (_, _, searches) in SYSTEMS.items() for label in searches]


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    directory = tmp_path_factory.mktemp("text")
    return write_text(directory, [(line, line) for line in LINES])


@pytest.mark.parametrize(("name", "label"), CASES)
def test_outputs_are_those_of_the_decode_stage(systems: dict[str, Path], text: Text, tmp_path: Path, name: str, label: str) -> None:
    system = fewstep.load(systems[name])
    search = system.searches[label]
    context = context_in(tmp_path, resources=Resources(workers=1, cpus=default_threads()))
    STAGE.run(DecodeInputs(System(systems[name], name), text), DecodeConfig(search=search), context)
    rows = rows_of(tmp_path)
    expected: list[list[dict[str, Any]]] = [[row for row in rows if row["id"] == line] for line in range(len(LINES))]
    found = system.hypotheses(LINES, search.n_best, label, threads=default_threads())
    assert any(translation.text for ranked in found for translation in ranked), "a search that writes nothing shows nothing"
    for ranked, written in zip(found, expected, strict=True):
        assert [one.text for one in ranked] == [row["text"] for row in written]
        assert [one.score for one in ranked] == [row["score"] for row in written]
        assert [one.steps for one in ranked] == [row["steps"] for row in written]
        assert [one.statistics.get("margin") for one in ranked] == [row["margin"] for row in written]
    best = [ranked[0].text for ranked in found]
    assert system.translate(LINES, label) == best == (tmp_path / "hypotheses.txt").read_text().splitlines()
    summary = read_json(tmp_path / "decode.json")
    assert summary["rows"] == len(LINES)
    unknown = [ranked[0].unknown for ranked in found]
    assert summary["unknown"]["sentences"] == sum(map(bool, unknown))
    assert set(summary["unknown"]["first"]) == {piece for pieces in unknown for piece in pieces}


class Slow:
    """A system with its own clock: a batch takes 100 ticks and one for each token. More than `max_tokens` tokens do not fit."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self, max_tokens: int = 10**9) -> None:
        self.decoder, self.max_tokens = self, max_tokens
        self.clock, self.batches = 0.0, list[int]()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[7] * len(line) for line in lines]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sequence[Sequence[int]]:
        return sources

    def decode(self, prepared: Sequence[Sequence[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        tokens = sum(len(ids) + 1 for ids in prepared)
        if tokens > self.max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore lines")
        self.batches.append(tokens)
        self.clock += 100 + tokens + max(0, tokens - 1000) ** 2
        return [[Hypothesis(list(ids), 0.0, 1)] for ids in prepared]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    system = Slow()
    monkeypatch.setattr(stages.shared.decoding.calibration.time, "perf_counter", lambda: system.clock)
    return system


def test_the_fastest_batch_size_is_chosen_and_recorded(tmp_path: Path, slow: Any) -> None:
    calibration = Calibration(slow, None, "cpu", context_in(tmp_path))
    lines = ["x" * 9] * 2000
    assert calibration.batch_tokens(lines) == 1000
    measured = list(slow.batches)
    assert measured == [500, 500, 1000, 2000], "the first batch is a warm-up, and measuring ends at the first slower one"
    assert calibration.batch_tokens(lines) == 1000
    other = Calibration(slow, None, "cpu", context_in(tmp_path))
    assert other.batch_tokens(lines) == 1000
    assert slow.batches == measured, "other workers and later attempts use the record"
    (record,) = (tmp_path / "records").glob("*")
    assert json.loads(record.read_text())["source_tokens_per_second"].keys() == {"500", "1000", "2000"}


def test_batch_sizes_that_the_text_cannot_fill_are_not_measured(tmp_path: Path, slow: Any) -> None:
    assert Calibration(slow, None, "cpu", context_in(tmp_path)).batch_tokens(["x" * 9] * 30) in BUDGETS
    assert max(slow.batches) <= 300
    assert len(slow.batches) == 2
    assert Calibration(slow, None, "cpu", context_in(tmp_path / "b")).batch_tokens([""]) in BUDGETS


def test_memory_that_does_not_suffice_for_a_sentence_is_an_error_of_the_step(slow: Any) -> None:
    slow.max_tokens = 25
    with pytest.raises(StageError, match=r"out of memory with one source of 40 tokens: CUDA out of memory\.; reduce beam_size"):
        translate(slow, ["x", "x" * 40], None, 100)


def test_batches_in_flight_do_not_change_the_order(slow: Any) -> None:
    lines = ["x" * length for length in (5, 0, 3, 9, 1, 2, 9, 4)]
    one, two = (translate(slow, lines, None, 10, in_flight) for in_flight in (1, 3))
    assert one == two
    assert [len(ranked[0].ids) for ranked in one[1]] == [len(line) for line in lines]
