from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import stages.shared.decoding.calibration
from fewstep.translation import Hypothesis
from stages.context import StepContext
from stages.errors import StageError
from stages.shared.decoding.calibration import BUDGETS, Calibration
from stages.shared.decoding.text import translate
from stages.workers import LocalWorkers, Resources


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


def make_work(path: Path) -> StepContext:
    return StepContext(
        directory=path, attempt="a1", workers=LocalWorkers(), resources=Resources(workers=1, cpus=1), shard_cache=path / "cache"
    )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    system = Slow()
    monkeypatch.setattr(stages.shared.decoding.calibration.time, "perf_counter", lambda: system.clock)
    return system


def test_the_fastest_batch_size_is_chosen_and_recorded(tmp_path: Path, slow: Any) -> None:
    calibration = Calibration(slow, None, "cpu", make_work(tmp_path))
    lines = ["x" * 9] * 2000
    assert calibration.batch_tokens(lines) == 1000
    measured = list(slow.batches)
    assert measured == [500, 500, 1000, 2000], "the first batch is a warm-up, and measuring ends at the first slower one"
    assert calibration.batch_tokens(lines) == 1000
    other = Calibration(slow, None, "cpu", make_work(tmp_path))
    assert other.batch_tokens(lines) == 1000
    assert slow.batches == measured, "other workers and later attempts use the record"
    (record,) = (tmp_path / "records").glob("*")
    assert json.loads(record.read_text())["source_tokens_per_second"].keys() == {"500", "1000", "2000"}


def test_batch_sizes_that_the_text_cannot_fill_are_not_measured(tmp_path: Path, slow: Any) -> None:
    assert Calibration(slow, None, "cpu", make_work(tmp_path)).batch_tokens(["x" * 9] * 30) in BUDGETS
    assert max(slow.batches) <= 300
    assert len(slow.batches) == 2
    assert Calibration(slow, None, "cpu", make_work(tmp_path / "b")).batch_tokens([""]) in BUDGETS


def test_memory_that_does_not_suffice_for_a_sentence_is_an_error_of_the_step(slow: Any) -> None:
    slow.max_tokens = 25
    with pytest.raises(StageError, match=r"out of memory with one source of 40 tokens: CUDA out of memory\.; reduce beam_size"):
        translate(slow, ["x", "x" * 40], None, 100)


def test_batches_in_flight_do_not_change_the_order(slow: Any) -> None:
    lines = ["x" * length for length in (5, 0, 3, 9, 1, 2, 9, 4)]
    one, two = (translate(slow, lines, None, 10, in_flight) for in_flight in (1, 3))
    assert one == two
    assert [len(ranked[0].ids) for ranked in one[1]] == [len(line) for line in lines]
