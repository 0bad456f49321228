from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models.bundle
import stages.distill
from models.family import Hypothesis
from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Text
from stages.distill import DistillConfig, DistillInputs, failure, longest_output, loops
from stages.errors import StageError
from stages.shards import read_shards, shard_path, write_shard
from stages.stage import Resources, Work
from stages.workers import LocalWorkers

TRANSLATIONS = {"good": [11, 12], "mute": [], "endless": [10, 11, 12, 13, 14, 15], "stuck": [7, 8] * 6, "fine": [13]}


class Teacher:
    """Translates a line by what the table says of its first word."""

    def __init__(self) -> None:
        self.decoder = self

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[list(TRANSLATIONS).index(line.split()[0])] * len(line.split()) for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(map(str, row)) for row in ids]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None) -> Sequence[Sequence[int]]:
        return sources

    def decode(self, prepared: Sequence[Sequence[int]], search: Any) -> list[list[Hypothesis]]:
        ranked = [list(TRANSLATIONS.values())[ids[0]] for ids in prepared]
        return [[Hypothesis(ids, -1.0, 3), Hypothesis([99], -2.0, 3)] for ids in ranked]


def distill(tmp_path: Path, lines: Sequence[str], shard_rows: int = 4) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path / "out"
    directory.mkdir()
    work = Work(directory, "a1", LocalWorkers(), Resources(workers=1, cpus=1), tmp_path / "cache")
    for index, start in enumerate(range(0, len(lines), shard_rows)):
        part = list(lines[start : start + shard_rows])
        ids = [2 * row for row in range(start, start + len(part))]
        table = pa.table({"id": pa.array(ids, pa.int64()), "source": part, "target": ["raw"] * len(part)})
        write_shard(shard_path(tmp_path / "text", index), table, work)
    (tmp_path / "text" / "text.json").write_text(json.dumps({"rows": len(lines), "shards": index + 1, "shard_rows": shard_rows}))
    inputs = DistillInputs(Text(tmp_path / "text", "text"), System(tmp_path, "system"))
    search = StepwiseSearch(strategy="beam", n_best=2, max_extra_tokens=5)
    stages.distill.run(inputs, DistillConfig(search=search), work)
    return directory, json.loads((directory / "distill.json").read_text())


@pytest.fixture(autouse=True)
def teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.bundle, "load_system", lambda directory, device="cpu": Teacher(), raising=False)
    monkeypatch.setattr(stages.distill, "PIECE_ROWS", 3)


def test_targets_become_the_teachers_and_failures_are_dropped(tmp_path: Path) -> None:
    lines = ["good a", "mute", "fine", "endless", "stuck" + " x" * 20, "good b c", "endless long line", "fine", "fine d"]
    directory, counts = distill(tmp_path, lines)
    assert counts == {"rows": 9, "kept": 6, "empty": 1, "over_long": 1, "repeating": 1}
    tables = list(read_shards(directory))
    assert [table.num_rows for table in tables] == [4, 2]
    assert tables[0].schema.names == ["id", "source", "target"]
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows[0] == {"id": 0, "source": "good a", "target": "11 12"}
    assert [row["id"] for row in rows] == [0, 4, 10, 12, 14, 16]
    assert rows[3]["target"] == "10 11 12 13 14 15"
    assert json.loads((directory / "text.json").read_text()) == {"rows": 6, "shards": 2, "shard_rows": 4}


def test_a_teacher_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"none of 2 sources: .*'empty': 2"):
        distill(tmp_path, ["mute", "mute a"])


@pytest.mark.parametrize(
    ("ids", "text", "reason"),
    [
        ([], "", "empty"),
        ([9], " ", "empty"),
        ([1, 2, 3, 4, 5, 6], "words", None),
        (list(range(12)), "words", "over_long"),
        (list(range(11)), "words", None),
        ([4] * 5, "words", None),
        ([4] * 6, "words", "repeating"),
        ([1, 2, 3, *([8, 9] * 3)], "words", None),
    ],
)
def test_what_makes_an_output_useless(ids: list[int], text: str, reason: str | None) -> None:
    assert failure(ids, text, longest_output(StepwiseSearch(max_extra_tokens=10), source_tokens=2)) == reason


def test_an_output_may_be_limited_whatever_its_source() -> None:
    """As summaries are: what ran into that limit is over-long too."""
    search = StepwiseSearch(max_extra_tokens=10, max_tokens=9)
    assert [longest_output(search, source_tokens) for source_tokens in (0, 2, 400)] == [8, 8, 8]
    assert longest_output(StepwiseSearch(max_extra_tokens=1, max_tokens=9), source_tokens=3) == 4


@given(st.lists(st.integers(0, 2), max_size=24), st.integers(1, 4))
def test_loops_are_found_as_brute_force_finds_them(ids: list[int], times: int) -> None:
    found = any(
        ids[start : start + width] * (times + 1) == ids[start : start + width * (times + 1)]
        for width in range(1, len(ids) + 1)
        for start in range(len(ids))
    )
    assert loops(ids, times) == found
