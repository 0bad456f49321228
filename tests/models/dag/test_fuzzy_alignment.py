"""Fuzzy alignment against enumeration of all paths and texts of tiny graphs, and against numbers worked out by hand."""

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from models.common.losses.target_ngrams import target_ngrams
from models.dag import analysis
from models.dag.edges import Edges
from models.dag.fuzzy_alignment import expected_ngrams, fuzzy_alignment
from models.dag.loss import loss
from models.dag.model import DagModel
from models.training.batch import collate
from tests.kernels.dag_graphs import banded

BEGIN, A, B, C, END = range(5)
VOCABULARY = 5


def graph(edges, inner):
    """Return transitions [L,L] and token probabilities [L,V] from rows of transitions and of inner vertices over a, b, c."""
    size = len(edges) + 1
    transitions, tokens = (torch.zeros(size, width, dtype=torch.float64) for width in (size, VOCABULARY))
    for vertex, row in enumerate(edges):
        transitions[vertex, vertex + 1 : vertex + 1 + len(row)] = torch.tensor(row, dtype=torch.float64)
    tokens[0, BEGIN] = tokens[-1, END] = 1.0
    tokens[1:-1, A : C + 1] = torch.tensor(inner, dtype=torch.float64).view(-1, 3)
    return transitions, tokens


GRAPH_D = graph(
    [[0.6, 0.1, 0.05, 0.25], [0.45, 0.2, 0.35], [0.25, 0.75], [1.0]], [[0.05, 0.4, 0.55], [0.2, 0.3, 0.5], [0.75, 0.1, 0.15]]
)
GRAPH_K = graph([[0.8, 0.1, 0.05, 0.05], [0.7, 0.2, 0.1], [0.9, 0.1], [1.0]], [[0.1, 0.1, 0.8], [0.05, 0.25, 0.7], [0.3, 0.1, 0.6]])


def arguments(found, target):
    """Return the arguments of `fuzzy_alignment` for one graph."""
    transitions, tokens = found
    ids = torch.tensor([target])
    links = banded(transitions[None].log())
    return tokens[:, target].t()[None].log(), links, ids, torch.tensor([len(target)]), torch.tensor([len(tokens)])


def ngrams(text, order):
    return Counter(tuple(text[at : at + order]) for at in range(len(text) - order + 1))


def texts(transitions, tokens):
    """Yield each text of each path with its probability."""
    last = len(tokens) - 1
    for inner in itertools.chain.from_iterable(itertools.combinations(range(1, last), n) for n in range(last)):
        path = (0, *inner, last)
        walked = math.prod(transitions[i, j].item() for i, j in itertools.pairwise(path))
        for text in itertools.product(range(VOCABULARY), repeat=len(path)) if walked else ():
            probability = walked * math.prod(tokens[v, w].item() for v, w in zip(path, text, strict=True))
            if probability:
                yield text, probability


def by_enumeration(found, target, order):
    """Return the score, the expected length and the expected number of each n-gram of the target, from all texts of the graph."""
    length, total, counts = 0.0, 0.0, Counter()
    for text, probability in texts(*found):
        length += probability * len(text)
        for ngram, count in ngrams(text, order).items():
            total += probability * count
            counts[ngram] += probability * count
    wanted = ngrams(target, order)
    matched = sum(min(counts[ngram], count) for ngram, count in wanted.items())
    brevity = min(1.0, math.exp(1 - len(target) / length))
    return brevity * matched / total if total else 0.0, length, {ngram: counts[ngram] for ngram in wanted}


@pytest.mark.parametrize(
    ("found", "target", "order", "length", "precision", "score"),
    [
        (GRAPH_D, [BEGIN, C, A, END], 1, 3.2325, 0.8832947, 0.6966106),
        (GRAPH_D, [BEGIN, C, A, END], 2, 3.2325, 0.3423348, 0.2699824),
        (GRAPH_D, [BEGIN, C, A, B, END], 1, 3.2325, 1.0, 0.5788046),
        (GRAPH_D, [BEGIN, C, A, B, END], 2, 3.2325, None, 0.1818438),
        (GRAPH_K, [BEGIN, C, B, END], 1, 4.264, 0.7798780, 0.7798780),
        (GRAPH_K, [BEGIN, C, B, END], 2, 4.264, 0.3098284, 0.3098284),
    ],
)
def test_known_graphs_have_their_scores(found, target, order, length, precision, score):
    result = fuzzy_alignment(*arguments(found, target), order=order)
    assert result.lengths.item() == pytest.approx(length)
    assert result.scores.item() == pytest.approx(score, abs=1e-6)
    if precision is not None:
        assert result.precision.item() == pytest.approx(precision, abs=1e-6)


def test_a_known_graph_has_its_gradient():
    match, links, *sizes = arguments(GRAPH_D, [BEGIN, C, A, END])
    match.requires_grad_()
    links.requires_grad_()
    (-fuzzy_alignment(match, links, *sizes, order=2).scores.sum()).backward()
    rows = [[-0.192048, -0.028942, -0.014139, 0.004395], [-0.040944, -0.045060, -0.000017], [-0.033509, -0.014727], [-0.064933]]
    for vertex, row in enumerate(rows):
        assert links.grad[0, vertex, : len(row)].tolist() == pytest.approx(row, abs=1e-6)
    assert match.grad[0, 1, 1:4].tolist() == pytest.approx([-0.144553, -0.029917, -0.002649], abs=1e-6)
    assert match.grad[0, 2, 1:4].tolist() == pytest.approx([-0.003709, -0.030098, -0.099288], abs=1e-6)


def test_an_ngram_expected_too_often_has_no_gradient():
    match, *rest = arguments(GRAPH_K, [BEGIN, C, B, END])
    match.requires_grad_()
    fuzzy_alignment(match, *rest, order=1).scores.sum().backward()
    assert not match.grad[0, 1].any()
    assert match.grad[0, 2].any()


@st.composite
def random_graphs(draw):
    size = draw(st.integers(2, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    transitions = torch.rand(size, size, generator=generator, dtype=torch.float64).triu(1)
    transitions = (transitions / transitions.sum(1, keepdim=True).clamp(min=1e-300)).clone()
    tokens = torch.rand(size, VOCABULARY, generator=generator, dtype=torch.float64) ** 3
    target = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=7))
    return (transitions, tokens / tokens.sum(1, keepdim=True)), target


@given(random_graphs(), st.integers(1, 3))
def test_expectations_are_those_of_all_texts(example, order):
    found, target = example
    match, links, ids, *sizes = arguments(found, target)
    result = fuzzy_alignment(match, links, ids, *sizes, order=order)
    score, length, counts = by_enumeration(found, target, order)
    assert result.scores.item() == pytest.approx(score, abs=1e-9)
    assert result.lengths.item() == pytest.approx(length)
    edges = Edges.of(links.exp())
    passing = edges.passing()
    expected = expected_ngrams(passing, edges, match.exp(), order)[0].tolist()
    for at, value in enumerate(expected):
        assert value == pytest.approx(counts[tuple(target[at : at + order])], abs=1e-9)
    assert target_ngrams(ids, sizes[0], order)[0].sum() == sum(ngrams(target, order).values())
    torch.testing.assert_close(passing, analysis.passing_probabilities(found[0][None]))
    assert passing[0, -1].item() == pytest.approx(1.0)


@given(random_graphs(), st.integers(1, 3))
def test_the_gradient_is_that_of_the_formula(example, order):
    found, target = example
    match, links, *sizes = arguments(found, target)
    result, counts = fuzzy_alignment(match, links, *sizes, order=order), target_ngrams(*sizes[:2], order)
    edges = Edges.of(links.exp())
    expected = expected_ngrams(edges.passing(), edges, match.exp(), order)
    assume(abs(result.lengths.item() - len(target)) > 1e-3)  # the score has kinks there
    assume(((expected - counts).abs() > 1e-3).all())
    links = links.masked_fill(links.isinf(), 0.0)  # finite after the last vertex, where nothing is read

    def score(match, links):
        return fuzzy_alignment(match, links, *sizes, order=order).scores

    assert torch.autograd.gradcheck(score, (match.requires_grad_(), links.requires_grad_()))


def test_a_certain_path_has_the_precision_of_its_text():
    path = graph([[1.0, 0, 0, 0], [1.0, 0, 0], [1.0, 0], [1.0]], [[1.0, 0, 0], [0, 0, 1.0], [1.0, 0, 0]])
    target = [BEGIN, A, C, C, A, C, END]
    text = [BEGIN, A, C, A, END]
    for order in (1, 2, 3):
        wanted, written = ngrams(target, order), ngrams(text, order)
        precision = Fraction(sum((wanted & written).values()), sum(written.values()))
        result = fuzzy_alignment(*arguments(path, target), order=order)
        assert result.scores.item() == pytest.approx(float(precision) * math.exp(1 - 7 / 5))
        assert result.recall.item() == pytest.approx(sum((wanted & written).values()) / sum(wanted.values()))


def test_padding_is_inert_and_has_no_gradient():
    target = [BEGIN, C, A, END]
    match, links, ids, *sizes = arguments(GRAPH_D, target)
    alone = fuzzy_alignment(match, links, ids, *sizes, order=2)
    padded_match, padded_links = torch.full((2, 6, 8), torch.nan).double(), torch.full((2, 8, 7), torch.nan).double()
    padded_match[:, :4, :5], padded_links[:, :5, :4] = match, links
    padded_match.requires_grad_()
    padded_links.requires_grad_()
    padded_ids = torch.tensor([[*target, 9, 9]] * 2)
    result = fuzzy_alignment(padded_match, padded_links, padded_ids, *(size.repeat(2) for size in sizes), order=2)
    torch.testing.assert_close(result.scores, alone.scores.repeat(2))
    result.scores.sum().backward()
    for gradient in (padded_match.grad, padded_links.grad):
        assert gradient.isfinite().all()
    assert not padded_match.grad[:, 4:].any()
    assert not padded_links.grad[:, 5:].any()


def test_underflow_is_no_error():
    match, links = torch.full((1, 3, 40), -300.0), torch.full((1, 40, 40), -200.0)
    links[:, :, -1] = -1e-30
    links = banded(links)
    match.requires_grad_()
    sizes = torch.tensor([[BEGIN, A, END]]), torch.tensor([3]), torch.tensor([40])
    result = fuzzy_alignment(match, links, *sizes, order=2)
    result.scores.sum().backward()
    assert result.scores.tolist() == [0.0]
    assert match.grad.isfinite().all()


def test_a_graph_without_ngrams_scores_nothing():
    found = graph([[1.0]], [])
    assert fuzzy_alignment(*arguments(found, [BEGIN, A, END]), order=3).scores.tolist() == [0.0]
    assert fuzzy_alignment(*arguments(GRAPH_D, [BEGIN, END]), order=3).scores.tolist() == [0.0]


CONFIG = DagConfig(
    width=32,
    feed_forward=64,
    heads=2,
    encoder_layers=1,
    decoder_layers=2,
    dropout=0.0,
    graph_factor=2.0,
    max_vertices=40,
    objective="ngram",
    glancing_ratio=0.1,
)
PAIRS = [([8, 9, 10], [11, 12, 13]), ([9, 8], [12, 11]), ([10, 10, 8, 9], [13, 13, 11, 12]), ([8], [11])]


def batch():
    return collate(range(len(PAIRS)), [source for source, _ in PAIRS], [target for _, target in PAIRS])


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    model = DagModel(CONFIG, Sizes(14, 14, True))
    likelihood = dataclasses.replace(CONFIG, objective="sum", glancing_ratio=0.5)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    history = {"sum": [], "ngram": []}
    for update in range(60):
        model.config = likelihood if update < 30 else CONFIG
        result = loss(model.train(), batch(), update, 0.0)
        optimizer.zero_grad()
        (result.total / result.count).backward()
        optimizer.step()
        history[model.config.objective].append(result.total.item() / len(PAIRS))
    assert sum(history["sum"][-5:]) < sum(history["sum"][:5])
    begin, end = (sum(part) / 5 for part in (history["ngram"][:5], history["ngram"][-5:]))
    assert -1.0 <= end < begin - 0.1
    with torch.no_grad():
        result = loss(model.eval(), batch(), 0, 0.0)
    assert set(result.statistics) == {"precision", "recall", "length_ratio", "brevity", "impossible"}
    assert 0 < result.statistics["recall"] <= len(PAIRS)


def test_a_target_longer_than_its_graph_is_counted_and_trained_on():
    torch.manual_seed(0)
    model = DagModel(CONFIG, Sizes(14, 14, True)).train()
    result = loss(model, collate([0, 1], [[8], [9]], [[11] * 12, [12]]), 1, 0.0)
    result.total.backward()
    assert [int(result.statistics["impossible"]), int(result.count)] == [1, 2]
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_options_that_bias_the_counts_are_refused():
    assert CONFIG.pinning == "none"
    assert not list(CONFIG.problems())
    refused = dataclasses.replace(CONFIG, pin="row", sampled_tokens=5)
    assert [problem.path for problem in refused.problems()] == [("pin",), ("sampled_tokens",)]
