"""Fuzzy alignment against enumeration of all paths and texts of tiny graphs, and against numbers worked out by hand."""

import dataclasses
import itertools
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from fewstep.vocabulary import BOS, EOS, MASK
from kernels import dag_log_likelihood, dense_transitions
from models.common.losses.target_ngrams import target_ngrams
from models.dag import analysis
from models.dag import loss as module
from models.dag.band import Edges
from models.dag.fuzzy_alignment import expected_ngrams, fuzzy_alignment
from models.dag.loss import loss, targets
from models.dag.model import DagModel, empty_vertices
from models.dag.segments import SEGMENTS
from models.dag.vertices import sample_vocabulary
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


# ---- a graph of segments is as many graphs, one for each span, with the paths of each span alone


SMALL = DagConfig(
    width=16,
    feed_forward=24,
    heads=2,
    encoder_layers=1,
    decoder_layers=2,
    dropout=0.0,
    graph_factor=2.0,
    max_vertices=60,
    segments=True,
)
TEXT_PAIRS = [
    ([8, MASK, 9, MASK, 10], [7, 11, BOS, 12]),
    ([MASK, 7], [12]),
    ([12, MASK, 13, MASK, 9, MASK], [9, BOS, 8, 10, BOS, 9]),
]


def network(**changes):
    torch.manual_seed(0)
    model = DagModel(dataclasses.replace(SMALL, **changes), Sizes(14, 14, True)).eval()
    torch.nn.init.normal_(model.segments.weight)
    return model


def batch_of(pairs):
    return collate(range(len(pairs)), [source for source, _ in pairs], [target for _, target in pairs])


def spans_of(target):
    found = [[]]
    for token in target:
        if token == BOS:
            found.append([])
        else:
            found[-1].append(token)
    return found


def graphs_of(model, pairs):
    """Return the targets, states [B,L,D] and graphs of pairs without glancing."""
    batch = batch_of(pairs)
    target = targets(model.config, batch, training=False)
    read = model.read(batch.source, batch.source_lengths)
    vertices = target.segments.opened(empty_vertices(target.graph_lengths, int(target.graph_lengths.max())))
    states = model.states(vertices, target.graph_lengths, read, target.segments)
    vocabulary = sample_vocabulary(model.target_embedding.weight, target.ids)
    return target, states, module._scored(model, states, target, vocabulary)


def log_sum_of_span(model, states, span, begin, end, *, first, last):
    """Return the log-probability of a span between two borders by a plain sum over all of its paths.

    The vertex of the first segment's BOS and that of EOS write their tokens with the network's probability.
    """
    tokens = F.linear(states, model.target_embedding.weight).softmax(1)
    links = model.links
    x = torch.cat((states, links.positions(torch.arange(len(states)))), 1)
    queries, keys, gates = (part(x) for part in (links.queries, links.keys, links.gates))
    gates, size = gates.softmax(1), queries.size(1) // links.heads

    def edge(i, j):
        total = 0.0
        for head in range(links.heads):
            part = slice(head * size, (head + 1) * size)
            scores = [(queries[i, part] @ keys[k, part]).item() / math.sqrt(size) for k in range(i + 1, end + 1)]
            total += gates[i, head].item() * math.exp(scores[j - i - 1]) / sum(map(math.exp, scores))
        return total

    found = 0.0
    for inner in itertools.combinations(range(begin + 1, end), len(span)):
        probability = math.prod(tokens[v, y].item() for v, y in zip(inner, span, strict=True))
        found += probability * math.prod(edge(i, j) for i, j in itertools.pairwise((begin, *inner, end)))
    ends = (tokens[begin, BOS].item() if first else 1.0) * (tokens[end, EOS].item() if last else 1.0)
    return math.log(found * ends)


def by_spans(model, pair):
    _, states, _ = graphs_of(model, [pair])
    spans, begin, total = spans_of(pair[1]), 0, 0.0
    for number, span in enumerate(spans):
        end = begin + int(model.config.graph_factor * len(span)) + 1
        total += log_sum_of_span(model, states[0], span, begin, end, first=number == 0, last=number == len(spans) - 1)
        begin = end
    assert begin == states.size(1) - 1
    return total


@pytest.mark.parametrize("graph_size", ["source", "predicted"])
def test_the_likelihood_of_a_text_is_the_product_of_its_spans(graph_size):
    model = network(graph_size=graph_size)
    with torch.no_grad():
        expected = [by_spans(model, pair) for pair in TEXT_PAIRS]
        result = loss(model, batch_of(TEXT_PAIRS), 1, 0.0)
    written = [sum(map(len, spans_of(target))) + 2 for _, target in TEXT_PAIRS]
    mean = sum(-score / length for score, length in zip(expected, written, strict=True))
    assert result.total.item() == pytest.approx(mean, abs=1e-4), "separators are certain and no length is predicted"


def test_each_text_is_scored_alone():
    model = network()
    with torch.no_grad():
        together = loss(model, batch_of(TEXT_PAIRS), 1, 0.0).total.item()
        alone = sum(loss(model, batch_of([pair]), 1, 0.0).total.item() for pair in TEXT_PAIRS)
    assert together == pytest.approx(alone, abs=1e-5)


def test_the_sum_and_its_gradients_are_those_of_independent_graphs():
    """The same scores, cut into a graph for each span, which the kernel sums one by one."""
    model = network(graph_factor=3.0, max_vertices=200)
    pairs = [([8, MASK, 9, MASK], [7, 11, 12, BOS, 12, 9])]
    target, _, graphs = graphs_of(model, pairs)
    whole = dag_log_likelihood(graphs.tokens, graphs.transitions, target.lengths, target.graph_lengths)
    dense = dense_transitions(graphs.transitions)[0]
    parts = []
    for first, last, begin, end in ((0, 4, 0, 10), (4, 7, 10, 17)):  # BOS and tokens to BOS; BOS and tokens to EOS
        size = end - begin + 1
        edges = torch.stack([F.pad(dense[begin + i, begin + i + 1 : end + 1], (0, i), value=-torch.inf) for i in range(size)])
        tokens = graphs.tokens[:, first : last + 1, begin : end + 1]
        lengths = torch.tensor([last - first + 1]), torch.tensor([size])
        parts.append(dag_log_likelihood(tokens, edges[None], *lengths))
    torch.testing.assert_close(whole, sum(parts))
    weights = [model.links.queries.weight, model.target_embedding.weight]
    found, expected = (torch.autograd.grad(value.sum(), weights, retain_graph=True) for value in (whole, sum(parts)))
    torch.testing.assert_close(found, expected)


def test_vertices_by_hand():
    """Spans of 3 and 2 tokens with a factor of 4: they begin at vertices 0 and 13, and EOS is at 22."""
    config = dataclasses.replace(SMALL, graph_factor=4.0)
    segments = targets(config, batch_of([([9, MASK, 8, MASK], [7, 8, 9, BOS, 10, 11]), ([MASK], [7])]), training=False).segments
    assert segments.graph_lengths.tolist() == [23, 6]
    assert segments.numbers[0].tolist() == [0] * 13 + [1] * 10
    assert segments.ends[0].tolist() == [14] * 13 + [23] * 10
    assert segments.reach == 13
    inputs = segments.opened(empty_vertices(segments.graph_lengths, 23))
    assert (inputs[0] == BOS).nonzero()[:, 0].tolist() == [0, 13]
    assert (inputs[1] == BOS).nonzero()[:, 0].tolist() == [0]


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 2**20))
def test_each_span_draws_its_own_factor(sizes, seed):
    config = dataclasses.replace(SMALL, graph_factor_range=(1.0, 8.0), max_vertices=1000)
    rows = [[token for number, size in enumerate(row) for token in [BOS] * (number > 0) + [7] * size] for row in sizes]
    torch.manual_seed(seed)
    segments = targets(config, batch_of([([8], row) for row in rows]), training=True).segments
    for row, spans, numbers in zip(range(len(rows)), sizes, segments.numbers, strict=True):
        real = numbers[: segments.graph_lengths[row] - 1].tolist()
        assert [number for number, _ in itertools.groupby(real)] == list(range(len(spans)))
        for number, size in enumerate(spans):
            assert size <= real.count(number) - 1 <= 8 * size


def test_separators_are_neither_drawn_nor_counted():
    model = network(glancing="fixed", glancing_ratio=1.0, glancing_ratio_end=1.0).train()
    reads = []
    plain = model.states
    model.states = lambda vertices, *rest: reads.append(vertices) or plain(vertices, *rest)
    result = loss(model, batch_of(TEXT_PAIRS), 1, 0.0)
    hidden, shown = reads
    assert result.statistics["shown"].item() == pytest.approx(len(TEXT_PAIRS))
    for row, (_, target) in enumerate(TEXT_PAIRS):
        assert torch.equal(hidden[row] == BOS, shown[row] == BOS), "a segment begins with BOS in both passes"
        assert [token for token in shown[row].tolist() if token >= 7] == [token for token in target if token >= 7]


def test_masks_and_segments_have_the_same_numbers():
    model = network()
    source = torch.tensor([[8, MASK, 9, MASK, EOS]])
    codes = model.source_inputs(source) - DagModel.__mro__[1].source_inputs(model, source)
    torch.testing.assert_close(codes[0, 3], model.segments(torch.tensor([[1]]))[0, 0], atol=1e-5, rtol=1e-4)
    assert codes[0, [0, 1, 2, 4]].abs().max() == 0, "the first span has no code, as a graph of one segment"
    many = model.segments(torch.tensor([[SEGMENTS - 1, SEGMENTS, 1000]]))[0]
    assert torch.equal(many[0], many[1])
    assert torch.equal(many[0], many[2])


def test_a_graph_of_one_segment_is_a_graph_without_segments():
    model = network(graph_size="predicted", length_loss_weight=0.0)
    plain = DagModel(dataclasses.replace(model.config, segments=False), Sizes(14, 14, True)).eval()
    missing = plain.load_state_dict(model.state_dict(), strict=False)
    assert missing.unexpected_keys == ["segments.weight"]
    assert not missing.missing_keys
    pairs = [([8, MASK, 9], [7, 11]), ([MASK, 9], [12, 7, 7])]
    with torch.no_grad():
        assert loss(model, batch_of(pairs), 1, 0.0).total.item() == pytest.approx(loss(plain, batch_of(pairs), 1, 0.0).total.item())


def test_a_text_whose_graph_exceeds_the_limit_has_no_path():
    model = network(max_vertices=9)
    long = ([8, MASK, 9, MASK], [7, 8, 9, 10, BOS, 7, 8])
    with torch.no_grad():
        result = loss(model, batch_of([*TEXT_PAIRS[:2], long]), 1, 0.0)
        short = loss(model, batch_of(TEXT_PAIRS[:2]), 1, 0.0)
    assert [int(part.statistics["impossible"]) for part in (short, result)] == [0, 1]
    assert result.total.item() == pytest.approx(short.total.item(), abs=1e-4)
