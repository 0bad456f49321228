"""Viterbi search by tensors of fixed shapes: the paths and scores of the search on the host, to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.search.dag_paths import DagViterbiOptions, dag_follow, dag_viterbi
from models.dag.search import jump
from models.dag.viterbi import best_paths, follow, length_powers
from tests.fewstep.search.test_dag_paths import FIVE, FIVE_TOKENS
from tests.kernels.dag_graphs import banded
from tests.models.dag.test_decode import path_score, paths, random_graph


def compare(transitions, tokens, lengths, exponent):
    """Compare with the host's search; the id of a vertex is its number."""
    size = tokens.size(1)
    ids = torch.arange(size).expand_as(tokens)
    found = best_paths(transitions, tokens, ids, lengths, length_powers(size, exponent, torch.device("cpu")))
    expected = dag_viterbi(transitions, tokens, lengths, options=DagViterbiOptions(length_exponent=exponent))
    assert found.counts.tolist() == expected.lengths.tolist()
    assert np.array_equal(found.scores.numpy(), expected.scores)
    for row, (hypothesis,) in enumerate(found.hypotheses()):
        assert hypothesis.ids == expected.vertices[row, 1 : expected.lengths[row] + 1].tolist()


@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    exponent=st.sampled_from([0.0, 0.7, 1.0, 2.5]),
    rounded=st.booleans(),
)
def test_paths_are_those_of_the_host(lengths, seed, exponent, rounded):
    """Rounded scores have many equal paths."""
    graph = random_graph(lengths, seed=seed)
    transitions, tokens = graph.transitions, graph.tokens.scores[..., 0].contiguous()
    if rounded:
        transitions, tokens = transitions.round(), tokens.round()
    for best in (tokens, torch.zeros_like(tokens)):
        compare(transitions, best, graph.lengths, exponent)


@given(seed=st.integers(0, 2**32), holes=st.floats(0.1, 0.9), size=st.integers(2, 9))
def test_impossible_scores_are_left_out(seed, holes, size):
    generator = torch.Generator().manual_seed(seed)
    graph = random_graph([size, max(2, size - 3)], seed=seed)
    impossible = torch.tensor([-torch.inf, torch.nan])
    broken = []
    for scores in (graph.transitions, graph.tokens.scores[..., 0]):
        kind = impossible[torch.randint(2, scores.shape, generator=generator)]
        broken.append(torch.where(torch.rand(scores.shape, generator=generator) < holes, kind, scores).contiguous())
    compare(*broken, graph.lengths, 1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.420051, 0.420053, 0.966925, 0.966927, 1.0])
def test_the_length_is_chosen_as_on_the_host_around_equal_scores(exponent):
    """The scores of the best paths with one, two and three tokens are equal at the exponents .420052 and .966926."""
    transitions, tokens = banded(torch.from_numpy(FIVE)), torch.from_numpy(FIVE_TOKENS)
    compare(transitions, tokens, torch.tensor([5]), exponent)


def test_the_best_of_all_paths():
    graph = random_graph([8, 2, 5], seed=3)
    tokens = graph.tokens.scores[..., 0].clone()
    rows, last = torch.arange(3), graph.lengths - 1
    tokens[rows, last] = 0.0  # that of the last vertex is not read
    graph = graph._replace(tokens=graph.tokens._replace(scores=tokens[..., None]))
    found = best_paths(
        graph.transitions, tokens, torch.arange(8).expand(3, -1), graph.lengths, length_powers(8, 0.5, tokens.device)
    )
    for row, length in enumerate(graph.lengths.tolist()):
        values = {path: path_score(graph, row, path) / max(1, len(path) - 2) ** 0.5 for path in paths(length)}
        if length > 2:
            del values[(0, length - 1)]
        best = max(values, key=values.get)
        assert found.ids[row, : found.counts[row]].tolist() == list(best[1:-1])
        assert found.scores[row].item() == pytest.approx(values[best], abs=1e-5)


def test_powers_beyond_the_largest_number_end_no_search():
    assert length_powers(2000, 100.0, torch.device("cpu"))[-1] == torch.inf


@given(st.integers(1, 20).flatmap(lambda size: st.tuples(*[st.lists(st.integers(0, size - 1), min_size=size, max_size=size)] * 2)))
def test_jumps_visit_the_vertices_of_single_steps(rows):
    following = torch.tensor(rows)
    size = following.size(1)
    for lengths in ([size, size], [size, max(1, size // 2)]):
        expected = torch.from_numpy(dag_follow(following, torch.tensor(lengths)))
        found = jump(following, torch.tensor(lengths))
        assert found[:, : expected.size(1)].tolist() == expected.tolist()
        assert (found[:, expected.size(1) :] == -1).all()


def test_places_are_followed_as_often_as_asked():
    following = torch.tensor([[2, 0, 1], [1, 1, 0]])
    for count in range(1, 8):
        assert follow(following, torch.tensor([[1], [2]]), count).tolist() == [
            [1, 0, 2, 1, 0, 2, 1][:count],
            [2, 0, 1, 1, 1, 1, 1][:count],
        ]
