"""The loss equals the sum over all paths, and does not depend on padding and other pairs."""

import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from fewstep.vocabulary import BOS, EOS
from models.common.layers.embeddings import embed
from models.dag import loss as module
from models.dag.loss import log_probability, loss
from models.dag.model import DagModel, empty_vertices
from models.dag.sampled_vocabulary import sample_vocabulary
from models.training.batch import collate

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
