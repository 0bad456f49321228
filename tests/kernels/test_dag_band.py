"""Transitions to the next vertices only: results are, to the bit, those of dense transitions without the others."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kernels
from fewstep.native import fewstep_native
from kernels.reference import dag as reference
from tests.kernels.dag_graphs import Graphs, banded, extreme_graphs, path_scores, paths, random_graphs


def without_far(graphs, band):
    """Return graphs without the transitions outside the band, and the same with the band alone."""
    far = torch.ones(graphs.transitions.shape[1:]).triu(band + 1) > 0
    cells = banded(graphs.transitions, band, beyond=torch.nan)
    whole = banded(graphs.transitions.masked_fill(far, -torch.inf), beyond=torch.nan)
    return graphs._replace(transitions=whole), graphs._replace(transitions=cells)


def native(graphs, *, log_space=False):
    """Return likelihoods, posteriors, best paths and their scores."""
    arrays = [x.contiguous().numpy() for x in graphs]
    found = [torch.full_like(x, torch.nan) for x in (graphs.tokens[:, 0, 0], graphs.tokens, graphs.transitions)]
    fewstep_native.dag_posteriors(*arrays, *(x.numpy() for x in found), log_space=log_space, threads=1)
    return [*found, *kernels.dag_best_alignment(*graphs)]


def assert_equal(graphs, band):
    whole, narrow = without_far(graphs, band)
    for log_space in (False, True):
        *expected, paths, scores = native(whole, log_space=log_space)
        *found, found_paths, found_scores = native(narrow, log_space=log_space)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
        assert torch.equal(found[2], expected[2][..., : found[2].size(2)])
        assert expected[2][..., found[2].size(2) :].count_nonzero() == 0
        assert torch.equal(found_paths, paths)
        assert torch.equal(found_scores, scores)


@given(graphs=extreme_graphs(), band=st.integers(0, 9))
def test_extreme_scores(graphs, band):
    assert_equal(graphs, band)


@given(tokens=st.integers(1, 40), vertices=st.integers(1, 90), band=st.integers(0, 89), seed=st.integers(0, 2**32))
def test_graphs_of_several_lanes(tokens, vertices, band, seed):
    assert_equal(random_graphs(3, tokens, vertices, seed=seed, dtype=torch.float32), band)


@given(tokens=st.integers(1, 7), vertices=st.integers(1, 8), band=st.integers(1, 7), seed=st.integers(0, 2**32))
def test_values_and_gradients_are_those_of_the_reference(tokens, vertices, band, seed):
    _, graphs = without_far(random_graphs(3, tokens, vertices, seed=seed), band)
    results = []
    for likelihood in (reference.dag_log_likelihood, kernels.dag_log_likelihood):
        scores = [x.clone().requires_grad_() for x in graphs[:2]]
        found = likelihood(*scores, *graphs[2:])
        results.append((found.detach(), *torch.autograd.grad(found.sum(), scores, materialize_grads=True)))
    for found, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    expected_paths, expected_scores = reference.dag_best_alignment(*graphs)
    found_paths, found_scores = kernels.dag_best_alignment(*graphs)
    assert torch.equal(found_paths, expected_paths)
    torch.testing.assert_close(found_scores, expected_scores)
    torch.testing.assert_close(kernels.dag_max_log_likelihood(*graphs), expected_scores)


def test_the_gradient_of_the_best_path_is_the_path():
    dense = random_graphs(1, 4, 9, seed=3)
    _, graphs = without_far(dense, 3)
    cells = graphs.transitions.clone().requires_grad_()
    kernels.dag_max_log_likelihood(graphs.tokens, cells, *graphs[2:]).sum().backward()
    path = max(((score, p) for p, score in path_scores(dense, 0).items() if max(j - i for i, j in itertools.pairwise(p)) <= 3))[1]
    assert cells.grad[0].nonzero().tolist() == [[i, j - i - 1] for i, j in itertools.pairwise(path)]


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize(("tokens", "vertices", "band"), [(3, 6, 3), (4, 6, 2), (4, 9, 3), (2, 5, 4)])
def test_no_more_transitions_are_read_than_those_of_paths(tokens, vertices, band, log_space):
    """A NaN among the transitions invalidates the sentence only if a path of its length may take it."""
    graphs = random_graphs(1, tokens, vertices, seed=3)
    taken = {edge for path in paths(tokens, vertices) for edge in itertools.pairwise(path)}
    cells = banded(graphs.transitions, band, beyond=torch.nan)
    batch = Graphs(*(x.repeat_interleave(vertices * band, 0) for x in graphs._replace(transitions=cells)))
    for cell in range(vertices * band):
        batch.transitions[cell, cell // band, cell % band] = torch.nan
    edges = [(cell // band, cell // band + 1 + cell % band) for cell in range(vertices * band)]
    assert native(batch, log_space=log_space)[0].isnan().tolist() == [edge in taken for edge in edges]


def test_a_graph_that_no_path_of_the_band_spans():
    _, graphs = without_far(random_graphs(2, 3, 8, seed=1), 3)  # 2 transitions lead 6 vertices ahead
    graphs = graphs._replace(target_lengths=torch.tensor([3, 3]), graph_lengths=torch.tensor([8, 7]))
    assert kernels.dag_log_likelihood(*graphs).isfinite().tolist() == [False, True]
    assert kernels.dag_best_alignment(*graphs).vertices.tolist()[0] == [-1, -1, -1]
    assert kernels.dag_best_alignment(*graphs).vertices.tolist()[1] == [0, 3, 6]
