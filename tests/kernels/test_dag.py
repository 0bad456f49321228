"""Path sums, best paths and alignments of graphs: every implementation against brute force and the others, dense and in bands, at
the borders, and in wrong calls."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import kernels
from fewstep.native import fewstep_native
from kernels.reference import dag as reference
from tests.kernels.dag_graphs import (
    STEEP,
    Graphs,
    banded,
    dense,
    extreme_graphs,
    five_vertices,
    log_sum,
    of_dense,
    path_scores,
    paths,
    posteriors,
    random_graphs,
    steep,
    uniform,
)

# ---- the implementations of the sums and best paths of graphs that tests compare: the reference, and two routes of native code


log_likelihood = of_dense(kernels.dag_log_likelihood)
max_log_likelihood = of_dense(kernels.dag_max_log_likelihood)
best_alignment = of_dense(kernels.dag_best_alignment)


def native(graphs, *, careful=False, threads=1):
    """Return likelihoods and posteriors of the extension itself."""
    band = banded(graphs.transitions, beyond=torch.nan)
    arrays = [x.contiguous().numpy() for x in graphs._replace(transitions=band)]
    found = torch.empty(len(graphs.tokens), dtype=graphs.tokens.dtype)
    cells = torch.full_like(graphs.tokens, torch.nan), torch.full_like(band, torch.nan)
    fewstep_native.dag_posteriors(*arrays, found.numpy(), *(x.numpy() for x in cells), log_space=careful, threads=threads)
    alone = torch.empty_like(found)
    fewstep_native.dag_log_likelihood(*arrays, alone.numpy(), log_space=careful, threads=threads)
    torch.testing.assert_close(alone, found, rtol=1e-9, atol=0, equal_nan=True)
    return found, cells[0], dense(cells[1])


def by_autograd(log_likelihood):
    def passes(graphs):
        scores = [x.clone().requires_grad_() for x in graphs[:2]]
        found = log_likelihood(*scores, *graphs[2:])
        return (found.detach(), *torch.autograd.grad(found.sum(), scores, materialize_grads=True))

    return passes


SIDES = {
    "reference": by_autograd(of_dense(reference.dag_log_likelihood)),
    "native": by_autograd(log_likelihood),
    "careful": lambda graphs: native(graphs, careful=True),
}
"""Likelihoods and gradients [B], [B,M,L], [B,L,L]."""
sides = pytest.mark.parametrize("side", SIDES)
aligners = pytest.mark.parametrize("align", [of_dense(reference.dag_best_alignment), best_alignment])


def close(found, expected, atol=1e-9, rtol=1e-9):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), atol=atol, rtol=rtol)


# ---- sums and best paths of graphs: known answers, brute force and laws


# Known answers


@sides
def test_uniform_graphs_of_any_size_in_single_precision(side):
    graphs, exact = uniform(64, 20)
    assert math.log(exact) == pytest.approx(-20.769440, abs=1e-6)
    close(SIDES[side](graphs)[0], [math.log(exact)])
    close(SIDES[side](graphs.to(torch.float32))[0], [math.log(exact)], atol=1e-4)
    graphs, exact = uniform(140, 35)
    close(SIDES[side](graphs.to(torch.float32))[0], [math.log(exact.numerator) - math.log(exact.denominator)], atol=1e-3)


@sides
@pytest.mark.parametrize(("slope", "expected"), STEEP.items())
def test_sums_beyond_the_range_of_single_precision(side, slope, expected):
    graphs = steep(slope)
    found = SIDES[side](graphs)
    close(found[0], [expected], atol=1e-6, rtol=0)
    close(found[2].sum(), 23.0)  # a transition for each token but the first
    narrow = SIDES[side](graphs.to(torch.float32))
    close(narrow[0], [expected], atol=1e-4, rtol=0)
    for values, wanted in zip(narrow[1:], found[1:], strict=True):
        close(values.double(), wanted, atol=1e-4, rtol=1e-4)


@sides
def test_five_vertices(side):
    found, tokens, transitions = SIDES[side](five_vertices("A"))
    close(found, [math.log(99 / 800)])
    close(tokens[0, 1], [0, 0.454545, 0.181818, 0.363636, 0], atol=1e-6)
    found, tokens, transitions = SIDES[side](five_vertices("A", "B"))
    close(found, [math.log(117 / 1600)])
    close(tokens[0, 1:3], [[0, 0.846154, 0.153846, 0, 0], [0, 0, 0.461538, 0.538462, 0]], atol=1e-6)
    edges = {(0, 1): 0.846154, (0, 2): 0.153846, (1, 2): 0.461538, (1, 3): 0.384615, (2, 3): 0.153846, (2, 4): 0.461538}
    for (i, j), share in {**edges, (3, 4): 0.538462, (0, 3): 0.0, (1, 4): 0.0}.items():
        close(transitions[0, i, j], share, atol=1e-6)


@sides
def test_pinned_tokens(side):
    """B glanced at vertex 2: in its row, so that the token stands there; in its column, so that nothing else does."""
    graphs = five_vertices("A", "B")
    row = graphs.tokens.clone()
    row[0, 2] = torch.tensor([-torch.inf, -torch.inf, 0.0, -torch.inf, -torch.inf])
    close(SIDES[side](graphs._replace(tokens=row))[0], [math.log(9 / 160)])
    column = graphs.tokens.clone()
    column[0, [0, 1, 3], 2] = -torch.inf
    close(SIDES[side](graphs._replace(tokens=column))[0], [math.log(99 / 1600)])


# Against brute force


@sides
@given(tokens=st.integers(1, 9), vertices=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_finds_what_counting_paths_finds(side, tokens, vertices, seed):
    graphs = random_graphs(3, tokens, vertices, seed=seed)
    found, token_gradients, transition_gradients = SIDES[side](graphs)
    for b in range(3):
        close(found[b], log_sum(path_scores(graphs, b).values()))
        expected = posteriors(graphs, b)
        close(token_gradients[b], expected[0])
        close(transition_gradients[b], expected[1])


@aligners
@given(tokens=st.integers(1, 9), vertices=st.integers(1, 9), seed=st.integers(0, 2**32), coarse=st.booleans())
def test_finds_the_best_of_all_paths(align, tokens, vertices, seed, coarse):
    """Coarse scores have many ties, which are broken in favour of the lower vertex at the last difference."""
    graphs = random_graphs(3, tokens, vertices, seed=seed)
    if coarse:
        graphs = graphs._replace(tokens=graphs.tokens.round(), transitions=graphs.transitions.clamp_min(-9.0).round())
    vertices, scores = align(*graphs)
    for b, all_scores in enumerate(path_scores(graphs, b) for b in range(3)):
        most = max(all_scores.values(), default=-math.inf)
        close(scores[b], most)
        best = min((path for path, score in all_scores.items() if score > most - 1e-9), key=lambda path: path[::-1], default=())
        assert vertices[b].tolist() == [*best, *[-1] * (tokens - len(best))]


@given(graphs=extreme_graphs())
def test_extreme_scores_agree_with_the_reference(graphs):
    """The kernel notices where plain products underflow."""
    expected = SIDES["reference"](graphs)
    for side in ("native", "careful"):
        for found, wanted in zip(SIDES[side](graphs), expected, strict=True):
            close(found, wanted, atol=1e-7, rtol=1e-12)
        for found, wanted in zip(SIDES[side](graphs.to(torch.float32)), expected, strict=True):
            close(found.double(), wanted, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(("tokens", "vertices", "spread"), [(20, 110, 4.0), (40, 130, 12.0), (30, 35, 30.0)])
def test_long_peaked_sentences_agree_with_the_reference(tokens, vertices, spread):
    graphs = random_graphs(3, tokens, vertices, spread=spread, seed=tokens)
    graphs = graphs._replace(graph_lengths=graphs.graph_lengths.clamp_min(tokens))
    expected = SIDES["reference"](graphs)
    for side in ("native", "careful"):
        for found, wanted in zip(SIDES[side](graphs.to(torch.float32)), expected, strict=True):
            close(found.double(), wanted, atol=1e-3, rtol=1e-4)


STEPS = [0.0, -100.0, -200.0, -240.0, -400.0, -470.0, -550.0, -930.0]
"""Scores of transitions, tokens or paths so low that some count beside 0 and some do not."""
FREE = (0.0,) * 6


@given(st.lists(st.tuples(*[st.sampled_from(STEPS)] * 6), min_size=1, max_size=6))
@example([(-930.0, *FREE[1:]), *[(0.0, -400.0, -400.0, *FREE[3:])] * 3])
@example([*[(0.0, -400.0, -400.0, *FREE[3:])] * 3, (-930.0, *FREE[1:])])
@example([(-470.0, *FREE[1:]), *[(0.0, -180.0, -180.0, *FREE[3:])] * 3])
@example([*[(-240.0, *FREE[1:])] * 2, *[(0.0, -180.0, -180.0, *FREE[3:])] * 3])
@example([(*FREE[:3], -240.0, 0.0, 0.0), *[(*FREE[:3], 0.0, -90.0, -90.0)] * 4])
@example([(0.0, 0.0, 0.0, 0.0, -225.0, -1000.0), (*FREE[:4], -225.0, 0.0), FREE, *[(*FREE[:3], -190.0, -40.0, 0.0)] * 3])
def test_what_looks_hopeless_on_the_way_may_win(steps):
    """Three separate chains of vertices from the first to the last; a step has scores of three tokens and of three transitions."""
    length, size = len(steps) + 2, 3 * len(steps) + 2
    tokens = torch.full((1, length, size), -torch.inf, dtype=torch.float64)
    transitions = torch.full((1, size, size), -torch.inf, dtype=torch.float64)
    chains = [[0, *range(1 + side, size - 1, 3), size - 1] for side in range(3)]
    sums = []
    for side, chain in enumerate(chains):
        emitted, taken = [0.0, *(step[side] for step in steps), 0.0], [0.0, *(step[3 + side] for step in steps)]
        tokens[0, range(length), chain] = torch.tensor(emitted, dtype=torch.float64)
        transitions[0, chain[:-1], chain[1:]] = torch.tensor(taken, dtype=torch.float64)
        sums.append(sum(emitted) + sum(taken))
    graphs = Graphs(tokens, transitions, torch.tensor([length]), torch.tensor([size]))
    for passes in (*SIDES.values(), native):
        found, token_gradients, transition_gradients = passes(graphs)
        close(found, [log_sum(sums)])
        for chain, total in zip(chains, sums, strict=True):
            share = math.exp(total - log_sum(sums))
            close(token_gradients[0, range(1, length - 1), chain[1:-1]], [share] * (length - 2))
            close(transition_gradients[0, chain[:-1], chain[1:]], [share] * (length - 1))


# Laws


# ---- transitions to the next vertices only: results are, to the bit, those of dense transitions without the others


def without_far(graphs, band):
    """Return graphs without the transitions outside the band, and the same with the band alone."""
    far = torch.ones(graphs.transitions.shape[1:]).triu(band + 1) > 0
    cells = banded(graphs.transitions, band, beyond=torch.nan)
    whole = banded(graphs.transitions.masked_fill(far, -torch.inf), beyond=torch.nan)
    return graphs._replace(transitions=whole), graphs._replace(transitions=cells)


def all_of_native_code(graphs, *, log_space=False):
    """Return likelihoods, posteriors, best paths and their scores."""
    arrays = [x.contiguous().numpy() for x in graphs]
    found = [torch.full_like(x, torch.nan) for x in (graphs.tokens[:, 0, 0], graphs.tokens, graphs.transitions)]
    fewstep_native.dag_posteriors(*arrays, *(x.numpy() for x in found), log_space=log_space, threads=1)
    return [*found, *kernels.dag_best_alignment(*graphs)]


def assert_equal(graphs, band):
    whole, narrow = without_far(graphs, band)
    for log_space in (False, True):
        *expected, paths, scores = all_of_native_code(whole, log_space=log_space)
        *found, found_paths, found_scores = all_of_native_code(narrow, log_space=log_space)
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
    assert all_of_native_code(batch, log_space=log_space)[0].isnan().tolist() == [edge in taken for edge in edges]


def test_a_graph_that_no_path_of_the_band_spans():
    _, graphs = without_far(random_graphs(2, 3, 8, seed=1), 3)  # 2 transitions lead 6 vertices ahead
    graphs = graphs._replace(target_lengths=torch.tensor([3, 3]), graph_lengths=torch.tensor([8, 7]))
    assert kernels.dag_log_likelihood(*graphs).isfinite().tolist() == [False, True]
    assert kernels.dag_best_alignment(*graphs).vertices.tolist()[0] == [-1, -1, -1]
    assert kernels.dag_best_alignment(*graphs).vertices.tolist()[1] == [0, 3, 6]


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
