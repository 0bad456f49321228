"""Graphs at their borders, and wrong calls of the kernels of graphs."""

import itertools
import statistics

import pytest
import torch

import kernels
from tests.kernels.dag_graphs import Graphs, banded, paths, random_graphs
from tests.kernels.test_dag import SIDES, best_alignment, close, log_likelihood, max_log_likelihood, native, sides

# ---- borders


@sides
def test_shortest_and_longest_targets(side):
    graphs = random_graphs(1, 9, 9, seed=7)
    tokens, transitions = graphs.tokens[0], graphs.transitions[0]
    two = graphs._replace(target_lengths=torch.tensor([2]))
    close(SIDES[side](two)[0], (tokens[0, 0] + transitions[0, 8] + tokens[1, 8])[None])
    close(SIDES[side](graphs)[0], (tokens.diag().sum() + transitions.diag(1).sum())[None])


@sides
@pytest.mark.parametrize(("tokens", "vertices"), [(6, 5), (1, 2), (0, 3), (3, 0), (0, 0)])
def test_a_sentence_without_a_path_is_minus_infinity_and_alone_with_it(side, tokens, vertices):
    graphs = random_graphs(3, 6, 9, seed=8)
    graphs = graphs._replace(target_lengths=torch.tensor([6, tokens, 4]), graph_lengths=torch.tensor([9, vertices, 7]))
    found = SIDES[side](graphs)
    assert found[0][1] == -torch.inf
    for cells in found[1:]:
        assert cells[1].count_nonzero() == 0
    for b in (0, 2):
        alone = Graphs(*(x[b : b + 1] for x in graphs))
        for cells, expected in zip(found, SIDES[side](alone), strict=True):
            assert torch.equal(cells[b], expected[0])
    vertices, scores = best_alignment(*graphs)
    assert scores[1] == -torch.inf
    assert vertices[1].tolist() == [-1] * 6


@sides
def test_scores_that_allow_no_path(side):
    graphs = random_graphs(3, 4, 8, seed=9)
    graphs = graphs._replace(target_lengths=torch.tensor([4, 4, 4]), graph_lengths=torch.tensor([8, 8, 8]))
    graphs.tokens[0, 2] = -torch.inf
    graphs.transitions[1] = -torch.inf
    graphs.transitions[2, :, 7] = -torch.inf
    for found in SIDES[side](graphs):
        assert torch.equal(found, torch.full_like(found, -torch.inf if found.ndim == 1 else 0.0))


def test_one_vertex_and_one_token_is_a_path():
    graphs = random_graphs(2, 3, 5, seed=10)._replace(target_lengths=torch.tensor([1, 1]), graph_lengths=torch.tensor([1, 1]))
    for passes in SIDES.values():
        found, tokens, transitions = passes(graphs)
        close(found, graphs.tokens[:, 0, 0])
        assert tokens.count_nonzero() == 2
        close(tokens[:, 0, 0], [1.0, 1.0])
        assert transitions.count_nonzero() == 0
    assert best_alignment(*graphs).vertices.tolist() == [[0, -1, -1]] * 2


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_nothing_reads_the_cells_of_no_path(garbage):
    """Results are equal to the bit with garbage in the padding and among other sentences."""
    graphs = random_graphs(4, 6, 19, seed=11, dtype=torch.float32)
    graphs = graphs._replace(graph_lengths=graphs.graph_lengths.clamp_min(6))
    wide = random_graphs(4, 9, 26, seed=12, dtype=torch.float32)
    wide.tokens.fill_(garbage)
    wide.transitions.fill_(garbage)
    for b, (m, size) in enumerate(zip(graphs.target_lengths.tolist(), graphs.graph_lengths.tolist(), strict=True)):
        wide.tokens[b, :m, :size] = graphs.tokens[b, :m, :size]
        inside = torch.ones(size, size).triu(1) > 0
        wide.transitions[b, :size, :size] = graphs.transitions[b, :size, :size].where(inside, torch.tensor(garbage))
    wide = wide._replace(target_lengths=graphs.target_lengths, graph_lengths=graphs.graph_lengths)
    (found, tokens, transitions), (found_wide, tokens_wide, transitions_wide) = SIDES["native"](graphs), SIDES["native"](wide)
    assert torch.equal(found, found_wide)
    assert torch.equal(tokens, tokens_wide[:, :6, :19])
    assert torch.equal(transitions, transitions_wide[:, :19, :19])
    for outside in (tokens_wide[:, 6:], tokens_wide[:, :, 19:], transitions_wide[:, 19:], transitions_wide[:, :, 19:]):
        assert outside.count_nonzero() == 0
    assert torch.equal(best_alignment(*graphs).vertices, best_alignment(*wide).vertices[:, :6])
    scores = [x.clone().requires_grad_() for x in wide[:2]]
    most = max_log_likelihood(*scores, *wide[2:])
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(most.sum(), scores))


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["tokens", "transitions"])
def test_a_broken_score_breaks_its_sentence_alone(careful, bad, where):
    graphs = random_graphs(3, 6, 19, seed=13)
    graphs = graphs._replace(target_lengths=torch.tensor([6, 6, 6]), graph_lengths=torch.tensor([19, 19, 19]))
    clean = native(graphs, careful=careful)
    getattr(graphs, where)[1, 3, 11] = bad
    found = native(graphs, careful=careful, threads=2)
    assert found[0].isnan().tolist() == [False, True, False]
    for cells, expected in zip(found[1:], clean[1:], strict=True):
        assert cells[1].count_nonzero() == 0
        assert torch.equal(cells[[0, 2]], expected[[0, 2]])
    vertices, scores = best_alignment(*graphs)
    assert scores.isnan().tolist() == [False, True, False]
    assert vertices[1].tolist() == [-1] * 6
    assert max_log_likelihood(*graphs).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize(("tokens", "vertices"), [(1, 1), (2, 5), (3, 5), (4, 6), (6, 6)])
def test_exactly_the_cells_of_paths_are_read(careful, tokens, vertices):
    """A NaN invalidates the sentence if and only if a path meets it."""
    graphs = random_graphs(1, tokens, vertices, seed=3)
    met = paths(tokens, vertices)
    edges = {edge for path in met for edge in itertools.pairwise(path)}
    emissions = {emission for path in met for emission in enumerate(path)}
    for name, cells, size in (("transitions", edges, vertices**2), ("tokens", emissions, tokens * vertices)):
        batch = Graphs(*(x.repeat_interleave(size, 0) for x in graphs))
        for cell in range(size):
            getattr(batch, name)[cell, cell // vertices, cell % vertices] = torch.nan
        wanted = [(cell // vertices, cell % vertices) in cells for cell in range(size)]
        assert native(batch, careful=careful)[0].isnan().tolist() == wanted
        assert best_alignment(*batch).scores.isnan().tolist() == wanted


# ---- calls


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
