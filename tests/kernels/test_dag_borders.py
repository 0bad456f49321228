"""Sums and best paths of graphs at the borders: short and long targets, no path, broken scores, padding."""

import itertools

import pytest
import torch

from tests.kernels.dag_graphs import Graphs, paths, random_graphs
from tests.kernels.dag_sides import SIDES, best_alignment, close, max_log_likelihood, native, sides


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
