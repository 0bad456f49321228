"""Sizes of shortlists that follow from a recall."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fewstep.config.labels import label_of, parse_label
from fewstep.config.options import MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.config.search import SystemParts
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.shortlist import Lexicon
from stages.artifacts import Tuned
from stages.shared.decoding.searches import with_tuned_options
from stages.tune.shortlist import Measured, ranks, smallest

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
