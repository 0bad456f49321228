"""Viterbi and walks through a graph agree with the enumeration of all paths and with walks in Python."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import DagViterbiOptions, DagWalkOptions, dag_follow, dag_lookahead, dag_sample
from fewstep import dag_viterbi as banded_viterbi
from kernels.reference import dag_search as reference
from tests.kernels.dag_graphs import banded

A, B, C, EOS = 10, 11, 12, 2


def dag_viterbi(transitions, *rest, band=None, **options):
    """`fewstep.dag_viterbi` for dense transitions."""
    return banded_viterbi(banded(torch.as_tensor(transitions), band, beyond=torch.nan), *rest, **options)


def drawn(seed, sentences, vertices, impossible):
    """Return random transitions [B,L,L] with garbage where they are not read, token scores [B,L] and graph lengths."""
    draw = np.random.default_rng(seed)
    shape = (sentences, vertices, vertices)
    transitions = np.where(draw.random(shape) < impossible, draw.choice([-np.inf, np.nan], shape), draw.normal(-2, 2, shape))
    transitions = np.where(np.triu(np.ones(shape), 1) > 0, transitions, 99.0).astype(np.float32)
    tokens = draw.normal(-1, 1, shape[:2]).astype(np.float32)
    tokens[:, 1:][draw.random((sentences, vertices - 1)) < impossible / 3] = np.nan
    lengths = draw.integers(0, vertices + 1, sentences)
    for sentence, length in enumerate(lengths):
        transitions[sentence, length:], transitions[sentence, :, length:], tokens[sentence, length:] = np.nan, 9, 9
    return transitions, tokens, lengths


@given(
    st.builds(drawn, st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.0, 0.3, 0.7])),
    st.sampled_from([0.0, 1.0, 1.3, 2.0]),
    st.lists(st.integers(0, 8), min_size=4, max_size=4),
    st.integers(1, 3),
)
def test_viterbi_finds_the_best_of_all_paths_of_every_length(batch, exponent, limits, threads):
    transitions, tokens, lengths = batch
    longest = np.array(limits[: len(lengths)])
    options = DagViterbiOptions(length_exponent=exponent, threads=threads)
    found = dag_viterbi(*batch, max_lengths=longest, options=options)
    for sentence, length in enumerate(lengths):
        graph = transitions[sentence, :length, :length], tokens[sentence, :length]
        worth = reference.viterbi(*graph, exponent, int(longest[sentence])) if length > 1 else {}
        path = tuple(found.vertices[sentence][found.vertices[sentence] >= 0].tolist())
        if worth:
            assert found.scores[sentence] == pytest.approx(max(worth.values()), abs=1e-5)
            assert worth[path] == pytest.approx(found.scores[sentence], abs=1e-5)
            assert found.lengths[sentence] == len(path) - 2
        else:
            assert (path, found.lengths[sentence], found.scores[sentence]) == ((), 0, -math.inf)


@given(
    st.builds(drawn, st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 8), st.just(0.1)),
    st.integers(1, 8),
    st.sampled_from([0.0, 1.0]),
)
def test_viterbi_in_a_band_is_that_without_the_other_transitions(batch, band, exponent):
    transitions, *rest = batch
    outside = np.triu(np.ones(transitions.shape[1:]), band + 1) > 0
    options = DagViterbiOptions(length_exponent=exponent)
    expected = dag_viterbi(np.where(outside, -np.inf, transitions).astype(np.float32), *rest, options=options)
    found = dag_viterbi(transitions, *rest, band=band, options=options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_viterbi_of_a_graph_whose_sums_are_not_all_held():
    """The path of each length is found again, group by group."""
    size, band = 1200, 3
    draw = np.random.default_rng(0)
    transitions, tokens = draw.normal(-2, 1, (size, band)).astype(np.float32), draw.normal(-1, 1, size).astype(np.float32)
    sums = np.full((size, size), -np.inf)  # by number of vertices so far
    sums[0, 0] = tokens[0]
    for count in range(1, size):
        for d in range(band):
            sums[count, d + 1 :] = np.maximum(
                sums[count, d + 1 :], sums[count - 1, : size - d - 1] + transitions[: size - d - 1, d]
            )
        sums[count, :-1] += tokens[:-1]
    worth = sums[2:, -1] / np.arange(1, size - 1) ** 0.9
    options = DagViterbiOptions(length_exponent=0.9)
    found = banded_viterbi(transitions[None], tokens[None], np.array([size]), options=options)
    assert found.lengths[0] == worth.argmax() + 1
    assert found.scores[0] == pytest.approx(worth.max())
    path = found.vertices[0]
    steps = sum(transitions[i, j - i - 1] for i, j in itertools.pairwise(path))
    assert (tokens[path[:-1]].sum() + steps) / found.lengths[0] ** 0.9 == pytest.approx(worth.max(), rel=1e-4)


def logs(edges, vertices):
    transitions = np.full((1, vertices, vertices), -np.inf, np.float32)
    for (i, j), probability in edges.items():
        transitions[0, i, j] = math.log(probability)
    return transitions


FIVE_EDGES = {(0, 1): 0.6, (0, 2): 0.1, (0, 3): 0.05, (0, 4): 0.25, (1, 2): 0.45, (1, 3): 0.2, (1, 4): 0.35, (2, 3): 0.25}
FIVE_EDGES |= {(2, 4): 0.75, (3, 4): 1.0}
EMITTED = {1: (0.05, 0.4, 0.55), 2: (0.2, 0.3, 0.5), 3: (0.75, 0.1, 0.15)}
FIVE = logs(FIVE_EDGES, 5)
FIVE_TOKENS = np.log(np.array([[1, 0.55, 0.5, 0.75, 1]], np.float32))


@pytest.mark.parametrize(
    ("tokens", "exponent", "path", "score"),
    [
        (0 * FIVE_TOKENS, 1.0, [0, 1, 2, 4], -0.798508),
        (FIVE_TOKENS, 1.0, [0, 1, 2, 3, 4], -1.424765),
        (FIVE_TOKENS, 0.0, [0, 1, 4], -2.158485),
        (FIVE_TOKENS, 0.420051, [0, 1, 4], -2.158485),
        (FIVE_TOKENS, 0.420053, [0, 1, 2, 4], -2.888000 / 2**0.420053),
        (FIVE_TOKENS, 0.966925, [0, 1, 2, 4], -2.888000 / 2**0.966925),
        (FIVE_TOKENS, 0.966927, [0, 1, 2, 3, 4], -4.274294 / 3**0.966927),
    ],
)
def test_viterbi_on_a_graph_of_five_vertices(tokens, exponent, path, score):
    before = FIVE.copy()
    found = dag_viterbi(FIVE, tokens, np.array([5]), options=DagViterbiOptions(length_exponent=exponent))
    assert found.vertices.tolist() == [path]
    assert found.scores[0] == pytest.approx(score, abs=1e-6)
    assert (before == FIVE).all()


def test_viterbi_takes_the_shortest_and_then_the_first_of_equal_paths():
    even = np.zeros((1, 6, 6), np.float32)
    found = dag_viterbi(even, np.zeros((1, 6), np.float32), np.array([6]))
    assert found.vertices.tolist() == [[0, 1, 5]]


def test_viterbi_has_no_token_between_two_vertices_alone():
    graph = np.array([[-0.5, -1.5, 9], [9, 9, 9], [9, 9, 9]], np.float32)[None]
    tokens = np.array([[-0.25, 7, 7]], np.float32)
    found = dag_viterbi(graph, tokens, np.array([2]))
    assert (found.vertices.tolist(), found.lengths.tolist(), found.scores.tolist()) == ([[0, 1]], [0], [-1.75])
    direct = logs({(0, 2): 1.0}, 3)  # of 3 vertices, none on the way
    assert dag_viterbi(direct, np.zeros((1, 3), np.float32), np.array([3])).scores[0] == -math.inf


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_pointers_are_followed_to_the_end_or_to_a_bad_one(seed, vertices):
    draw = np.random.default_rng(seed)
    pointers = np.arange(vertices) + draw.choice([1, 1, 2, 3, 0, -3, 99, -(2**62), 2**62], (6, vertices))
    lengths = draw.integers(0, vertices + 1, 6)
    found = dag_follow(pointers, lengths)
    for row, next_vertices, length in zip(found.tolist(), pointers, lengths, strict=True):
        path, vertex = [], 0 if length else None
        while vertex is not None:
            path.append(vertex)
            following = int(next_vertices[vertex])
            vertex = following if vertex < following < length else None
        assert row == path + [-1] * (found.shape[1] - len(path))


def candidates(seed, sentences, vertices, width):
    draw = np.random.default_rng(seed)
    shape = (sentences, vertices, width)
    scores = np.log(draw.dirichlet([0.5] * width, shape[:2]).clip(1e-30))
    scores = np.where(draw.random(shape) < 0.1, draw.choice([-np.inf, np.nan], shape), scores).astype(np.float32)
    next_vertices = np.minimum(np.arange(vertices)[None, :, None] + draw.integers(0, 4, shape), vertices - 1)
    lengths = np.where(draw.random(sentences) < 0.7, vertices, draw.integers(0, vertices + 1, sentences))
    return scores, next_vertices, draw.choice([A, B, C], shape), lengths


WALKS = st.builds(
    DagWalkOptions,
    candidates=st.sampled_from([None, 1, 3]),
    top_p=st.sampled_from([0.2, 0.9, 1.0]),
    no_repeat_ngram=st.integers(0, 3),
    no_consecutive_repeat=st.integers(0, 3),
    threads=st.integers(1, 3),
)


@given(
    st.builds(candidates, st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 14), st.integers(1, 6)),
    WALKS,
    st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
)
def test_walks_as_the_reference_does(batch, options, seeds):
    own = seeds and np.array(seeds[: len(batch[3])], np.int64)
    found = dag_lookahead(*batch, options=options) if own is None else dag_sample(*batch, seeds=own, options=options)
    for sentence, parts in enumerate(zip(*batch, strict=True)):
        graph = reference.possible(*parts)
        expected = reference.walk(graph, options, None if own is None else int(own[sentence]))
        if len(graph) < 2:
            expected = expected._replace(vertices=[], tokens=[], score=-math.inf)
        count = len(expected.vertices)
        assert found.vertices[sentence].tolist() == expected.vertices + [-1] * (found.vertices.shape[1] - count)
        assert found.token_ids[sentence].tolist() == expected.tokens + [-1] * (found.vertices.shape[1] - count)
        assert found.scores[sentence] == pytest.approx(expected.score, abs=1e-4)


def five(width=10):
    """Return the candidates of the graph of five vertices."""
    scores = np.full((1, 5, width), -np.inf, np.float32)
    next_vertices, token_ids = np.zeros((2, 1, 5, width), np.int64)
    for vertex in range(4):
        row = [(i, j, token, p) for i, j in FIVE_EDGES if i == vertex for token, p in enumerate(EMITTED.get(j, [1.0]), A)]
        for place, (i, j, token, probability) in enumerate(row):
            scores[0, vertex, place] = math.log(FIVE_EDGES[i, j] * probability)
            next_vertices[0, vertex, place], token_ids[0, vertex, place] = j, token if j < 4 else EOS
    return scores, next_vertices, token_ids, np.array([5])


def test_lookahead_takes_the_first_of_equal_candidates():
    even = np.log(np.array([[[0.4, 0.4], [0.9, 0.08], [1.0, 1e-9], [1, 1]]], np.float32))  # figure 11 of the paper
    token_ids = np.array([[[A, A], [EOS, A], [EOS, EOS], [0, 0]]])
    for first, path in ((1, [0, 1, 3]), (2, [0, 2, 3])):
        next_vertices = np.array([[[first, 3 - first], [3, 2], [3, 3], [0, 0]]])
        assert dag_lookahead(even, next_vertices, token_ids, np.array([4])).vertices.tolist() == [path]


def test_lookahead_passes_over_repeats_until_they_weigh_too_much():
    scores = np.log(np.array([[[1.0, 1e-9], [0.8, 0.2], [1.0, 1e-9], [1, 1]]], np.float32))
    next_vertices = np.array([[[1, 1], [2, 2], [3, 3], [0, 0]]])
    token_ids = np.array([[[A, B], [A, B], [EOS, EOS], [0, 0]]])
    for top_p, expected in ((0.9, [A, B]), (0.7, [A, A]), (1.0, [A, B])):
        found = dag_lookahead(scores, next_vertices, token_ids, np.array([4]), options=DagWalkOptions(top_p=top_p))
        assert found.token_ids[0][1:-1].tolist() == expected
    found = dag_lookahead(scores, next_vertices, 0 * token_ids + A, np.array([4]))  # all are banned
    assert found.token_ids[0][1:-1].tolist() == [A, A]


def test_samples_follow_the_probabilities_of_the_graph():
    count, options = 20_000, DagWalkOptions(top_p=1.0, no_consecutive_repeat=0)
    batch = [np.repeat(part, count, axis=0) for part in five()]
    found = dag_sample(*batch, seeds=np.arange(count), options=options)
    outputs, counts = np.unique(np.where(found.token_ids < 0, 0, found.token_ids), axis=0, return_counts=True)
    seen = {tuple(int(token) for token in row if token): n / count for row, n in zip(outputs, counts, strict=True)}
    expected = {
        tokens: math.exp(score) for tokens, score in reference.log_probs(reference.possible(*[p[0] for p in five()])).items()
    }
    for tokens, probability in expected.items():
        sigma = math.sqrt(probability * (1 - probability) / count)
        assert seen.get(tokens, 0) == pytest.approx(probability, abs=5 * sigma + 1e-9)
    nucleus = dag_sample(*batch, seeds=np.arange(count), options=replace(options, top_p=0.3))
    assert set(nucleus.vertices[:, 1].tolist()) == {1}  # 0 -> 1 with C holds 0.33 already


def test_samples_hardly_ever_repeat():
    graph = np.log(np.array([[[1, 0.5], [0.9, 0.1], [1, 1e-9], [1, 1]]] * 5000, np.float32))
    next_vertices = np.array([[[1, 1], [2, 2], [3, 3], [0, 0]]] * 5000)
    token_ids = np.array([[[A, A], [A, B], [EOS, EOS], [0, 0]]] * 5000)
    found = dag_sample(graph, next_vertices, token_ids, np.full(5000, 4), seeds=np.arange(5000), options=DagWalkOptions(top_p=1.0))
    assert (found.token_ids[:, 2] == B).mean() > 0.998


def test_a_sample_depends_on_its_own_seed_alone():
    batch, seeds = candidates(3, 8, 30, 5), np.arange(8) - 4
    whole = dag_sample(*batch, seeds=seeds, options=DagWalkOptions(threads=3))
    for i in range(8):
        alone = dag_sample(*(part[i : i + 1] for part in batch), seeds=seeds[i : i + 1])
        width = alone.vertices.shape[1]
        assert whole.vertices[i, :width].tolist() == alone.vertices[0].tolist()
        assert (whole.vertices[i, width:] == -1).all()
        assert whole.scores[i] == alone.scores[0]
    same = [np.repeat(part[:1], 50, axis=0) for part in batch]
    assert len(np.unique(dag_sample(*same, seeds=np.arange(50)).vertices, axis=0)) > 10


def test_nothing_hangs_or_fails_on_scores_that_are_no_numbers():
    for bad in (np.nan, np.inf, -np.inf):
        transitions, tokens = np.full((2, 6, 6), bad, np.float32), np.full((2, 6), bad, np.float32)
        found = dag_viterbi(transitions, np.zeros((2, 6), np.float32), np.array([6, 2]))
        assert not np.isnan(found.scores).any()
        dag_viterbi(np.zeros((2, 6, 6), np.float32), tokens, np.array([6, 2]))
        batch = np.full((1, 6, 3), bad, np.float32), *np.zeros((2, 1, 6, 3), np.int64), np.array([6])
        assert dag_lookahead(*batch).scores[0] == dag_sample(*batch, seeds=np.array([1])).scores[0] == -math.inf


def test_tensors_are_taken_and_arrays_are_checked():
    lengths = np.array([5])
    tensors = [torch.from_numpy(part) for part in (FIVE, FIVE_TOKENS, lengths)]
    assert dag_viterbi(*tensors).vertices.tolist() == [[0, 1, 2, 3, 4]]
    assert dag_follow(torch.tensor([[1, 2]]), torch.tensor([2])).tolist() == [[0, 1]]
    with pytest.raises(ValueError, match=r"transition_log_probs: expected .* to fewer next vertices than the graph's 5, got 5"):
        banded_viterbi(FIVE, FIVE_TOKENS, lengths)
    with pytest.raises(ValueError, match="token_best: expected"):
        dag_viterbi(FIVE, FIVE_TOKENS[:, :4], lengths)
    with pytest.raises(ValueError, match="max_lengths: expected one for each of 1 sentences"):
        dag_viterbi(FIVE, FIVE_TOKENS, lengths, max_lengths=np.array([3, 3]))
    with pytest.raises(ValueError, match="length_exponent: expected 0"):
        dag_viterbi(FIVE, FIVE_TOKENS, lengths, options=DagViterbiOptions(length_exponent=-1))
    with pytest.raises(TypeError, match=r"next_vertices: expected int64 \[B,L\], got int32"):
        dag_follow(np.zeros((1, 5), np.int32), lengths)
    with pytest.raises(ValueError, match="graph_lengths: expected 0 to 5 vertices, got 6"):
        dag_follow(np.zeros((1, 5), np.int64), lengths + 1)
    with pytest.raises(ValueError, match="seeds: expected one for each of 1 sentences"):
        dag_sample(*five(), seeds=np.array([1, 2]))
    with pytest.raises(ValueError, match="top_p: expected more than 0 and at most 1"):
        dag_lookahead(*five(), options=DagWalkOptions(top_p=0))
    assert dag_viterbi(FIVE[:0], FIVE_TOKENS[:0], lengths[:0]).vertices.shape[0] == 0
