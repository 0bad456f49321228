"""The loss of graphs equals the sum over all paths: glancing, samples of the vocabulary, and the analysis of paths."""

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
from fewstep.vocabulary import BOS, EOS
from kernels import dag_log_likelihood
from models.common.glancing import ratio
from models.common.layers.embeddings import embed
from models.dag import loss as module
from models.dag.analysis import inspect, most_probable, passing_probabilities
from models.dag.glancing import Glance, choose, pinned, reveal
from models.dag.loss import log_probability, loss
from models.dag.model import DagModel, empty_vertices
from models.dag.vertices import sample_vocabulary
from models.training.batch import collate
from tests.kernels.dag_graphs import banded

# ---- the loss equals the sum over all paths, and does not depend on padding and other pairs


SMALL = DagConfig(
    width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0, graph_factor=2.0, max_vertices=40
)
SIZES = Sizes(14, 14, True)


def network(**changes):
    torch.manual_seed(0)
    return DagModel(dataclasses.replace(SMALL, **changes), SIZES).eval()


PAIRS = [([8, 9, 10], [7, 11]), ([7], [12]), ([12, 13], [9, 9, 8])]


def batch_of(pairs):
    return collate(range(len(pairs)), [source for source, _ in pairs], [target for _, target in pairs])


def by_paths(model, source, target, best=False):
    """Return the log-probability of one pair by a plain sum over all paths of its graph."""
    batch = batch_of([(source, target)])
    length = int(model.config.graph_factor * (len(source) + 2))
    read = model.read(batch.source, batch.source_lengths)
    states = model.states(empty_vertices(torch.tensor([length]), length), torch.tensor([length]), read)[0]
    tokens = F.linear(states, model.target_embedding.weight).softmax(1)
    edges = mixture(model, states)
    wanted = [BOS, *target, EOS]
    total = []
    for inner in itertools.combinations(range(1, length - 1), len(target)):
        path = (0, *inner, length - 1)
        probability = math.prod(tokens[v, y].item() for v, y in zip(path, wanted, strict=True))
        total.append(probability * math.prod(edges[i][j] for i, j in itertools.pairwise(path)))
    return math.log(max(total) if best else sum(total))


def mixture(model, states):
    """Return transition probabilities by loops: a softmax over later vertices for each head, mixed by the gates."""
    links, count = model.links, len(states)
    x = torch.cat((states, links.positions(torch.arange(count))), 1)
    queries, keys, gates = links.queries(x), links.keys(x), links.gates(x).softmax(1)
    size = queries.size(1) // links.heads
    edges = [[0.0] * count for _ in range(count)]
    for i in range(count - 1):
        for head in range(links.heads):
            part = slice(head * size, (head + 1) * size)
            scores = torch.stack([queries[i, part] @ keys[j, part] / math.sqrt(size) for j in range(i + 1, count)]).softmax(0)
            for j, score in enumerate(scores.tolist(), i + 1):
                edges[i][j] += gates[i, head].item() * score
    return edges


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_pair_scores_what_all_its_paths_add_up_to(norm):
    model = network(norm=norm)
    with torch.no_grad():
        scores = log_probability(model, batch_of(PAIRS)).tolist()
        assert scores == pytest.approx([by_paths(model, *pair) for pair in PAIRS], abs=1e-4)
        result = loss(model, batch_of(PAIRS), 1, 0.0)
    assert result.total.item() == pytest.approx(
        sum(-score / (len(target) + 2) for score, (_, target) in zip(scores, PAIRS, strict=True)), abs=1e-4
    )
    assert result.count.item() == 3


def test_the_other_objective_is_the_best_path():
    model = network(objective="max")
    with torch.no_grad():
        result = loss(model, batch_of(PAIRS[:1]), 1, 0.0)
        assert -4 * result.total.item() == pytest.approx(by_paths(model, *PAIRS[0], best=True), abs=1e-4)


def test_a_target_longer_than_its_graph_counts_and_spoils_nothing():
    model = network()
    long = ([7], [8] * 9)
    results = [loss(model, batch_of(pairs), 1, 0.0) for pairs in (PAIRS, [*PAIRS, long])]
    assert results[1].total.item() == pytest.approx(results[0].total.item(), abs=1e-4)
    assert [int(result.statistics["impossible"]) for result in results] == [0, 1]
    assert [int(result.count) for result in results] == [3, 4]
    gradients = []
    for result in results:
        model.zero_grad()
        result.total.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    assert log_probability(model, batch_of([long])).tolist() == [-math.inf]


def test_dropout_strikes_out_the_same_in_both_passes(monkeypatch):
    model = network(dropout=0.3, glancing="fixed", glancing_ratio=0.0, glancing_ratio_end=0.0).train()
    passes = []
    plain = module._pass
    monkeypatch.setattr(module, "_pass", lambda *arguments: passes.append(plain(*arguments)) or passes[-1])
    torch.manual_seed(3)
    loss(model, batch_of(PAIRS), 1, 0.0)
    first, second = passes
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.transitions, second.transitions)
    assert not first.tokens.requires_grad
    assert second.tokens.requires_grad
    loss(model, batch_of(PAIRS), 2, 0.0)
    assert not torch.equal(passes[2].tokens, first.tokens)


def test_what_is_shown_is_read_and_nothing_is_shown_in_evaluation():
    model = network(glancing="fixed", glancing_ratio=1.0, glancing_ratio_end=1.0)
    reads = []
    plain = model.states
    model.states = lambda vertices, *rest: reads.append(vertices) or plain(vertices, *rest)
    loss(model, batch_of(PAIRS), 1, 0.0)
    loss(model.train(), batch_of(PAIRS), 1, 0.0)
    evaluated, empty, shown = reads
    assert torch.equal(evaluated, empty)
    for row, (_, target) in enumerate(PAIRS):
        assert [token for token in shown[row].tolist() if token >= 7] == target


def test_label_smoothing_mixes_in_the_mean_over_the_vocabulary():
    model = network()
    batch, smoothing = batch_of(PAIRS[:1]), 0.3
    with torch.no_grad():
        target = module.targets(model.config, batch, training=False)
        read = model.read(batch.source, batch.source_lengths)
        empty = empty_vertices(target.graph_lengths, int(target.graph_lengths.max()))
        graphs = module._pass(
            model, read, target, empty, sample_vocabulary(model.target_embedding.weight, target.ids, smoothing=smoothing)
        )
        log_probs = model.logits(model.states(empty, target.graph_lengths, read)).log_softmax(2)
    chosen = log_probs[0][:, target.ids[0]].t()
    torch.testing.assert_close(graphs.tokens[0], 0.7 * chosen + 0.3 * log_probs[0].mean(1), atol=1e-5, rtol=1e-5)


def test_the_length_is_learned_where_the_graph_follows_from_it():
    model = network(graph_size="predicted", length_loss_weight=0.5)
    batch = batch_of(PAIRS)
    with torch.no_grad():
        model.length.weight.zero_()
        total = loss(model, batch, 1, 0.0).total
        read = model.read(batch.source, batch.source_lengths)
    assert read.lengths.shape == (3, 256)
    without = loss(network(graph_size="predicted", length_loss_weight=0.0), batch, 1, 0.0).total
    assert (total - without).item() == pytest.approx(0.5 * 3 * math.log(256), abs=1e-3)


def test_factors_are_drawn_in_training_alone():
    config = dataclasses.replace(SMALL, graph_factor_range=(2.0, 6.0))
    batch = batch_of([([7, 8, 9], [10])] * 200)
    torch.manual_seed(0)
    drawn = module.targets(config, batch, training=True).graph_lengths
    assert drawn.min() >= 10
    assert drawn.max() <= 30
    assert len(set(drawn.tolist())) > 15
    assert set(module.targets(config, batch, training=False).graph_lengths.tolist()) == {20}


def test_vertices_carry_nothing_between_the_ends():
    assert empty_vertices(torch.tensor([5, 2]), 5).tolist() == [[1, 4, 4, 4, 2], [1, 2, 0, 0, 0]]
    model = network()
    assert embed(torch.tensor([4]), model.target_embedding).abs().sum() > 0


# ---- glancing: the tokens shown in training, their number, and their effect on the paths


LENGTHS = torch.tensor([7, 4, 2])


def situation(seed):
    generator = torch.Generator().manual_seed(seed)
    vertices = torch.tensor([[0, 2, 3, 5, 8, 9, 11], [0, 1, 6, 7, -1, -1, -1], [0, 3, -1, -1, -1, -1, -1]])
    right = torch.rand(vertices.shape, generator=generator) < 0.5
    return vertices, right, torch.rand((3, 8), generator=generator)


def test_the_share_falls_evenly_and_then_stays():
    config = DagConfig(glancing_ratio=0.5, glancing_ratio_end=0.1, glancing_updates=200)
    assert [ratio(config, update) for update in (0, 100, 200, 10**9)] == pytest.approx([0.5, 0.3, 0.1, 0.1])


@given(st.integers(0, 1000), st.floats(0, 1))
def test_the_stated_share_of_tokens_is_shown(seed, share):
    vertices, right, noise = situation(seed)
    amounts = {
        "number-random": lambda length, correct, drawn: (length - correct) * share,
        "uniform": lambda length, correct, drawn: length * drawn,
        "fixed": lambda length, correct, drawn: length * share,
    }
    for name, amount in amounts.items():
        config = DagConfig(glancing=name, glancing_ratio=share, glancing_ratio_end=share)
        glance = choose(config, 1, vertices, right, LENGTHS, noise)
        correct = [int((right[row] & (vertices[row] >= 0)).sum()) for row in range(3)]
        assert glance.correct.tolist() == correct
        assert not glance.shown[vertices < 0].any()
        for row, shown in enumerate(glance.shown.sum(1).tolist()):
            exact = amount(int(LENGTHS[row]), correct[row], noise[row, -1].item()) + 0.5
            assert shown in {math.floor(exact - 1e-4), math.floor(exact + 1e-4)}


def test_all_or_nothing_is_shown_at_the_ends_of_the_range():
    vertices, right, noise = situation(0)
    nothing = choose(DagConfig(glancing="fixed", glancing_ratio=0, glancing_ratio_end=0), 1, vertices, right, LENGTHS, noise)
    everything = choose(DagConfig(glancing="fixed", glancing_ratio=1, glancing_ratio_end=1), 1, vertices, right, LENGTHS, noise)
    assert not nothing.shown.any()
    assert torch.equal(everything.shown, vertices >= 0)


def test_each_token_is_shown_by_itself_with_the_share_that_is_wrong():
    vertices = torch.arange(4).expand(20000, 4)
    right = torch.tensor([True, False, False, False]).expand(20000, 4)
    noise = torch.rand((20000, 5), generator=torch.Generator().manual_seed(0))
    config = DagConfig(glancing="bernoulli", glancing_ratio=0.8, glancing_ratio_end=0.8)
    shown = choose(config, 1, vertices, right, torch.full((20000,), 4), noise).shown.float()
    assert shown.mean(0).tolist() == pytest.approx([0.6] * 4, abs=0.015)
    assert shown.sum(1).var() == pytest.approx(4 * 0.6 * 0.4, abs=0.05)


def test_shown_tokens_stand_at_their_vertices():
    empty = torch.tensor([[1, 4, 4, 4, 2]])
    glance = Glance(torch.tensor([[0, 2, 4]]), torch.tensor([[False, True, False]]), torch.tensor([0]))
    assert reveal(empty, torch.tensor([[1, 9, 2]]), glance).tolist() == [[1, 4, 9, 4, 2]]


# Five vertices: transitions to the following ones, token probabilities by row over the vertices.
TRANSITIONS = [[0, 0.5, 0.25, 0.125, 0.125], [0, 0, 0.5, 0.25, 0.25], [0, 0, 0, 0.5, 0.5], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
TOKENS = [[1, 0, 0, 0, 0], [0.1, 0.5, 0.2, 0.4, 0.1], [0.1, 0.1, 0.6, 0.5, 0.1], [0, 0, 0.1, 0.2, 0.9]]


@pytest.mark.parametrize(("pin", "expected"), [("none", 117 / 1600), ("row", 9 / 160), ("column", 99 / 1600)])
def test_a_pinned_token_restricts_the_paths(pin, expected):
    tokens = torch.tensor([TOKENS]).log().requires_grad_()
    glance = Glance(torch.tensor([[0, 1, 2, 4]]), torch.tensor([[False, False, True, False]]), torch.tensor([0]))
    edges = banded(torch.tensor([TRANSITIONS]).log())
    found = dag_log_likelihood(pinned(tokens, glance, pin), edges, torch.tensor([4]), torch.tensor([5]))
    assert found.exp().item() == pytest.approx(expected, rel=1e-5)
    found.sum().backward()
    assert (tokens.grad[0, 2, 2] == 0) == (pin != "none")
    assert tokens.grad.isfinite().all()


# ---- samples of the vocabulary that a graph's words are normalised over in training


TARGETS = torch.tensor([[1, 5, 9, 5], [1, 9, 0, 0]])


def states_and_weight(size=40, width=6):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(7, width, generator=generator), torch.randn(size, width, generator=generator)


def test_a_sample_holds_the_targets_and_the_stated_number_of_others():
    _, weight = states_and_weight()
    words = sample_vocabulary(weight, TARGETS, 12)
    assert torch.equal(words.weight[words.targets], weight[TARGETS])
    assert len(words.weight.unique(dim=0)) == 4 + 12
    assert words.bias.tolist() == pytest.approx([0.0] * 4 + [torch.log(torch.tensor(36 / 12)).item()] * 12)


def test_normalisers_are_on_average_those_over_all_tokens():
    states, weight = states_and_weight()
    torch.manual_seed(0)
    samples = [sample_vocabulary(weight, TARGETS, 12) for _ in range(4000)]
    sums = torch.stack([(states @ words.weight.t() + words.bias).exp().sum(1) for words in samples])
    error = sums.std(0) / len(sums) ** 0.5
    assert ((sums.mean(0) - (states @ weight.t()).exp().sum(1)).abs() < 4 * error).all()


@pytest.mark.parametrize("glancing", ["none", "number-random"])
def test_a_sample_of_everything_changes_neither_loss_nor_gradient(glancing):
    found = []
    for sampled in (None, 14, 99):
        model = network(glancing=glancing, sampled_tokens=sampled).train()
        torch.manual_seed(7)
        result = loss(model, batch_of(PAIRS), 1, 0.0)
        result.total.backward()
        found.append((result.total.item(), model.target_embedding.weight.grad.clone()))
    for total, gradient in found[1:]:
        assert total == pytest.approx(found[0][0], abs=1e-5)
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-4, atol=1e-6)


def test_evaluation_is_over_all_tokens():
    batch = batch_of(PAIRS)
    with torch.no_grad():
        assert loss(network(sampled_tokens=1), batch, 1, 0.0).total == loss(network(), batch, 1, 0.0).total


# ---- passing probabilities, posteriors and transitions that are kept, against all paths of tiny graphs


FIVE = torch.tensor(
    [
        [0, 0.5, 0.25, 0.125, 0.125],
        [0, 0, 0.5, 0.25, 0.25],
        [0, 0, 0, 0.5, 0.5],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0],
    ]
)


def paths(length, tokens=None):
    """Yield all paths from the first to the last of `length` vertices, or those with `tokens` vertices."""
    for inner in range(length - 1) if tokens is None else [tokens - 2]:
        for visited in itertools.combinations(range(1, length - 1), inner):
            yield (0, *visited, length - 1)


def random_transitions(length, generator):
    weights = torch.rand(length, length, generator=generator, dtype=torch.float64).triu(1)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-300)


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
