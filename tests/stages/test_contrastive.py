"""The contrastive stage: preferences between right and wrong translations, by distance, type and frequency."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from

import stages.contrastive.run
import stages.shared.decoding.systems
from stages.artifacts import ExternalFile, System
from stages.contrastive import STAGE, ContrastiveConfig, ContrastiveInputs
from stages.contrastive.report import agreement
from stages.contrastive.run import Pair, summarise
from stages.contrastive.sentences import AGREEMENT, DISTANCES, FREQUENCIES, Error, embedded_distances, read_contrasts
from stages.errors import DataError
from stages.shared.embedded.contrast import contrasts
from stages.shared.figures.canvas import colours_of
from stages.shared.scoring.pairs import Scored
from stages.workers import LocalWorkers
from tests.stages.steps import ShuffledWorkers, context_in, read_json, rows_of

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
    masks: tuple[str, ...] = ()

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


def run(directory: Path, workers: Any = None, pairs: ExternalFile | None = None) -> dict[str, Any]:
    context = context_in(directory, workers=workers or LocalWorkers())
    STAGE.run(ContrastiveInputs(System(directory, "s"), pairs), ContrastiveConfig(pairs=28, target_language="de"), context)
    return dict(read_json(directory / "contrastive.json"))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.contrastive.run, "PIECE_SENTENCES", 5)
    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", lambda directory, device="cpu": Knows(6))


def test_accuracy_by_distance(tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    assert (found["pairs"], found["left_out"], found["correct"]) == (28, 0, 16)
    assert [(band["distance"], band["pairs"], band["correct"]) for band in found["bands"]] == [
        ("1", 4, 4), ("2", 4, 4), ("3-4", 4, 4), ("5-6", 4, 4), ("7-9", 4, 0), ("10-12", 4, 0), ("13+", 4, 0),
    ]  # fmt: skip


def test_pairs_and_scores_are_in_order_whatever_finishes_first(tmp_path: Path) -> None:
    assert run(tmp_path / "a") == run(tmp_path / "b", ShuffledWorkers())
    tables = [rows_of(tmp_path / name) for name in "ab"]
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
    pairs = [Pair(Error(AGREEMENT, "w", distance, None), *both) for distance, both in zip([1, 2, 3, 9], scores, strict=True)]
    found = summarise(pairs, embedded_distances("en"))
    assert (found["pairs"], found["left_out"], found["correct"], found["correct_by_mean"]) == (3, 1, 1, 1)
    assert [(band["distance"], band["pairs"], band["correct"]) for band in found["bands"]] == [
        ("1", 1, 0), ("2", 1, 0), ("3-4", 1, 1), ("7-9", 0, 0),
    ]  # fmt: skip
    assert found["frequencies"] == []


def test_a_network_that_can_score_no_pair_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        stages.shared.decoding.systems, "load_system", lambda directory, device="cpu": Knows(6, max_target_tokens=2)
    )
    with pytest.raises(DataError, match="got none of 28"):
        run(tmp_path / "a")


def test_a_file_of_pairs_is_counted_by_type_distance_and_frequency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system prefers a translation with an error if the name of the error says so; each reference is scored once."""
    scored: list[str] = []

    class Listed(Knows):
        def score(self, sources: Sequence[list[str]], targets: Sequence[list[str]]) -> list[float]:
            texts = [" ".join(target) for target in targets]
            scored.extend(texts)
            return [-1.0 if "better" in text else -3.0 if "worse" in text else -2.0 for text in texts]

    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", lambda directory, device="cpu": Listed(0))
    errors = [
        ("subj_verb_agreement", "worse", 1, 5), ("subj_verb_agreement", "better", 1, 6),
        ("subj_verb_agreement", "worse", 16, "0"), ("np_agreement", "same", "0", 10001), ("compound", "worse", None, None),
        ("transliteration", "worse " * 200, None, 3),
    ]  # fmt: skip
    entries = [
        {"source": f"house {number}", "reference": f"Haus {number}", "origin": f"test.{number}", "errors": []}
        for number in range(12)
    ]
    for number, (kind, wrong, distance, frequency) in enumerate(errors):
        stated = {key: value for key, value in (("distance", distance), ("frequency", frequency)) if value is not None}
        error = {"type": kind, "contrastive": f"{wrong} {number}", **stated}
        entries[2 * (number // 2)]["errors"].append(error)  # type: ignore[attr-defined]
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    found = run(tmp_path / "a", ShuffledWorkers(), ExternalFile(path, "digest"))
    assert len(scored) == len(entries) + len(errors) - 1
    assert (found["pairs"], found["left_out"], found["correct"]) == (5, 1, 3)
    assert [(one["type"], one["pairs"], one["correct"]) for one in found["types"]] == [
        ("subj_verb_agreement", 3, 2), ("np_agreement", 1, 0), ("compound", 1, 1), ("transliteration", 0, 0),
    ]  # fmt: skip
    assert [(one["distance"], one["pairs"], one["correct"]) for one in found["bands"]] == [("1", 2, 1), ("16+", 1, 1)]
    assert [(one["distance"], one["pairs"], one["correct"]) for one in found["distances"]] == [
        ("0", 1, 0), ("1", 2, 1), ("16+", 1, 1),
    ]  # fmt: skip
    assert [(one["frequency"], one["pairs"], one["correct"]) for one in found["frequencies"]] == [
        ("0", 1, 1), ("3-5", 1, 1), ("6-10", 1, 0), ("10,001+", 1, 0),
    ]  # fmt: skip
    rows = rows_of(tmp_path / "a")
    assert [row["wrong"] for row in rows] == [f"{wrong} {number}" for number, (_, wrong, _, _) in enumerate(errors)]
    assert [row["right"] for row in rows] == ["Haus 0", "Haus 0", "Haus 2", "Haus 2", "Haus 4", "Haus 4"]


def test_bins_cover_all_counts_once() -> None:
    for bins in (DISTANCES, FREQUENCIES):
        for value in range(12_000):
            assert sum(value in band for band in bins.values()) == 1
    assert list(FREQUENCIES)[:6] == ["0", "1", "2", "3-5", "6-10", "11-20"]


ENTRY = {"source": "a", "reference": "b", "errors": [{"type": "t", "contrastive": "c"}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON in the form of LingEval97, got: "),
        ('"abc"', 'expected a list of maps with source, reference and errors, as in LingEval97, got "abc"; '),
        ("[]", "expected a list of maps"),
        (json.dumps([ENTRY, {**ENTRY, "reference": None}]), "entry 2: expected a map whose reference is a text"),
        (json.dumps([{**ENTRY, "errors": "c"}]), "entry 1: expected a map whose errors is a list"),
        (json.dumps([{**ENTRY, "errors": ["c"]}]), r'entry 1: errors\[0\]: expected a map whose type is a text, .* got "c"; check'),
        (
            json.dumps([{**ENTRY, "errors": [*ENTRY["errors"], {"type": "t", "contrastive": "c", "distance": -1}]}]),
            r"entry 1: errors\[1\]: distance: expected a whole number from 0, as in LingEval97, got -1",
        ),
    ],
)
def test_a_file_in_another_form_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"^.*pairs\.json: {message}"):
        read_contrasts(path)


@given(lists(sampled_from([(distance, frequency) for distance in (None, 0, 3, 99) for frequency in (None, 2, 7)]), max_size=12))
def test_each_pair_is_counted_once_in_every_list_that_has_its_property(stated: list[tuple[int | None, int | None]]) -> None:
    one, other = Scored(-1.0, 2, None), Scored(-2.0, 3, None)
    pairs = [Pair(Error("t", "w", *both), one, other) for both in stated]
    found = summarise(pairs, DISTANCES)
    assert found["pairs"] == found["correct"] == len(stated)
    assert sum(one["pairs"] for one in found["distances"]) == sum(distance is not None for distance, _ in stated)
    assert sum(one["pairs"] for one in found["frequencies"]) == sum(frequency is not None for _, frequency in stated)
    assert found["bands"] == []


def test_the_figure_of_agreement_is_reproducible_and_has_every_system_and_distance() -> None:
    curves = {"one <1>": [("1", 100.0), ("3-4", 75.0), ("13+", 50.0)], "two": [("1", 90.0), ("3-4", 80.0), ("13+", 40.0)]}
    colours = colours_of(curves)
    drawn = agreement(curves, colours).document()
    assert agreement(curves, colours).document() == drawn
    ElementTree.fromstring(drawn)
    for text in ("one &lt;1&gt;", "two", ">3-4<", ">13+<"):
        assert text in drawn
