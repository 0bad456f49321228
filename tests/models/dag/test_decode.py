"""Searches of graphs in torch against all paths, by tensors of fixed shapes, and in buffers of rounded sizes."""

import dataclasses
import itertools
import math
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.config.network import Sizes
from fewstep.config.options import Sampling, Shortlist
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.search import Candidates, candidates, finished
from fewstep.search.dag_paths import DagViterbiOptions, dag_follow, dag_viterbi
from fewstep.vocabulary import BOS, EOS, RESERVED, UNK
from kernels import dense_transitions
from models.common.buffers import Size
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.dag.run import GraphRunner, TorchDecoder, finds_best_path
from models.dag.search import GraphTensors, greedy, jump, search_on_host
from models.dag.vertices import VertexTokens, top_k_tokens
from models.dag.viterbi import best_paths, follow, length_powers
from models.training.batch import pad_rows
from tests.fewstep.search.test_dag_paths import FIVE, FIVE_TOKENS
from tests.kernels.dag_graphs import banded
from tests.models.common.device_alone import DeviceAlone, buffers_of_a_gpu

# ---- searches over the graphs of a network; outputs depend on the sentence alone


SMALL = DagConfig(
    width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.1, graph_factor=2.0, max_vertices=40
)
STRATEGIES = ["greedy", "lookahead", "viterbi", "joint-viterbi", "beam", "sample"]


def tokens_on(tokens, path):
    rows = torch.arange(len(path))[:, None]
    return VertexTokens(*(part[rows, path.clamp(min=0)] for part in tokens))


def decoder(**changes):
    torch.manual_seed(0)
    model = DagModel(dataclasses.replace(SMALL, **changes), Sizes(14, 14, True))
    with torch.no_grad():
        model.target_embedding.weight.mul_(3.0)
    return DagDecoder(model)


def sources(count=9):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(7, 14, (1 + row % 5,), generator=generator).tolist() for row in range(count)]


def outputs(one, rows, search):
    return one.decode(one.prepare(rows), search)


def random_graph(lengths, words=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = max(lengths)
    scores = torch.randn((len(lengths), size, size), generator=generator)
    place = torch.arange(size)
    allowed = (place > place[:, None]) & (place < torch.tensor(lengths)[:, None, None])
    transitions = scores.masked_fill(~allowed, -torch.inf).log_softmax(2).nan_to_num(nan=-torch.inf)
    log_probs = torch.randn((len(lengths), size, 12), generator=generator).log_softmax(2)[..., 7:].topk(words)
    found = VertexTokens(log_probs.values, log_probs.indices + 7)
    return GraphTensors(banded(transitions), found, torch.tensor(lengths))


def paths(length):
    for count in range(length - 1):
        for inner in itertools.combinations(range(1, length - 1), count):
            yield (0, *inner, length - 1)


def step(graph, row, i, j):
    return graph.transitions[row, i, j - i - 1].item()


def path_score(graph, row, path, tokens=1.0):
    steps = sum(step(graph, row, i, j) for i, j in itertools.pairwise(path))
    return steps + tokens * sum(graph.tokens.scores[row, v, 0].item() for v in path)


def ids_on(graph, row, path):
    return [graph.tokens.ids[row, v, 0].item() for v in path[1:-1]]


@pytest.mark.parametrize("strategy", ["greedy", "lookahead"])
@pytest.mark.parametrize("token_weight", [1.0, 0.3])
def test_walks_take_the_best_step_from_vertex_to_vertex(strategy, token_weight):
    lengths = [7, 2, 5]
    graph = random_graph(lengths)
    search = DagSearch(strategy=strategy, token_weight=token_weight, deduplicate=False)
    if strategy == "greedy":
        found = greedy(graph.transitions, graph.lengths, lambda path: tokens_on(graph.tokens, path)).hypotheses()
    else:
        found = search_on_host(graph, search, [[7]] * 3)
    for row, (hypothesis,) in enumerate(found):
        path = [0]
        while path[-1] != lengths[row] - 1:
            weight = token_weight if strategy == "lookahead" else 0.0
            sums = {
                j: step(graph, row, path[-1], j) + weight * graph.tokens.scores[row, j, 0].item() for j in range(path[-1] + 1, 7)
            }
            path.append(max(sums, key=sums.get))
        assert hypothesis.ids == ids_on(graph, row, path)
        assert hypothesis.score == pytest.approx(path_score(graph, row, path), abs=1e-5)
        assert hypothesis.statistics["margin"] > 0


def test_greedy_search_ranks_tokens_on_its_paths_alone():
    """The result equals that with the tokens of all vertices."""
    one, rows = decoder(), sources()
    search = DagSearch(strategy="greedy", deduplicate=False)
    graph = one.graph(one.prepare(rows), search)
    whole = greedy(graph.transitions, graph.lengths, lambda path: tokens_on(graph.tokens, path)).hypotheses()
    for (alone,), (expected,) in zip(outputs(one, rows, search), whole, strict=True):
        assert alone.ids == expected.ids
        assert alone.score == pytest.approx(expected.score, abs=1e-4)
        assert alone.statistics["margin"] == pytest.approx(expected.statistics["margin"], abs=1e-4)


@torch.no_grad()
def test_words_of_a_list_are_ranked_as_if_there_were_no_others():
    """Each sentence has its own shortlist."""
    torch.manual_seed(3)
    network = DagModel(dataclasses.replace(SMALL, width=8, heads=2), Sizes(40, 40, True))
    table, states, lengths = network.target_embedding, torch.randn(3, 6, 8), torch.tensor([6, 2, 4])
    allowed = torch.rand(3, 40) < 0.3
    allowed[:, : UNK + 1] = True
    found = top_k_tokens(states, lengths, network, 3, allow_unknown=False, allowed=allowed)
    log_probs = (states @ table.weight.t()).masked_fill(~allowed[:, None], -torch.inf).log_softmax(2)
    for row, length in enumerate(lengths.tolist()):
        assert found.scores[row, 0, 0] == pytest.approx(log_probs[row, 0, BOS].item(), abs=1e-5)
        assert found.scores[row, length - 1, 0] == pytest.approx(log_probs[row, length - 1, EOS].item(), abs=1e-5)
        for vertex in range(1, length - 1):
            best = log_probs[row, vertex, len(RESERVED) :].topk(3)
            assert torch.equal(found.ids[row, vertex], best.indices + len(RESERVED))
            torch.testing.assert_close(found.scores[row, vertex], best.values)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_joint_viterbi_finds_the_best_path_by_its_length(exponent):
    lengths = [7, 4, 6]
    graph = random_graph(lengths, seed=3)
    search = DagSearch(strategy="joint-viterbi", length_penalty=exponent, deduplicate=False)
    for row, (hypothesis,) in enumerate(search_on_host(graph, search, [[7]] * 3)):
        # the last vertex's token is the same for all paths, and left out of the comparison
        last = graph.tokens.scores[row, lengths[row] - 1, 0].item()
        worth = {
            path: (path_score(graph, row, path) - last) / (len(path) - 2) ** exponent
            for path in paths(lengths[row])
            if len(path) > 2
        }
        best = max(worth, key=worth.get)
        assert hypothesis.ids == ids_on(graph, row, best)
        assert hypothesis.score == pytest.approx(worth[best], abs=1e-5)


def test_a_wide_beam_adds_up_the_paths_of_each_text():
    graph = random_graph([6], words=3, seed=5)
    texts: dict[tuple[int, ...], float] = {}
    for path in paths(6):
        steps = math.exp(sum(step(graph, 0, i, j) for i, j in itertools.pairwise(path)))
        end = math.exp(graph.tokens.scores[0, 5, 0].item())
        for choice in itertools.product(range(3), repeat=len(path) - 2):
            places = list(zip(path[1:-1], choice, strict=True))
            text = tuple(graph.tokens.ids[0, v, w].item() for v, w in places)
            tokens = math.prod(math.exp(graph.tokens.scores[0, v, w].item()) for v, w in places)
            texts[text] = texts.get(text, 0.0) + steps * end * tokens
    # The end vertex has one token alone.
    graph.tokens.scores[0, 5, 1:] = -torch.inf
    search = DagSearch(
        strategy="beam", beam_size=10**4, beams_per_length=10**4, candidates=100, top_p=1.0, n_best=5, deduplicate=False
    )
    (ranked,) = search_on_host(graph, search, [[7]])
    expected = sorted(((math.log(p) / (len(text) + 1), text) for text, p in texts.items()), reverse=True)[:5]
    assert [hypothesis.score for hypothesis in ranked] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert [tuple(hypothesis.ids) for hypothesis in ranked] == [text for _, text in expected]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_outputs_do_not_depend_on_the_sentences_beside(strategy):
    one, rows = decoder(), sources()
    search = DagSearch(strategy=strategy, n_best=2 if strategy in ("beam", "sample") else 1, beam_size=20)
    together = outputs(one, rows, search)
    for row, ranked in zip(rows, together, strict=True):
        (alone,) = outputs(one, [row], search)
        assert [hypothesis.ids for hypothesis in alone] == [hypothesis.ids for hypothesis in ranked]
        assert [hypothesis.score for hypothesis in alone] == pytest.approx([h.score for h in ranked], abs=1e-4)
        assert all(hypothesis.steps == 1 for hypothesis in ranked)
    assert [[h.ids for h in ranked] for ranked in outputs(one, rows[::-1], search)] == [
        [h.ids for h in ranked] for ranked in together[::-1]
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("unknown", [False, True])
def test_reserved_tokens_are_not_written(strategy, unknown):
    one = decoder()
    with torch.no_grad():
        one.model.target_embedding.weight[: 7 if not unknown else 3] *= 3.0
    search = DagSearch(strategy=strategy, allow_unknown=unknown, deduplicate=False)
    for ranked in outputs(one, sources(), search):
        assert all(token >= 7 or (unknown and token == UNK) for hypothesis in ranked for token in hypothesis.ids)


def test_the_ends_write_their_own_tokens_alone():
    one = decoder()
    states, lengths = torch.randn(2, 5, 16), torch.tensor([5, 3])
    words = top_k_tokens(states, lengths, one.model, 4, allow_unknown=False)
    words, log_probs = VertexTokens(*(part.detach() for part in words)), one.model.logits(states).log_softmax(2).detach()
    for row, last in enumerate((4, 2)):
        assert words.ids[row, 0, 0] == BOS
        assert words.ids[row, last, 0] == EOS
        assert words.scores[row, 0, 0] == pytest.approx(log_probs[row, 0, BOS].item(), abs=1e-5)
        assert words.scores[row, last, 0] == pytest.approx(log_probs[row, last, EOS].item(), abs=1e-5)
        assert words.scores[row, [0, last], 1:].max() == -math.inf
    inner = log_probs[0, 1, 7:].sort(descending=True)
    torch.testing.assert_close(words.scores[0, 1], inner.values[:4])


@pytest.mark.parametrize("token_weight", [0.0, 0.5, 1.0])
def test_candidates_are_the_best_pairs(token_weight):
    graph = random_graph([8, 5], words=3, seed=7)
    graph.tokens.scores[:, -1, 1:] = -torch.inf
    given = graph.numpy()
    best = candidates(given.transitions, given.tokens, 4, token_weight)
    assert isinstance(best, Candidates)
    found = Candidates(*map(torch.from_numpy, best))
    weighted = torch.where(graph.tokens.scores.isfinite(), token_weight * graph.tokens.scores, -torch.inf)
    pairs = (
        (dense_transitions(graph.transitions)[..., None] + weighted[:, None]).flatten(2).sort(2, descending=True).values[..., :4]
    )
    torch.testing.assert_close(found.scores, pairs)
    rows, origins = torch.arange(2)[:, None, None], torch.arange(8)[None, :, None]
    for place in found.scores.isfinite().nonzero().tolist():
        row, origin, rank = place
        vertex, token = found.vertices[row, origin, rank], found.ids[row, origin, rank]
        word = (graph.tokens.ids[row, vertex] == token).nonzero()[0, 0]
        assert found.scores[row, origin, rank] == graph.transitions[row, origin, vertex - origin - 1] + weighted[row, vertex, word]
    assert rows.shape[0] == 2
    assert origins.shape[1] == 8


def test_repeated_tokens_collapse():
    graph = random_graph([6], seed=1)
    graph.tokens.ids[:] = 9
    search = DagSearch(strategy="viterbi", length_penalty=3.0)
    ((written,),) = search_on_host(graph, dataclasses.replace(search, deduplicate=False), [[7]])
    assert written.ids.count(9) > 1
    assert search_on_host(graph, search, [[7]])[0][0].ids == [9]


def test_samples_differ_by_seed_and_rank_and_cool_down():
    graph, rows = random_graph([8]), [[8, 9]]
    search = DagSearch(strategy="sample", n_best=40, top_p=1.0, candidates=20)
    first, again, other = (
        search_on_host(graph, dataclasses.replace(search, sampling=Sampling(seed=seed)), rows)[0] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert len({tuple(h.ids) for h in first}) > 5
    cold = search_on_host(graph, dataclasses.replace(search, sampling=Sampling(temperature=0.02)), rows)[0]
    assert len({tuple(h.ids) for h in cold}) < len({tuple(h.ids) for h in first})
    scores = [h.score for h in first]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_adjacent_equal_tokens_are_written_once_but_in_samples(strategy):
    """A path with two equal tokens, which the paper's algorithms write both."""
    only_next = torch.tensor([[0.0, -torch.inf, -torch.inf]] * 3 + [[-torch.inf] * 3])
    tokens = VertexTokens(torch.tensor([[0.0, -9.0]] * 4)[None], torch.tensor([[[BOS, 0], [7, 8], [7, 8], [EOS, 0]]]))
    graph, search = GraphTensors(only_next[None], tokens, torch.tensor([4])), DagSearch(strategy=strategy)
    for deduplicate in (True, False):
        chosen = dataclasses.replace(search, deduplicate=deduplicate)
        if strategy == "greedy":
            followed = greedy(graph.transitions, graph.lengths, partial(tokens_on, graph.tokens))
            ((written,),) = [finished(ranked, chosen) for ranked in followed.hypotheses()]
        else:
            ((written,),) = search_on_host(graph, chosen, [[9]])
        assert written.ids == ([7, 7] if strategy == "sample" or not deduplicate else [7])


def two_vertices(first, second):
    """Return a graph of four vertices, whose inner two are reached with probabilities 0.3 and 0.7 and have the tokens 7 and 8, with
    the probabilities of 7 that are given."""
    log = torch.tensor([[0.3, 0.7, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).log()
    probabilities = torch.tensor([[1.0, 0.0], [first, 1 - first], [second, 1 - second], [1.0, 0.0]])
    ids = torch.tensor([[BOS, 0], [7, 8], [7, 8], [EOS, 0]])
    # Both inner vertices lead to the last one.
    return GraphTensors(log[None], VertexTokens(probabilities.log()[None], ids[None]), torch.tensor([4]))


@pytest.mark.parametrize("temperature", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("conventions", ["paper", "v2"])
def test_the_temperature_acts_on_pairs_of_vertex_and_token(conventions, temperature):
    """Frequencies of 4,000 samples against the distribution, which is enumerated."""
    first, second = 0.6, 0.45
    graph, rows = two_vertices(first, second), [[8, 9]]
    search = DagSearch(strategy="sample", n_best=4000, top_p=1.0, candidates=20, conventions=conventions)
    ranked = search_on_host(graph, dataclasses.replace(search, sampling=Sampling(temperature=temperature)), rows)[0]
    pairs = {(1, 7): 0.3 * first, (1, 8): 0.3 * (1 - first), (2, 7): 0.7 * second, (2, 8): 0.7 * (1 - second)}
    if conventions == "paper":
        total = sum(value ** (1 / temperature) for value in pairs.values())
        expected = sum(value ** (1 / temperature) for (_, token), value in pairs.items() if token == 7) / total
    else:
        links = {1: 0.3 ** (1 / temperature), 2: 0.7 ** (1 / temperature)}
        expected = (links[1] * first + links[2] * second) / sum(links.values())
    drawn = sum(one.ids == [7] for one in ranked) / len(ranked)
    assert drawn == pytest.approx(expected, abs=0.03)
    assert {tuple(one.ids) for one in ranked} <= {(7,), (8,)}


def test_a_probable_token_is_nearly_always_drawn_at_a_low_temperature():
    graph = two_vertices(0.6, 0.6)
    search = DagSearch(strategy="sample", n_best=1000, top_p=1.0, sampling=Sampling(temperature=0.05))
    cold = search_on_host(graph, search, [[8]])[0]
    assert sum(one.ids == [7] for one in cold) > 980
    later = search_on_host(graph, dataclasses.replace(search, conventions="v2"), [[8]])[0]
    assert 520 < sum(one.ids == [7] for one in later) < 680


def test_what_cannot_be_done_is_refused():
    one = decoder()
    assert outputs(one, [], DagSearch()) == []
    with pytest.raises(ValueError, match="n_best: expected 1 with lookahead, "):
        outputs(one, sources(), DagSearch(n_best=2))
    with pytest.raises(ValueError, match="ngram_weight: expected 0 for a system without"):
        outputs(one, sources(), DagSearch(strategy="beam", ngram_weight=0.1))
    with pytest.raises(ValueError, match=r"sources\[0\]: expected at most 1023 tokens"):
        one.prepare([[7] * 1024])
    with pytest.raises(ValueError, match=r"targets\[0\]: expected ids of text"):
        one.score([[7]], [[EOS]])


def test_a_graph_is_never_larger_than_the_table_of_positions():
    one = decoder(max_vertices=9, positions="learned")
    (ranked,) = outputs(one, [[7] * 30], DagSearch(strategy="viterbi", length_penalty=5.0, deduplicate=False))
    assert len(ranked[0].ids) <= 7


def test_the_networks_mode_is_left_as_it_was():
    one = decoder(dropout=0.5)
    one.model.train()
    first, second = (outputs(one, sources(), DagSearch()) for _ in range(2))
    assert first == second
    assert one.model.training
    ids, lengths = pad_rows([[7]])
    with torch.no_grad():
        passes = [one.model.read(ids, lengths).memories[0].keys for _ in range(2)]
    assert not torch.equal(*passes)


# ---- viterbi search by tensors of fixed shapes: the paths and scores of the search on the host, to the last bit


def compare(transitions, tokens, lengths, exponent):
    """Compare with the host's search; the id of a vertex is its number."""
    size = tokens.size(1)
    ids = torch.arange(size).expand_as(tokens)
    found = best_paths(transitions, tokens, ids, lengths, length_powers(size, exponent, torch.device("cpu")))
    expected = dag_viterbi(transitions, tokens, lengths, options=DagViterbiOptions(length_exponent=exponent))
    assert found.counts.tolist() == expected.lengths.tolist()
    assert np.array_equal(found.scores.numpy(), expected.scores)
    for row, (hypothesis,) in enumerate(found.hypotheses()):
        assert hypothesis.ids == expected.vertices[row, 1 : expected.lengths[row] + 1].tolist()


@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    exponent=st.sampled_from([0.0, 0.7, 1.0, 2.5]),
    rounded=st.booleans(),
)
def test_paths_are_those_of_the_host(lengths, seed, exponent, rounded):
    """Rounded scores have many equal paths."""
    graph = random_graph(lengths, seed=seed)
    transitions, tokens = graph.transitions, graph.tokens.scores[..., 0].contiguous()
    if rounded:
        transitions, tokens = transitions.round(), tokens.round()
    for best in (tokens, torch.zeros_like(tokens)):
        compare(transitions, best, graph.lengths, exponent)


@given(seed=st.integers(0, 2**32), holes=st.floats(0.1, 0.9), size=st.integers(2, 9))
def test_impossible_scores_are_left_out(seed, holes, size):
    generator = torch.Generator().manual_seed(seed)
    graph = random_graph([size, max(2, size - 3)], seed=seed)
    impossible = torch.tensor([-torch.inf, torch.nan])
    broken = []
    for scores in (graph.transitions, graph.tokens.scores[..., 0]):
        kind = impossible[torch.randint(2, scores.shape, generator=generator)]
        broken.append(torch.where(torch.rand(scores.shape, generator=generator) < holes, kind, scores).contiguous())
    compare(*broken, graph.lengths, 1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.420051, 0.420053, 0.966925, 0.966927, 1.0])
def test_the_length_is_chosen_as_on_the_host_around_equal_scores(exponent):
    """The scores of the best paths with one, two and three tokens are equal at the exponents .420052 and .966926."""
    transitions, tokens = banded(torch.from_numpy(FIVE)), torch.from_numpy(FIVE_TOKENS)
    compare(transitions, tokens, torch.tensor([5]), exponent)


def test_powers_beyond_the_largest_number_end_no_search():
    assert length_powers(2000, 100.0, torch.device("cpu"))[-1] == torch.inf


@given(st.integers(1, 20).flatmap(lambda size: st.tuples(*[st.lists(st.integers(0, size - 1), min_size=size, max_size=size)] * 2)))
def test_jumps_visit_the_vertices_of_single_steps(rows):
    following = torch.tensor(rows)
    size = following.size(1)
    for lengths in ([size, size], [size, max(1, size // 2)]):
        expected = torch.from_numpy(dag_follow(following, torch.tensor(lengths)))
        found = jump(following, torch.tensor(lengths))
        assert found[:, : expected.size(1)].tolist() == expected.tolist()
        assert (found[:, expected.size(1) :] == -1).all()


def test_places_are_followed_as_often_as_asked():
    following = torch.tensor([[2, 0, 1], [1, 1, 0]])
    for count in range(1, 8):
        assert follow(following, torch.tensor([[1], [2]]), count).tolist() == [
            [1, 0, 2, 1, 0, 2, 1][:count],
            [2, 0, 1, 1, 1, 1, 1][:count],
        ]


# ---- graphs that are searched in buffers of rounded sizes: the results of exact ones, without waiting for the host


SEARCHES = [
    DagSearch(strategy="greedy", deduplicate=False),
    DagSearch(strategy="lookahead", token_weight=0.7, deduplicate=False),
    DagSearch(strategy="viterbi", length_penalty=1.2, deduplicate=False),
    DagSearch(strategy="joint-viterbi", token_weight=0.6, deduplicate=False),
]


@pytest.mark.parametrize("search", [*SEARCHES, DagSearch(strategy="beam", beam_size=3)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graph_size": "fixed", "graph_factor": 9.0},
        {"norm": "post", "positions": "learned"},
        {"graph_size": "predicted", "graph_factor": 4.0},
    ],
)
def test_rounded_buffers_find_the_hypotheses_of_exact_ones(search, options):
    """Best paths are those of the runtime's kernel, which searches those of exact buffers."""
    one = decoder(**options)
    with buffers_of_a_gpu():
        rounded = TorchDecoder(one.model, None, None)
    for count in (9, 3, 1):
        rows = sources(count)
        with buffers_of_a_gpu():
            found = rounded.search(one.prepare(rows), search, 1)
        for (hypothesis,), (expected,) in zip(found, outputs(one, rows, dataclasses.replace(search, engine="torch")), strict=True):
            assert hypothesis.ids == expected.ids
            assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
            assert hypothesis.steps == expected.steps
            assert list(hypothesis.statistics) == list(expected.statistics)
            assert list(hypothesis.statistics.values()) == pytest.approx(list(expected.statistics.values()), abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
def test_best_paths_of_a_band_are_searched_on_the_host(search):
    """The device would hold all pairs of vertices in float64, where the host holds the band."""
    whole, band = (decoder(**changes).model.config for changes in ({}, {"max_transition_length": 6}))
    assert finds_best_path(search, whole, torch.device("cuda")) == ("viterbi" in search.strategy)
    assert not finds_best_path(search, band, torch.device("cuda"))
    assert not finds_best_path(search, whole, torch.device("cpu"))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("listed", [False, True])
def test_a_search_does_not_wait_for_the_host(search, listed, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # the device meta has no automatic precision
    search = dataclasses.replace(search, shortlist=Shortlist(tokens=9) if listed else None)
    with torch.device("meta"):
        model = decoder().model.eval()
    with torch.no_grad():
        runner = GraphRunner(model, search, Size(sentences=4, source=16, slots=1), 0, False)
        runner._powers[32] = torch.empty(30, dtype=torch.float64, device="meta")
        with DeviceAlone() as calls:
            runner.encode()
            runner.search(32)
    assert runner.found[32].ids.shape == (4, 30 if "viterbi" in search.strategy else 32)
    assert calls.calls < (900 if "viterbi" in search.strategy else 500)
