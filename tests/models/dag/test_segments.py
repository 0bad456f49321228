"""A graph of segments is as many graphs, one for each span, with the paths of each span alone."""

import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from fewstep.vocabulary import BOS, EOS, MASK
from kernels import dag_log_likelihood, dense_transitions
from models.dag import loss as module
from models.dag.loss import loss, targets
from models.dag.model import DagModel, empty_vertices
from models.dag.sampled_vocabulary import sample_vocabulary
from models.dag.segments import SEGMENTS
from models.training.batch import collate

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
PAIRS = [
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
        expected = [by_spans(model, pair) for pair in PAIRS]
        result = loss(model, batch_of(PAIRS), 1, 0.0)
    written = [sum(map(len, spans_of(target))) + 2 for _, target in PAIRS]
    mean = sum(-score / length for score, length in zip(expected, written, strict=True))
    assert result.total.item() == pytest.approx(mean, abs=1e-4), "separators are certain and no length is predicted"


def test_each_text_is_scored_alone():
    model = network()
    with torch.no_grad():
        together = loss(model, batch_of(PAIRS), 1, 0.0).total.item()
        alone = sum(loss(model, batch_of([pair]), 1, 0.0).total.item() for pair in PAIRS)
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
    result = loss(model, batch_of(PAIRS), 1, 0.0)
    hidden, shown = reads
    assert result.statistics["shown"].item() == pytest.approx(len(PAIRS))
    for row, (_, target) in enumerate(PAIRS):
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
        result = loss(model, batch_of([*PAIRS[:2], long]), 1, 0.0)
        short = loss(model, batch_of(PAIRS[:2]), 1, 0.0)
    assert [int(part.statistics["impossible"]) for part in (short, result)] == [0, 1]
    assert result.total.item() == pytest.approx(short.total.item(), abs=1e-4)
