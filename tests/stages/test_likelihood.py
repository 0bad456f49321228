"""The likelihood stage: scores of all pairs, in pieces that are kept."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import stages.likelihood.run
import stages.shared.decoding.systems
from stages.artifacts import STOP, System
from stages.context import StepContext
from stages.errors import DataError, StageError, TransientError
from stages.likelihood import STAGE, LikelihoodConfig, LikelihoodInputs
from stages.shared.shards import shard_path
from tests.stages.steps import ShuffledWorkers, context_in, results, rows_of, write_text

PAIRS = [("a b", "x y z"), ("a", "y"), ("", "x"), ("b c", ""), ("a " * 9, "x"), ("a", "x " * 8), ("c", "never"), ("a b c", "z z")]
"""Pairs with an empty side, with too long sides, and with a target that the network cannot generate."""


class Words:
    """A vocabulary whose tokens are the words of a line."""

    def encode(self, line: str) -> list[str]:
        return line.split()


@dataclass
class Fake:
    """A system that gives a target of n words the log-probability -(n + 1) / 2, less 1 for every word of the source."""

    max_source_tokens: int = 8
    max_target_tokens: int = 7
    masks: tuple[str, ...] = ()
    calls: list[int] = field(default_factory=list)
    loads: int = 0
    dies_after: int = 10**9

    @property
    def source_pieces(self) -> Words:
        return Words()

    target_pieces = source_pieces

    @property
    def decoder(self) -> Fake:
        return self

    def score(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        self.calls.append(len(sources))
        if len(self.calls) > self.dies_after:
            raise StageError("killed")
        pairs = list(zip(sources, targets, strict=True))
        assert all(0 < len(source) <= 8 and 0 < len(target) <= 7 for source, target in pairs)
        return [-math.inf if target == ["never"] else -(len(target) + 1) / 2 - len(source) for source, target in pairs]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()

    def load_system(directory: Path, device: str = "cpu") -> Fake:
        fake.loads += 1
        return fake

    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", load_system)
    monkeypatch.setattr(stages.likelihood.run, "PIECE_ROWS", 3)
    return fake


def inputs(tmp_path: Path, pairs: list[tuple[str, str]] = PAIRS) -> LikelihoodInputs:
    (tmp_path / "system").mkdir(exist_ok=True)
    (tmp_path / "system" / "target.spm").write_bytes(b"pieces")
    return LikelihoodInputs(System(tmp_path / "system", "system"), write_text(tmp_path / "text", pairs, 5))


def run(given: LikelihoodInputs, context: StepContext) -> dict[str, bytes]:
    STAGE.run(given, LikelihoodConfig(), context)
    return results(context.directory)


def test_perplexity_counts_all_tokens_with_eos(tmp_path: Path, fake: Fake) -> None:
    run(inputs(tmp_path), context := context_in(tmp_path / "out"))
    found = json.loads((context.directory / "likelihood.json").read_text())
    assert found["rows"] == len(PAIRS)
    assert found["left_out"] == {"empty": 2, "impossible": 1, "over_long": 2}
    assert found["tokens"] == 4 + 2 + 3
    assert found["log_probability"] == pytest.approx(-9 / 2 - 6)
    assert found["perplexity"] == pytest.approx(math.exp((9 / 2 + 6) / 9))
    assert len(found["vocabulary"]) == 8


def test_every_pair_has_its_row_in_order(tmp_path: Path, fake: Fake) -> None:
    run(inputs(tmp_path), context := context_in(tmp_path / "out"))
    rows = rows_of(context.directory)
    assert [row["id"] for row in rows] == list(range(len(PAIRS)))
    assert [row["left_out"] for row in rows] == [None, None, "empty", "empty", "over_long", "over_long", "impossible", None]
    assert [row["log_probability"] is None for row in rows] == [row["left_out"] is not None for row in rows]
    assert rows[0] == {"id": 0, "log_probability": -4.0, "tokens": 4, "left_out": None}


def test_the_order_in_which_pieces_finish_does_not_matter(tmp_path: Path, fake: Fake) -> None:
    given = inputs(tmp_path)
    first = run(given, context_in(tmp_path / "a"))
    assert run(given, context_in(tmp_path / "b", workers=ShuffledWorkers())) == first


def test_a_killed_attempt_continues_at_the_next_piece(tmp_path: Path, fake: Fake) -> None:
    given = inputs(tmp_path)
    first = run(given, context_in(tmp_path / "a"))
    whole, fake.dies_after = len(fake.calls), 1
    assert whole == 2, "the piece in the middle holds no pair that can be scored"
    fake.calls.clear()
    with pytest.raises(StageError, match="killed"):
        run(given, context_in(tmp_path / "b"))
    fake.calls.clear()
    fake.dies_after = 10**9
    assert run(given, context_in(tmp_path / "b", attempt="a2")) == first
    assert len(fake.calls) == whole - 1


def test_a_damaged_piece_is_scored_again(tmp_path: Path, fake: Fake) -> None:
    given = inputs(tmp_path)
    first = run(given, context_in(tmp_path / "a"))
    path = shard_path(tmp_path / "a", 1)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[: len(whole) // 2])
    assert run(given, context_in(tmp_path / "a")) == first


def test_a_request_to_stop_keeps_scored_pieces(tmp_path: Path, fake: Fake) -> None:
    given, context = inputs(tmp_path), context_in(tmp_path / "a")
    (context.directory / STOP).touch()
    with pytest.raises(TransientError, match="3 of 8 sentences are scored"):
        run(given, context)
    (context.directory / STOP).unlink()
    run(given, context)
    assert fake.loads == 2
    progress = json.loads(context.records("progress.json").read_text())
    assert (progress["done"], progress["total"]) == (8, 8)


def test_a_text_without_pairs_that_can_be_scored_is_refused(tmp_path: Path, fake: Fake) -> None:
    with pytest.raises(DataError, match=r"got none of 2 \(\{'empty': 1, 'over_long': 1\}\)"):
        run(inputs(tmp_path, [("", "x"), ("a", "x " * 8)]), context_in(tmp_path / "a"))
