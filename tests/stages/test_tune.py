"""Tuning of length penalties and of shortlists."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stages.shared.decoding.systems
import stages.tune.run
from fewstep.config.labels import label_of, parse_label
from fewstep.config.options import MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.config.search import SystemParts
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.dag.config import DagSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.shortlist import Lexicon
from fewstep.translation import Hypothesis
from stages.artifacts import System, Tuned
from stages.shared.decoding.searches import with_tuned_options
from stages.tune import TuneConfig, TuneInputs
from stages.tune.run import Measured, ranks, run, smallest
from tests.stages.steps import context_in, read_json, write_text

# ---- length penalties


BEAM = StepwiseSearch(strategy="beam", beam_size=3, n_best=2, length_penalty=9.0)
LINES = ["a b c d e f", "g h i j k l", "m n o p q r"]


class Shortening:
    """Copies its source without its last words. Their number grows with the distance of the length penalty from 0.6."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self) -> None:
        self.decoder = self

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(word) for word in line.split()] for line in lines]

    def decode_ids(self, ids: Sequence[Sequence[int]], lines: Sequence[str]) -> list[str]:
        return [" ".join(chr(id_) for id_ in row) for row in ids]

    def prepare(self, sources: Sequence[Sequence[int]], search: Any, threads: int | None = None) -> list[list[int]]:
        return [list(ids) for ids in sources]

    def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        left_out = round(10 * abs(search.length_penalty - 0.6)) // 2
        return [[Hypothesis(ids[: len(ids) - left_out], 0.0, 1), Hypothesis(ids, -1.0, 1)] for ids in prepared]


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.shared.decoding.systems, "load_system", lambda directory, device="cpu": Shortening())
    monkeypatch.setattr(stages.tune.run, "PIECE_ROWS", 2)


def tuned(tmp_path: Path, penalties: tuple[float, ...], **options: Any) -> dict[str, Any]:
    text = write_text(tmp_path / "text", [(line, line) for line in LINES], ids=[5, 1, 3])
    config = TuneConfig(search=BEAM, length_penalties=penalties, target_language="de", **options)
    run(TuneInputs(System(tmp_path, "s"), text), config, context_in(tmp_path / "out"))
    return dict(read_json(tmp_path / "out" / "tuned.json"))


def test_the_penalty_with_the_best_score_is_chosen(tmp_path: Path) -> None:
    found = tuned(tmp_path, (0.0, 0.6, 1.0))
    assert (found["length_penalty"], found["metric"], found["search"]) == (0.6, "bleu", BEAM.label)
    assert found["score"] == pytest.approx(100.0)
    assert [one["length_penalty"] for one in found["candidates"]] == [0.0, 0.6, 1.0]
    scores = [one["score"] for one in found["candidates"]]
    assert scores[0] < scores[2] < scores[1]


def test_the_first_penalty_is_chosen_on_a_tie(tmp_path: Path) -> None:
    assert tuned(tmp_path, (1.0, 0.65, 0.6))["length_penalty"] == 0.65


def test_the_tuned_penalty_is_applied_to_the_search(tmp_path: Path) -> None:
    (tmp_path / "tuned.json").write_text(json.dumps({"length_penalty": 0.4}))
    assert with_tuned_options(BEAM, Tuned(tmp_path, "x")) == replace(BEAM, length_penalty=0.4)
    assert with_tuned_options(BEAM, None) is BEAM


@pytest.mark.parametrize(
    ("search", "has_one"),
    [
        (BEAM, True), (StepwiseSearch(), False), (StepwiseSearch(strategy="sample"), False), (DagSearch(strategy="beam"), True),
        (DagSearch(strategy="viterbi"), True), (DagSearch(strategy="joint-viterbi"), True),
        (DagSearch(strategy="lookahead"), False), (DagSearch(strategy="greedy"), False),
    ],
    ids=lambda value: getattr(value, "label", ""),
)  # fmt: skip
def test_searches_that_penalise_length(search: Any, has_one: bool) -> None:
    assert search.penalises_length == has_one


def test_penalties_are_compared_as_the_validations_of_the_training_are(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    found = tuned(tmp_path, (0.2, 0.6))
    tokens = tuned(tmp_path / "tokens", (0.2, 0.6), tokenized=True)
    assert (found["metric"], tokens["metric"]) == ("bleu", "tokenized_bleu")
    assert "pre:moses" in tokens["signature"]
    assert found["length_penalty"] == tokens["length_penalty"] == 0.6


# ---- shortlists


HALF = Shortlist(recall=0.5, links=2)
SEARCH = StepwiseSearch(shortlist=HALF)


def lexicon() -> Lexicon:
    return Lexicon(np.arange(1000)[::-1].copy(), np.array([[7, 8, 9], [5, -1, -1]]))


def test_the_rank_of_a_token_is_the_size_that_lists_it() -> None:
    pairs = [([0], [7, 9, 999, 998, 5]), ([1], [5, 7]), ([], [2000])]
    expected = sorted([0, 991, 1, 2, 995, 0, 993, MAX_SHORTLIST_TOKENS + 1])
    assert ranks(lexicon(), 2, pairs).tolist() == expected


@pytest.mark.parametrize(("recall", "tokens"), [(0.25, 50), (0.5, 50), (0.51, 100), (0.75, 100), (0.76, 300), (1.0, 300)])
def test_the_smallest_size_with_the_recall_is_chosen(recall: float, tokens: int) -> None:
    found = np.array([0, 40, 51, 280])
    measured = smallest(found, Shortlist(recall=recall))
    assert measured.tokens == tokens
    assert measured.recall >= recall
    assert measured.recall == (found <= tokens).mean()


def test_all_tokens_are_ranked_where_no_size_suffices() -> None:
    found = np.array([0, 1, 1, MAX_SHORTLIST_TOKENS + 1])
    assert smallest(found, Shortlist(recall=0.75)).tokens == 50
    assert smallest(found, Shortlist(recall=0.76)) == Measured(None, 0.75, 4)


def test_labels_distinguish_a_stated_from_a_measured_size() -> None:
    labels = {StepwiseSearch(shortlist=Shortlist(tokens=300)): "greedy-shortlist300x16", SEARCH: "greedy-shortlist_recall0.5x2"}
    for search, label in labels.items():
        assert label_of(search) == label
        assert parse_label(label, StepwiseSearch) == search
        assert StepwiseSearch.from_values(search.values()) == search
    assert StepwiseSearch(shortlist=Shortlist(tokens=300)).values()["shortlist"] == {"tokens": 300, "links": 16}


@pytest.mark.parametrize(
    ("search", "problem"),
    [
        (StepwiseSearch(shortlist=Shortlist()), "shortlist: expected tokens or recall"),
        (StepwiseSearch(shortlist=Shortlist(tokens=9, recall=0.9)), "shortlist.recall: expected empty"),
        (AggressiveSearch(strategy="gad", draft_shortlist=HALF), "draft_shortlist.tokens: expected a number"),
    ],
    ids=["neither", "both", "drafts"],
)
def test_invalid_shortlists(search: StepwiseSearch, problem: str) -> None:
    assert any(problem in found.text() for found in search.problems(None, SystemParts(tables=True)))


def test_the_measured_size_is_applied_to_the_search(tmp_path: Path) -> None:
    for tokens, expected in ((150, Shortlist(tokens=150, links=2)), (None, None)):
        (tmp_path / "tuned.json").write_text(json.dumps({"shortlist": {"tokens": tokens, "links": 2}}))
        assert with_tuned_options(SEARCH, Tuned(tmp_path, "x")) == replace(SEARCH, shortlist=expected)
