from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import stages.decoding.calibration
from models.family import Hypothesis
from stages.context import StepContext
from stages.decoding.batching import decode_batch
from stages.decoding.calibration import BUDGETS, Calibration
from stages.decoding.driver import translate
from stages.errors import StageError
from stages.workers import LocalWorkers, Resources


class Slow:
    """A system with a clock of its own: a batch takes 100 ticks and one for each token; beyond `room` tokens it does not fit."""

    def __init__(self, room: int = 10**9) -> None:
        self.decoder, self.room = self, room
        self.clock, self.batches = 0.0, list[int]()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[7] * len(line) for line in lines]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None) -> Sequence[Sequence[int]]:
        return sources

    def decode(self, prepared: Sequence[Sequence[int]], search: Any) -> list[list[Hypothesis]]:
        tokens = sum(len(ids) + 1 for ids in prepared)
        if tokens > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore lines")
        self.batches.append(tokens)
        self.clock += 100 + tokens + max(0, tokens - 1000) ** 2
        return [[Hypothesis(list(ids), 0.0, 1)] for ids in prepared]


def make_work(path: Path) -> StepContext:
    return StepContext(
        directory=path, attempt="a1", workers=LocalWorkers(), resources=Resources(workers=1, cpus=1), shard_cache=path / "cache"
    )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    system = Slow()
    monkeypatch.setattr(stages.decoding.calibration.time, "perf_counter", lambda: system.clock)
    return system


def test_the_quickest_batch_is_taken_and_kept(tmp_path: Path, slow: Slow) -> None:
    calibration = Calibration(slow, None, "cpu", make_work(tmp_path))  # type: ignore[arg-type]
    lines = ["x" * 9] * 2000
    assert calibration.batch_tokens(lines) == 1000
    tried = list(slow.batches)
    assert tried == [500, 500, 1000, 2000], "the first only warms up; what is larger than a slower one is not tried"
    assert calibration.batch_tokens(lines) == 1000
    other = Calibration(slow, None, "cpu", make_work(tmp_path))  # type: ignore[arg-type]
    assert other.batch_tokens(lines) == 1000
    assert slow.batches == tried, "no worker and no later attempt at the step tries again"
    (record,) = (tmp_path / "records").glob("*")
    assert json.loads(record.read_text())["source_tokens_per_second"].keys() == {"500", "1000", "2000"}


def test_no_batch_is_tried_that_the_text_cannot_fill(tmp_path: Path, slow: Slow) -> None:
    assert Calibration(slow, None, "cpu", make_work(tmp_path)).batch_tokens(["x" * 9] * 30) in BUDGETS  # type: ignore[arg-type]
    assert max(slow.batches) <= 300
    assert len(slow.batches) == 2
    assert Calibration(slow, None, "cpu", make_work(tmp_path / "b")).batch_tokens([""]) in BUDGETS  # type: ignore[arg-type]


def test_what_does_not_fit_into_memory_is_decoded_by_halves() -> None:
    system, sources = Slow(room=25), [[7] * length for length in (3, 9, 4, 11, 8, 2, 5)]
    found = decode_batch(system, None, sources)  # type: ignore[arg-type]
    assert [ranked[0].ids for ranked in found] == sources
    assert max(system.batches) <= 25
    with pytest.raises(StageError, match=r"out of memory with one source of 40 tokens: CUDA out of memory\.; take a smaller beam"):
        decode_batch(system, None, [[7], [7] * 40])  # type: ignore[arg-type]


def test_batches_in_flight_do_not_change_the_order() -> None:
    lines = ["x" * length for length in (5, 0, 3, 9, 1, 2, 9, 4)]
    one, two = (translate(Slow(), lines, None, 10, in_flight) for in_flight in (1, 3))  # type: ignore[arg-type]
    assert one == two
    assert [len(ranked[0].ids) for ranked in one[1]] == [len(line) for line in lines]
