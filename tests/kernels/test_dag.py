"""Sums and best paths of graphs: known answers, brute force and laws."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kernels.dag_graphs import (
    STEEP,
    Graphs,
    extreme_graphs,
    figure_11,
    five_vertices,
    log_sum,
    path_scores,
    posteriors,
    random_graphs,
    steep,
    uniform,
)
from tests.kernels.dag_sides import SIDES, aligners, best_alignment, close, log_likelihood, max_log_likelihood, native, sides

# Known answers


@sides
@pytest.mark.parametrize(
    ("vertices", "tokens", "z"),
    [(4, 3, 1 / 2), (5, 3, 11 / 24), (6, 4, 7 / 24), (8, 4, 29 / 90), (10, 5, 89 / 480), (12, 6, 31063 / 362880)],
)
def test_uniform_graphs_have_their_closed_form(side, vertices, tokens, z):
    graphs, exact = uniform(vertices, tokens)
    assert float(exact) == pytest.approx(z)
    close(SIDES[side](graphs)[0], [math.log(z)])


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
def test_figure_11(side):
    found, tokens, transitions = SIDES[side](figure_11("Yes"))
    close(-found, [0.274437], atol=1e-6)
    close(-found / 3, [0.091479], atol=1e-6)
    close(tokens[0, 1], [0, 0.473684, 0.526316, 0], atol=1e-6)
    close(transitions[0, [0, 1, 0, 2, 1], [1, 3, 2, 3, 2]], [0.473684, 0.473684, 0.526316, 0.526316, 0], atol=1e-6)
    close(SIDES[side](figure_11("Yes", "Yes"))[0], [-3.442019], atol=1e-6)


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
def test_a_window_of_transitions_leaves_the_paths_inside_it(side):
    graphs = five_vertices("A")
    far = torch.ones(5, 5).triu(3) > 0
    close(SIDES[side](graphs._replace(transitions=graphs.transitions.masked_fill(far, -torch.inf)))[0], [math.log(9 / 400)])


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


@aligners
def test_best_paths(align):
    for graphs, path, score in (
        (figure_11("Yes"), [0, 2, 3], 0.4),
        (five_vertices("A"), [0, 1, 4], 9 / 160),
        (five_vertices("A", "B"), [0, 1, 2, 4], 27 / 800),
    ):
        vertices, scores = align(*graphs)
        assert vertices.tolist() == [path]
        close(scores, [math.log(score)])


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


def test_gradients_are_those_of_finite_differences():
    graphs = random_graphs(3, 4, 7, seed=5)
    scores = [x.clamp_min(-30.0).requires_grad_() for x in graphs[:2]]
    assert torch.autograd.gradcheck(lambda *x: log_likelihood(*x, *graphs[2:]), scores)
    assert torch.autograd.gradcheck(lambda *x: max_log_likelihood(*x, *graphs[2:]), scores)


@given(graphs=extreme_graphs())
def test_extreme_scores_agree_with_the_twin(graphs):
    """The kernel notices where plain products underflow."""
    expected = SIDES["reference"](graphs)
    for side in ("native", "careful"):
        for found, wanted in zip(SIDES[side](graphs), expected, strict=True):
            close(found, wanted, atol=1e-7, rtol=1e-12)
        for found, wanted in zip(SIDES[side](graphs.to(torch.float32)), expected, strict=True):
            close(found.double(), wanted, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(("tokens", "vertices", "spread"), [(20, 110, 4.0), (40, 130, 12.0), (30, 35, 30.0)])
def test_long_peaked_sentences_agree_with_the_twin(tokens, vertices, spread):
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


@sides
def test_posteriors_add_up(side):
    graphs = random_graphs(4, 8, 30, seed=2)
    graphs = graphs._replace(graph_lengths=graphs.graph_lengths.clamp_min(8))
    _, tokens, transitions = SIDES[side](graphs)
    for b, length in enumerate(graphs.target_lengths.tolist()):
        close(tokens[b].sum(1), [1.0] * length + [0.0] * (8 - length))
        close(transitions[b].sum(), length - 1)
        close(transitions[b].sum(1), tokens[b, : length - 1].sum(0))
        close(transitions[b].sum(0), tokens[b, 1:].sum(0))


@sides
def test_probabilities_of_all_lengths_and_of_all_targets_add_up(side):
    edges = random_graphs(1, 2, 9, seed=3).transitions
    alone = [(torch.zeros(1, m, 9, dtype=torch.float64), edges, torch.tensor([m]), torch.tensor([9])) for m in range(2, 10)]
    total = sum(float(SIDES[side](Graphs(*graphs))[0].exp()) for graphs in alone)
    assert total == pytest.approx(1.0)
    emission = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log_softmax(1)
    edges = edges[:, 4:, 4:]
    total = 0.0
    for length in range(2, 6):
        for target in itertools.product(range(2), repeat=length):
            graphs = (emission.t()[list(target)][None], edges, torch.tensor([length]), torch.tensor([5]))
            total += float(SIDES[side](Graphs(*graphs))[0].exp())
    assert total == pytest.approx(1.0)


@sides
def test_shifts_of_the_scores_shift_the_sum(side):
    graphs = random_graphs(3, 6, 20, seed=4)
    graphs = graphs._replace(graph_lengths=graphs.graph_lengths.clamp_min(6))
    base = SIDES[side](graphs)
    tokens = SIDES[side](graphs._replace(tokens=graphs.tokens + torch.arange(6)[:, None]))
    close(tokens[0], base[0] + torch.tensor([sum(range(m)) for m in graphs.target_lengths.tolist()]))
    for shift in (-500.0, 7.0, 900.0):
        transitions = SIDES[side](graphs._replace(transitions=graphs.transitions + shift))
        close(transitions[0], base[0] + shift * (graphs.target_lengths - 1))
        for found, expected in zip((*tokens[1:], *transitions[1:]), (*base[1:], *base[1:]), strict=True):
            close(found, expected)


@given(tokens=st.integers(2, 30), vertices=st.integers(2, 60), seed=st.integers(0, 2**32))
def test_the_best_path_is_a_path_and_bounds_the_sum(tokens, vertices, seed):
    graphs = random_graphs(4, tokens, vertices, seed=seed)
    found, scores = best_alignment(*graphs)
    sums = log_likelihood(*graphs)
    for b, (m, size) in enumerate(zip(graphs.target_lengths.tolist(), graphs.graph_lengths.tolist(), strict=True)):
        path = found[b].tolist()
        assert path[m:] == [-1] * (tokens - m)
        if m > size:
            assert path == [-1] * tokens
            assert scores[b] == sums[b] == -torch.inf
            continue
        path = path[:m]
        assert (path[0], path[-1]) == (0, size - 1)
        assert all(i < j for i, j in itertools.pairwise(path))
        close(scores[b], graphs.tokens[b, range(m), path].sum() + graphs.transitions[b, path[:-1], path[1:]].sum())
        assert scores[b] - 1e-9 <= sums[b] <= scores[b] + math.log(math.comb(size - 2, m - 2)) + 1e-9


@sides
def test_pinning_the_best_path_leaves_its_score(side):
    graphs = random_graphs(1, 7, 25, seed=6)
    (path,), (score,) = best_alignment(*graphs)
    pinned = torch.full_like(graphs.tokens, -torch.inf)
    pinned[0, range(7), path] = graphs.tokens[0, range(7), path]
    close(SIDES[side](graphs._replace(tokens=pinned))[0], score[None])
    one = graphs.tokens.clone()
    at = int(path[3])
    one[0, 3], one[0, 3, at] = -torch.inf, 0.0
    four, late = torch.tensor([4]), graphs.transitions[:, at:, at:].contiguous()
    before = Graphs(one[:, :4], graphs.transitions, four, torch.tensor([at + 1]))
    after = Graphs(one[:, 3:, at:].contiguous(), late, four, torch.tensor([25 - at]))
    whole = SIDES[side](graphs._replace(tokens=one))[0]
    close(whole, SIDES[side](before)[0] + SIDES[side](after)[0])
