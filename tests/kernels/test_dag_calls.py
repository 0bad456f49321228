"""How the sums and best paths of graphs are called: threads, gradients, strides, and what does not fit."""

import itertools
import statistics

import pytest
import torch

import kernels
from tests.kernels.dag_graphs import Graphs, banded, random_graphs
from tests.kernels.dag_sides import SIDES, best_alignment, close, log_likelihood, max_log_likelihood, native


def test_threads_change_nothing():
    graphs = random_graphs(13, 9, 40, seed=14, dtype=torch.float32)
    one = [native(graphs, careful=careful) for careful in (False, True)]
    for threads in (2, 3, 20):
        for careful, expected in zip((False, True), one, strict=True):
            assert all(torch.equal(*pair) for pair in zip(native(graphs, careful=careful, threads=threads), expected, strict=True))
        for found, expected in zip(best_alignment(*graphs, threads=threads), best_alignment(*graphs, threads=1), strict=True):
            assert torch.equal(found, expected)


def test_gradients_are_multiplied_and_can_be_asked_for_again():
    graphs = random_graphs(3, 5, 12, seed=15)
    scores = [x.clone().requires_grad_() for x in graphs[:2]]
    found = log_likelihood(*scores, *graphs[2:])
    upstream = torch.tensor([2.0, -3.0, 0.0], dtype=torch.float64)
    first = torch.autograd.grad(found, scores, upstream, retain_graph=True)
    again = torch.autograd.grad(found, scores, -upstream)
    for one, other, plain in zip(first, again, SIDES["reference"](graphs)[1:], strict=True):
        close(one, plain * upstream[:, None, None])
        assert torch.equal(one, -other)
    assert not log_likelihood(*graphs).requires_grad


def test_the_gradient_of_the_best_path_is_the_path():
    graphs = random_graphs(2, 5, 12, seed=16)._replace(target_lengths=torch.tensor([5, 4]), graph_lengths=torch.tensor([12, 3]))
    scores = [x.clone().requires_grad_() for x in graphs[:2]]
    found = max_log_likelihood(*scores, *graphs[2:])
    vertices, expected = best_alignment(*graphs)
    close(found.detach(), expected)
    assert found[1] == -torch.inf
    tokens, transitions = torch.autograd.grad(found.sum(), scores)
    path = vertices[0].tolist()
    assert [tuple(cell) for cell in tokens.nonzero().tolist()] == [(0, t, v) for t, v in enumerate(path)]
    assert [tuple(cell) for cell in transitions.nonzero().tolist()] == [(0, i, j) for i, j in itertools.pairwise(path)]
    assert tokens.max() == transitions.max() == 1.0


def test_strided_scores_are_as_good_as_contiguous_ones():
    graphs = random_graphs(3, 6, 10, seed=17)
    turned = graphs._replace(tokens=graphs.tokens.transpose(1, 2).contiguous().transpose(1, 2))
    assert torch.equal(log_likelihood(*turned), log_likelihood(*graphs))


def test_an_empty_batch():
    graphs = random_graphs(1, 3, 4)
    empty = Graphs(*(x[:0] for x in graphs))
    assert log_likelihood(*empty).shape == (0,)
    assert best_alignment(*empty).vertices.shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokens": torch.zeros(2, 3, 5).bfloat16()}, TypeError, "token_log_probs: expected float32"),
        ({"transitions": torch.zeros(2, 5, 4)}, TypeError, "transition_log_probs: expected float32, or float64 like"),
        ({"tokens": torch.zeros(3, 5).double()}, ValueError, "token_log_probs: expected three dimensions"),
        ({"transitions": torch.zeros(2, 4, 4).double()}, ValueError, "transition_log_probs: expected .2, 5, .* got .2, 4, 4."),
        ({"transitions": torch.zeros(2, 5, 5).double()}, ValueError, "expected .2, 5, fewer than 5., .* got .2, 5, 5."),
        ({"target_lengths": torch.tensor([3, 4])}, ValueError, "target_lengths: expected 0 to 3, got 4"),
        ({"target_lengths": torch.tensor([3, -1])}, ValueError, "target_lengths: expected 0 to 3, got -1"),
        ({"graph_lengths": torch.tensor([6, 5])}, ValueError, "graph_lengths: expected 0 to 5, got 6"),
        ({"graph_lengths": torch.tensor([5])}, ValueError, "graph_lengths: expected .2., got .1."),
        ({"graph_lengths": torch.tensor([5, 5]).int()}, TypeError, "graph_lengths: expected int64"),
        (
            {"tokens": torch.zeros(2, 3, 5, device="meta").double()},
            ValueError,
            "token_log_probs: expected all tensors on the CPU, .* got meta",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, error, message):
    graphs = random_graphs(2, 3, 5)
    graphs = graphs._replace(**{"transitions": banded(graphs.transitions), **change})
    for function in (kernels.dag_log_likelihood, kernels.dag_best_alignment, kernels.dag_max_log_likelihood):
        with pytest.raises(error, match=message):
            function(*graphs)


def test_plain_products_usually_do():
    """Most of the speed depends on the route. The two routes round differently, which shows the one that was taken."""
    generator = torch.Generator().manual_seed(18)
    graphs = random_graphs(16, 40, 160, seed=18, spread=1.5)
    graphs = graphs._replace(target_lengths=torch.full((16,), 40), graph_lengths=torch.full((16,), 160))
    peaks = torch.rand(16, 40, 160, generator=generator) < 0.05
    trained = graphs._replace(tokens=torch.where(peaks, -0.5, -14.0 + graphs.tokens).double())
    fresh = graphs._replace(tokens=graphs.tokens * 0.1 - 9.0)
    for kind in (trained, fresh):
        differ = [not torch.equal(*pair) for pair in zip(native(kind)[1], native(kind, careful=True)[1], strict=True)]
        assert statistics.mean(differ) == 1.0
