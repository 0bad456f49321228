"""Passing probabilities, posteriors and transitions that are kept, against all paths of tiny graphs."""

import itertools
import math

import pytest
import torch

from fewstep.vocabulary import BOS, EOS
from models.dag.analysis import inspect, most_probable, passing_probabilities, vertex_posteriors
from models.dag.model import empty_vertices
from tests.kernels.dag_graphs import banded
from tests.models.dag.test_loss import PAIRS, batch_of, by_paths, network

FIVE = torch.tensor(
    [
        [0, 0.5, 0.25, 0.125, 0.125],
        [0, 0, 0.5, 0.25, 0.25],
        [0, 0, 0, 0.5, 0.5],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
    ]
)
TOKENS = torch.tensor([[1, 0, 0, 0, 0], [0.1, 0.5, 0.2, 0.4, 0.1], [0.1, 0.1, 0.6, 0.5, 0.1], [0, 0, 0.1, 0.2, 0.9]])


def paths(length, tokens=None):
    """Yield all paths from the first to the last of `length` vertices, or those with `tokens` vertices."""
    for inner in range(length - 1) if tokens is None else [tokens - 2]:
        for visited in itertools.combinations(range(1, length - 1), inner):
            yield (0, *visited, length - 1)


def random_transitions(length, generator):
    weights = torch.rand(length, length, generator=generator, dtype=torch.float64).triu(1)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-300)


def test_passing_probabilities_of_the_worked_example():
    assert passing_probabilities(FIVE[None])[0].tolist() == [1, 0.5, 0.5, 0.5, 1]


@pytest.mark.parametrize("length", [2, 3, 6, 9])
def test_passing_probabilities_are_those_of_all_paths(length):
    generator = torch.Generator().manual_seed(length)
    rows = [random_transitions(length, generator), random_transitions(max(2, length - 2), generator)]
    batch = torch.zeros(2, length, length, dtype=torch.float64)
    for row, transitions in enumerate(rows):
        batch[row, : len(transitions), : len(transitions)] = transitions
    for found, transitions in zip(passing_probabilities(batch), rows, strict=True):
        expected = [0.0] * length
        for path in paths(len(transitions)):
            for vertex in path:
                expected[vertex] += math.prod(transitions[i, j].item() for i, j in itertools.pairwise(path))
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_posteriors_of_the_worked_example():
    three, four = torch.tensor([3]), torch.tensor([4])
    tokens = torch.full((1, 4, 5), -math.inf)
    tokens[0] = TOKENS.log()
    found = vertex_posteriors(tokens, banded(FIVE.log()[None]), four, torch.tensor([5]))[0]
    assert found[1].tolist() == pytest.approx([0, 0.846154, 0.153846, 0, 0], abs=1e-5)
    assert found[2].tolist() == pytest.approx([0, 0, 0.461538, 0.538462, 0], abs=1e-5)
    found = vertex_posteriors(tokens[:, [0, 1, 3]].contiguous(), banded(FIVE.log()[None]), three, torch.tensor([5]))[0]
    assert found[1].tolist() == pytest.approx([0, 0.454545, 0.181818, 0.363636, 0], abs=1e-5)


def test_a_view_holds_the_statistics_of_the_paths():
    model = network()
    views = inspect(model, batch_of(PAIRS), 3)
    for view, (source, target) in zip(views, PAIRS, strict=True):
        m, size = len(target) + 2, 2 * (len(source) + 2)
        assert view.target.tolist() == [BOS, *target, EOS]
        assert view.transitions.shape == (size, size)
        assert view.posteriors.shape == (m, size)
        weights = {}
        tokens = by_token(model, source, size)
        for path in paths(size, m):
            edges = math.prod(view.transitions[i, j].item() for i, j in itertools.pairwise(path))
            weights[path] = edges * math.prod(tokens[v][y].item() for v, y in zip(path, view.target, strict=True))
        total = sum(weights.values())
        assert math.log(total) == pytest.approx(by_paths(model, source, target), abs=1e-4)
        expected = torch.zeros(m, size, dtype=torch.float64)
        for path, weight in weights.items():
            for token, vertex in enumerate(path):
                expected[token, vertex] += weight / total
        torch.testing.assert_close(view.posteriors, expected, atol=1e-5, rtol=1e-4)
        assert tuple(view.path.tolist()) == max(weights, key=weights.__getitem__)
        assert view.first.tolist() == [int(row.argmax()) for row in tokens]
        for vertex in range(1, size - 1):
            written = sorted([3, *range(7, 14)], key=lambda token, row=tokens[vertex]: -row[token].item())[:3]
            assert view.top_tokens.ids[vertex].tolist() == written
            scores = [tokens[vertex][token].item() for token in written]
            assert view.top_tokens.scores[vertex].tolist() == pytest.approx(scores, abs=1e-5)


def by_token(model, source, size):
    """Return the probabilities of all tokens at the vertices of one sentence's graph."""
    batch, lengths = batch_of([(source, [7])]), torch.tensor([size])
    with torch.no_grad():
        states = model.states(empty_vertices(lengths, size), lengths, model.read(batch.source, batch.source_lengths))[0]
        return list((states @ model.target_embedding.weight.t()).double().softmax(1))


def test_looking_leaves_the_network_as_it_was_and_other_sentences_do_not_matter():
    model = network(dropout=0.5).train()
    together, alone = inspect(model, batch_of(PAIRS), 2), inspect(model, batch_of(PAIRS[1:2]), 2)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for part, same in zip(together[1], alone[0], strict=True):
        for one, other in zip(part, same, strict=True) if isinstance(part, tuple) else [(part, same)]:
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_target_that_is_longer_than_its_graph_has_no_path():
    view, other = inspect(network(), batch_of([([7], [8] * 9), ([7, 8], [9])]), 2)
    assert view.path.tolist() == [-1] * 11
    assert not view.posteriors.any()
    assert other.path[0] == 0
    assert view.passing[[0, -1]].tolist() == pytest.approx([1, 1], abs=1e-6)


@pytest.mark.parametrize(
    ("row", "share", "expected"),
    [
        ([0, 0.5, 0.3, 0.1, 0.1], 0.8, [1, 2]),
        ([0, 0.1, 0.1, 0.3, 0.5], 0.81, [1, 3, 4]),
        ([0, 0.05, 0.9, 0.05, 0], 0.9, [2]),
        ([0, 0, 0, 0, 0], 0.9, []),
        ([0, 0.25, 0.25, 0.25, 0.25], 1.0, [1, 2, 3, 4]),
    ],
)
def test_the_fewest_likeliest_transitions_are_kept(row, share, expected):
    assert most_probable(torch.tensor([row], dtype=torch.float64), share)[0].nonzero()[:, 0].tolist() == expected
