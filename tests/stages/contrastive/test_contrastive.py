from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import stages.contrastive.run
import stages.decoding.systems
from stages.artifacts import System
from stages.context import StepContext
from stages.contrastive import STAGE, ContrastiveConfig, ContrastiveInputs
from stages.contrastive.run import summarise
from stages.corpus.embedded.contrast import contrasts
from stages.errors import DataError
from stages.likelihood.pairs import Scored
from stages.shards import read_shards
from stages.workers import LocalWorkers, Resources

RIGHT = {pair.right: pair.distance for pair in contrasts("de", 28)}


class Words:
    """A vocabulary whose tokens are the words of a line."""

    def encode(self, line: str) -> list[str]:
        return line.split()


@dataclass
class Knows:
    """Prefers the right translation by 1 nat if the verb is at most `reach` words away, else the wrong one by 1 nat."""

    reach: int
    max_source_tokens: int = 100
    max_target_tokens: int = 100

    @property
    def source_pieces(self) -> Words:
        return Words()

    target_pieces = source_pieces

    @property
    def decoder(self) -> Knows:
        return self

    def score(self, sources: Sequence[list[str]], targets: Sequence[list[str]]) -> list[float]:
        assert len(sources) == len(targets)
        assert not {*map(tuple, sources)} & {*map(tuple, targets)}
        texts = [" ".join(target) for target in targets]
        return [-1.0 if text in RIGHT and RIGHT[text] <= self.reach else -3.0 if text in RIGHT else -2.0 for text in texts]


@dataclass(frozen=True)
class LastFirst:
    def map(self, make: Any, argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for index in range(len(shards) - 1, -1, -1):
            function = make(pickle.loads(pickle.dumps(argument)))
            yield index, function(pickle.loads(pickle.dumps(shards[index])))

    def train(self, loop: Any, argument: Any) -> None:
        raise NotImplementedError


def run(directory: Path, workers: Any = None) -> dict[str, Any]:
    directory.mkdir()
    context = StepContext(
        directory=directory,
        attempt="a1",
        workers=workers or LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory / "cache",
    )
    STAGE.run(ContrastiveInputs(System(directory, "s")), ContrastiveConfig(pairs=28, target_language="de"), context)
    return dict(json.loads((directory / "contrastive.json").read_text()))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.contrastive.run, "PIECE_PAIRS", 5)
    monkeypatch.setattr(stages.decoding.systems, "load_system", lambda directory, device="cpu": Knows(6))


def test_accuracy_by_distance(tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    assert (found["pairs"], found["left_out"], found["correct"]) == (28, 0, 16)
    assert [(band["distance"], band["pairs"], band["correct"]) for band in found["bands"]] == [
        ("1", 4, 4), ("2", 4, 4), ("3-4", 4, 4), ("5-6", 4, 4), ("7-9", 4, 0), ("10-12", 4, 0), ("13+", 4, 0),
    ]  # fmt: skip


def test_pairs_and_scores_are_in_order_whatever_finishes_first(tmp_path: Path) -> None:
    assert run(tmp_path / "a") == run(tmp_path / "b", LastFirst())
    tables = [next(read_shards(tmp_path / name)).to_pylist() for name in "ab"]
    assert tables[0] == tables[1]
    assert [row["right"] for row in tables[0]] == list(RIGHT)
    assert all(row["right_log_probability"] == (-1.0 if row["distance"] <= 6 else -3.0) for row in tables[0])
    assert all(row["wrong_log_probability"] == -2.0 for row in tables[0])
    assert all(row["right_tokens"] == len(row["right"].split()) + 1 for row in tables[0])


def test_a_tie_is_not_correct_and_length_counts_only_for_the_mean() -> None:
    def scored(log_probability: float | None, tokens: int) -> Scored:
        return Scored(log_probability, tokens, None if log_probability is not None else "over_long")

    scores = [
        (scored(-2.0, 4), scored(-2.0, 4)),
        (scored(-4.0, 8), scored(-3.0, 4)),
        (scored(-1.0, 2), scored(-3.0, 9)),
        (scored(None, 9), scored(-1.0, 2)),
    ]
    found = summarise("en", [1, 2, 3, 4], scores)
    assert (found["pairs"], found["left_out"], found["correct"], found["correct_by_mean"]) == (3, 1, 1, 1)
    assert [band["correct"] for band in found["bands"]] == [0, 0, 1, 0, 0]


def test_a_network_that_can_score_no_pair_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.decoding.systems, "load_system", lambda directory, device="cpu": Knows(6, max_target_tokens=2))
    with pytest.raises(DataError, match="got none of 28"):
        run(tmp_path / "a")
