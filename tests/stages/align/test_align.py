"""Links of the native engine do not depend on workers, shards and kills."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stages.align.native
from kernels import AlignmentModel, AlignOptions, fast_align, symmetrize
from stages.align import AlignConfig, AlignInputs
from stages.align.run import run
from stages.artifacts import STOP
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.workers import LocalWorkers, Resources
from tests.public_data import public_data
from tests.stages.align.align_text import ROWS, WORDS, described, functions, pairs_of, table_of, text_of, tokens_of, work_in


@dataclass(frozen=True)
class ShuffledWorkers(LocalWorkers):
    """Returns items in another order, each from a worker that got all arguments pickled; may die."""

    lives: list[int] = field(default_factory=lambda: [10**9])
    done: list[Any] = field(default_factory=list)

    def map(self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        import pickle

        order = list(range(len(shards)))
        random.Random(3).shuffle(order)
        for index in order:
            if self.lives[0] == 0:
                raise KeyboardInterrupt
            self.lives[0] -= 1
            self.done.append((make.__name__, shards[index]))
            yield index, make(pickle.loads(pickle.dumps(argument)))(shards[index])


def results(directory: Path) -> dict[str, bytes]:
    """The files of an artifact that are compared."""
    files = (path for path in directory.rglob("*") if path.is_file())
    names = {str(path.relative_to(directory)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(("records", "checkpoints"))}


def test_links_are_those_of_the_kernels(tmp_path: Path) -> None:
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), WORDS, work_in(tmp_path / "out"))
    table = table_of(tmp_path / "out")
    assert table["id"] == list(range(7, 127))
    assert table["forward"] == functions(ROWS, AlignOptions())
    assert table["reverse"] == functions(ROWS, AlignOptions(reverse=True))
    directions = [fast_align(pairs_of(ROWS), options=AlignOptions(reverse=reverse)) for reverse in (False, True)]
    joined = symmetrize(*(found.links for found in directions))
    got = [list(zip(*both, strict=True)) for both in zip(table["link_sources"], table["link_targets"], strict=True)]
    assert got == joined
    for name, found in zip(("forward", "reverse"), directions, strict=True):
        reported = described(tmp_path / "out")[name]
        assert reported["tension"] == found.model.tension
        assert reported["empty"] == found.empty > 5
        assert reported["near_ties"] == found.near_ties
        assert [one["perplexity"] for one in reported["passes"]] == [one.perplexity for one in found.passes]
        assert AlignmentModel.load(tmp_path / "out" / f"{name}.align").align(pairs_of(ROWS)) == found.links


def test_metrics(tmp_path: Path) -> None:
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), WORDS, work_in(tmp_path / "out"))
    lines = [json.loads(line) for line in (tmp_path / "out/records/metrics.a1.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    reported = described(tmp_path / "out")["forward"]
    assert [line["forward_perplexity"] for line in lines] == [one["perplexity"] for one in reported["passes"]]
    assert lines[3]["forward_tension"] == reported["tension"]
    assert "forward_tension" not in lines[0]
    assert lines[1]["reverse_null_posterior"] > 0


def test_pieces_are_numbers(tmp_path: Path) -> None:
    for width in (pa.uint16(), pa.uint32()):
        tokens = tokens_of(tmp_path / str(width), ROWS, width=width)
        run(AlignInputs(tokens), AlignConfig(), work_in(tmp_path / f"out {width}"))
        table = table_of(tmp_path / f"out {width}")
        assert table["forward"] == functions(ROWS, AlignOptions())
        assert table["reverse"] == functions(ROWS, AlignOptions(reverse=True))
    model = AlignmentModel.load(tmp_path / f"out {width}" / "forward.align").native
    words = fast_align(pairs_of(ROWS)).model
    assert model.cell(4, 5) == words.probability("é3", "f5")
    assert model.cell(0, 5) == words.probability(None, "f5")


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_in_memory_and_any_number_of_shards_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    found = []
    for shard_rows in (120, 11):
        make = text_of if unit == "words" else tokens_of
        inputs = AlignInputs(make(tmp_path / f"in {shard_rows}", ROWS, shard_rows))
        config = WORDS if unit == "words" else AlignConfig()
        for limit in (1 << 26, 0):
            monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
            workers: list[Any] = [LocalWorkers(), ShuffledWorkers()] if limit == 0 else [ShuffledWorkers()]
            for threads, workers_ in enumerate(workers, 1):
                out = tmp_path / f"out {shard_rows} {limit} {threads}"
                run(inputs, config, work_in(out, workers=workers_, resources=Resources(workers=2, cpus=threads)))
                files = results(out)
                found.append((files["forward.align"], files["reverse.align"], table_of(out), described(out) | {"shards": 0}))
    assert all(other == found[0] for other in found[1:])
    assert results(tmp_path / "out 11 0 2") == results(tmp_path / "out 11 67108864 1")


@pytest.mark.parametrize("limit", [1 << 26, 0])
def test_a_kill_loses_no_finished_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS, 60))
    whole = ShuffledWorkers()
    run(inputs, WORDS, work_in(tmp_path / "whole", workers=whole))
    expected = results(tmp_path / "whole")
    assert len(whole.done) == (4 if limit else 2 + 1 + 4 + 2 + 4 * (4 + 2) + 4 + 2 + 2)
    for lives in range(len(whole.done)) if limit else (0, 1, 2, 6, 11, 18, 33, 38, 40):
        out, done = tmp_path / f"out {lives}", []
        for attempt, rest in (("a1", lives), ("a2", 10**9)):
            workers = ShuffledWorkers(lives=[rest])
            context = work_in(out, workers=workers, attempt=attempt)
            if attempt == "a1":
                with pytest.raises(KeyboardInterrupt):
                    run(inputs, WORDS, context)
            else:
                run(inputs, WORDS, context)
            done += workers.done
        assert sorted(map(repr, done)) == sorted(map(repr, whole.done))
        assert results(out) == expected


def test_a_request_to_stop_is_obeyed_between_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS))
    for limit in (1 << 26, 0):
        monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
        context = work_in(tmp_path / f"out {limit}")
        (context.directory / STOP).touch()
        with pytest.raises(TransientError, match="asked to stop"):
            run(inputs, WORDS, context)


def test_long_and_empty_pairs_keep_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "é1 " * 3000
    rows = [("", ""), *ROWS[:60], (long, "f1"), ("é1", long), *ROWS[60:], ("é1", "")]
    for limit in (1 << 26, 0):
        monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
        out = tmp_path / f"out {limit}"
        run(AlignInputs(text_of(tmp_path / f"text {limit}", rows)), WORDS, work_in(out))
        table, reported = table_of(out), described(out)
        assert [table["forward"][k] for k in (0, 61, 62)] == [[], [-1], [-1] * 3000]
        assert [table["reverse"][k] for k in (61, 123)] == [[-1] * 3000, [-1]]
        assert table["link_sources"][61] == table["link_targets"][62] == []
        assert table["forward"][1:61] + table["forward"][63:-1] == functions(ROWS, AlignOptions())
        empties = sum(not (source and target) for source, target in rows)
        assert (reported["forward"]["empty"], reported["forward"]["too_long"]) == (empties, 2)


@pytest.mark.parametrize("limit", [1 << 26, 0])
def test_text_without_a_usable_pair_and_fits_of_few_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
    config = replace(WORDS, max_length=3)
    for rows in ([("a", ""), ("a b c d", "a")], [("", ""), ("", "")]):
        long = int(rows[0][0] == "a")
        message = rf"got none among 2 \({2 - long} with an empty side, {long} longer than alignment.max_length = 3"
        with pytest.raises(DataError, match=message):
            run(AlignInputs(text_of(tmp_path / f"none {long}", rows)), config, work_in(tmp_path / f"out none {long}"))
    for iterations in (1, 2):
        out = tmp_path / f"out {iterations}"
        config = replace(WORDS, iterations=iterations, optimize_tension=False, compatible=False)
        run(AlignInputs(text_of(tmp_path / f"text {iterations}", ROWS)), config, work_in(out))
        options = AlignOptions(iterations=iterations, optimize_tension=False)
        assert table_of(out)["forward"] == functions(ROWS, options)
        assert AlignmentModel.load(out / "forward.align").align(pairs_of(ROWS)) == fast_align(pairs_of(ROWS), options=options).links


def test_unit_and_input_must_agree(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="unit pieces: expected tokens"):
        run(AlignInputs(text_of(tmp_path / "text", ROWS)), AlignConfig(), work_in(tmp_path / "out"))
    tokens = tokens_of(tmp_path / "tokens", ROWS)
    with pytest.raises(StageError, match="unit words: expected text"):
        run(AlignInputs(tokens), WORDS, work_in(tmp_path / "out"))
    (tmp_path / "tokens" / "shards" / "00001.arrow").unlink()
    with pytest.raises(ArtifactError, match=r"expected shard 00001\.arrow"):
        run(AlignInputs(tokens), AlignConfig(), work_in(tmp_path / "out"))


@pytest.mark.parametrize("shards", [1, 3, 17])
@pytest.mark.parametrize("in_memory", [True, False])
def test_links_equal_those_of_the_upstream_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, in_memory: bool
) -> None:
    golden = public_data("golden")
    lines = (golden / "fast_align.pairs.txt").read_text().splitlines()
    rows = [(source, target) for source, target in (line.split(" ||| ") for line in lines)]
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", 1 << 26 if in_memory else 0)
    run(AlignInputs(text_of(tmp_path / "text", rows, -(-len(rows) // shards))), WORDS, work_in(tmp_path / "out"))
    table = table_of(tmp_path / "out")
    got = {
        "forward": [" ".join(f"{i}-{j}" for j, i in enumerate(row) if i >= 0) for row in table["forward"]],
        "reverse": [" ".join(f"{i}-{j}" for i, j in enumerate(row) if j >= 0) for row in table["reverse"]],
        "grow-diag-final-and": [
            " ".join(f"{i}-{j}" for i, j in zip(*both, strict=True))
            for both in zip(table["link_sources"], table["link_targets"], strict=True)
        ],
    }
    for name, links in got.items():
        assert links == (golden / f"fast_align.{name}.links").read_text().splitlines()
    tensions = [one["tensions"][-1] for one in described(tmp_path / "out")["forward"]["passes"][1:4]]
    assert tensions == pytest.approx([5.90212, 6.87208, 7.22992], abs=5e-5)
