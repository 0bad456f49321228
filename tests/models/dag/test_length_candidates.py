"""Graphs of other sizes in decoding: another factor, and several predicted lengths."""

import dataclasses
import math

import pytest

from fewstep.config.search import SystemParts
from fewstep.families.dag.config import DagSearch
from fewstep.families.dag.search import choose_graphs
from fewstep.translation import Hypothesis
from models.dag.decode import DagDecoder
from tests.models.dag.test_native import SMALL, compare, frozen, network, outputs, sources

PREDICTED = {"graph_size": "predicted", "positions": "learned"}
STRATEGIES = ["greedy", "lookahead", "joint-viterbi", "beam"]


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
def test_a_search_has_a_factor_of_its_own(graph_size):
    model, rows = network(graph_size=graph_size, graph_factor_range=(2.0, 4.0)), sources(8)
    plain, native = DagDecoder(model), frozen(model)
    sizes = {}
    for factor in (None, 2.0, 2.7, 3.0):
        search = DagSearch(graph_factor=factor)
        sizes[factor] = plain.graph(plain.prepare(rows), search).lengths.tolist()
        assert native.graph(native.prepare(rows), search).lengths.tolist() == sizes[factor]
        compare(outputs(plain, rows, search), outputs(native, rows, search))
    assert sizes[None] == sizes[3.0] != sizes[2.0]
    assert all(small <= large for small, large in zip(sizes[2.0], sizes[2.7], strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_best_of_several_lengths_is_chosen(strategy):
    model, rows = network(**PREDICTED), sources(8)
    plain, native = DagDecoder(model), frozen(model)
    search = DagSearch(strategy=strategy, length_candidates=3, length_penalty=0.7, beam_size=20)
    found = outputs(native, rows, search)
    compare(outputs(plain, rows, search), found)
    assert [outputs(native, [row], search)[0] for row in rows] == found
    one = dataclasses.replace(search, length_candidates=1)
    alone = [native.engines["native"]._search(native.prepare(rows), one, 1, rank) for rank in range(3)]
    assert alone[0] == outputs(native, rows, one)
    assert alone[0] != alone[1]
    for row, (best,) in enumerate(found):
        power = 0.0 if search.divides_by_length else 0.7
        scores = [ranked[row][0].score / (len(ranked[row][0].ids) + 1) ** power for ranked in alone]
        assert best.score == pytest.approx(max(scores), abs=1e-6)
        assert best.ids in [ranked[row][0].ids for ranked in alone]


def test_outputs_of_several_graphs_are_distinct_and_the_more_probable_length_wins_ties():
    graphs = [
        [[Hypothesis([7, 8], -3.0, 1, {"margin": 0.5}), Hypothesis([9], -4.0, 1, {"margin": 0.5})]],
        [[Hypothesis([9], -3.0, 1, {"margin": 0.4}), Hypothesis([7, 8], -3.5, 1, {"margin": 0.4})]],
    ]
    search = DagSearch(strategy="beam", n_best=2, length_candidates=2)
    (found,) = choose_graphs(graphs, search)
    assert [(one.ids, one.score) for one in found] == [([7, 8], -3.0), ([9], -3.0)]
    assert [one.statistics["margin"] for one in found] == [0.0, 0.0]
    lookahead = DagSearch(length_candidates=2, length_penalty=1.0)
    (divided,) = choose_graphs(graphs, lookahead)
    assert [(one.ids, one.score) for one in divided] == [([7, 8], -1.0)]
    assert divided[0].statistics["margin"] == pytest.approx(0.4)
    assert choose_graphs(graphs[:1], search) == graphs[0]
    assert math.isinf(min(choose_graphs([[[Hypothesis([], -math.inf, 1)]]] * 2, search)[0][0].score, 0))


@pytest.mark.parametrize(
    ("changes", "search", "path"),
    [
        ({}, DagSearch(graph_factor=5.0), "graph_factor"),
        ({"graph_factor_range": (2.0, 4.0)}, DagSearch(graph_factor=1.9), "graph_factor"),
        ({}, DagSearch(length_candidates=2), "length_candidates"),
        (PREDICTED, DagSearch(strategy="sample", length_candidates=2), "length_candidates"),
        (PREDICTED, DagSearch(length_candidates=101), "length_candidates"),
    ],
)
def test_sizes_that_training_did_not_draw_are_refused(changes, search, path):
    problems = list(search.problems(dataclasses.replace(SMALL, **changes), SystemParts()))
    assert [problem.path for problem in problems] == [(path,)]
