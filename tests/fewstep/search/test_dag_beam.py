"""Beam search over a graph agrees with the slow reference and, without pruning, with the enumeration of all paths."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep import DagBeamOptions, dag_beam_search
from kernels import NgramModel
from kernels.reference import dag_search as reference

PIECES = ["<unk>", "<s>", "</s>", "a", "b", "c"]
EOS, A, B, C = 2, 3, 4, 5
ALL = 10**6
UNPRUNED = DagBeamOptions(beam_size=ALL, beams_per_length=ALL, top_p=1.0, n_best=ALL)
SENTENCES = [["a", "b", "a", "c"], ["b", "b", "a"], ["c", "a", "b", "a", "b"], ["a"], ["c", "c", "b", "a", "a"]]


@pytest.fixture(scope="module")
def ngram():
    return NgramModel.estimate(SENTENCES, 3, discount_fallback=(0.5, 1.0, 1.5)).for_vocabulary(PIECES)


def packed(graph, width=None):
    """Rows of (probability, next vertex, token) as arrays of a batch of one."""
    width = width or max(map(len, graph))
    scores = np.full((1, len(graph), width), -np.inf, np.float32)
    next_vertices, token_ids = np.zeros((2, 1, len(graph), width), np.int64)
    for vertex, row in enumerate(graph):
        for place, (probability, at, token) in enumerate(row):
            scores[0, vertex, place] = math.log(probability)
            next_vertices[0, vertex, place], token_ids[0, vertex, place] = at, token
    return scores, next_vertices, token_ids, np.array([len(graph)])


def drawn(seed, sentences, vertices, width, kind):
    """A batch of random graphs, with impossible candidates among the others and garbage beyond the end of each."""
    draw = np.random.default_rng(seed)
    shape = (sentences, vertices, width)
    if kind == "even":
        scores = np.log(draw.choice([0.5, 0.25], shape))  # ties
    elif kind == "wide":
        scores = draw.normal(-500, 400, shape)  # no double holds their exponentials
    else:
        scores = np.log(draw.dirichlet([0.5] * width, shape[:2]).clip(1e-30))
    scores = np.where(draw.random(shape) < 0.1, draw.choice([-np.inf, np.nan, np.inf, -1e9], shape), scores).astype(np.float32)
    next_vertices = np.arange(vertices)[None, :, None] + draw.integers(0, 4, shape)
    token_ids = np.where(draw.random(shape) < 0.05, -1, draw.choice([A, B, C], shape))
    lengths = draw.integers(0, vertices + 1, sentences)
    for sentence, length in enumerate(lengths):
        token_ids[sentence, length:] = 10**12
        scores[sentence, length:] = draw.choice([np.nan, 0.0, np.inf])
        next_vertices[sentence, length:] = draw.integers(-(10**6), 10**6)
        ends = next_vertices[sentence, :length] == length - 1
        token_ids[sentence, :length][ends] = draw.choice([EOS, A, 10**12])
    return scores, next_vertices, token_ids, lengths


def graphs_of(batch):
    return [reference.possible(*parts) for parts in zip(*batch, strict=True)]


def as_scores(hypotheses):
    return {tuple(one.ids): one.score for one in hypotheses if one.found}


def assert_alike(hypotheses, expected):
    """Assert equal outputs with equal scores, best first."""
    found = as_scores(hypotheses)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    scores = [one.score for one in hypotheses]
    assert scores == sorted(scores, reverse=True)


BATCHES = st.builds(
    drawn, st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 11), st.integers(1, 6), st.sampled_from(["", "even", "wide"])
)
OPTIONS = st.builds(
    DagBeamOptions,
    beam_size=st.sampled_from([1, 2, 5, 20, ALL]),
    beams_per_length=st.sampled_from([1, 2, 4, ALL]),
    candidates=st.sampled_from([None, 1, 3]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    length_penalty=st.sampled_from([0.0, 1.0, 1.4]),
    length_convention=st.sampled_from(["v2", "paper"]),
    ngram_weight=st.sampled_from([0.0, 0.3, 2.0]),
    n_best=st.just(ALL),
    no_repeat_ngram=st.integers(0, 3),
    no_consecutive_repeat=st.integers(0, 3),
    threads=st.integers(1, 3),
)


@given(batch=BATCHES, options=OPTIONS, with_ngram=st.booleans())
def test_finds_what_the_reference_finds_that_spells_out_every_prefix(ngram, batch, options, with_ngram):
    model = ngram if with_ngram else None
    for graph, hypotheses in zip(graphs_of(batch), dag_beam_search(*batch, options=options, ngram=model), strict=True):
        expected = reference.beam_search(graph, options, model, EOS).outputs if len(graph) > 1 else {}
        assert_alike(hypotheses, expected)
        assert expected or hypotheses == [([], -math.inf)]
        assert hypotheses[0].found == bool(expected)


@given(BATCHES, st.sampled_from([0.0, 0.7, 1.0]), st.sampled_from(["v2", "paper"]), st.sampled_from([0.0, 0.5]))
def test_unpruned_it_ranks_all_outputs_by_the_probability_of_all_their_paths(ngram, batch, alpha, convention, gamma):
    options = replace(UNPRUNED, length_penalty=alpha, length_convention=convention, ngram_weight=gamma)
    for graph, hypotheses in zip(graphs_of(batch), dag_beam_search(*batch, options=options, ngram=ngram), strict=True):
        sums = reference.log_probs(graph) if len(graph) > 1 else {}
        assert_alike(hypotheses, reference.rank_outputs(sums, options, ngram, EOS))


EDGES = [[(1, 0.6), (2, 0.1), (3, 0.05), (4, 0.25)], [(2, 0.45), (3, 0.2), (4, 0.35)], [(3, 0.25), (4, 0.75)], [(4, 1.0)]]
EMITTED = [(), (0.05, 0.4, 0.55), (0.2, 0.3, 0.5), (0.75, 0.1, 0.15)]
FIVE = [
    [(e * p, at, token) for at, e in row for token, p in (enumerate(EMITTED[at], A) if at < 4 else [(EOS, 1.0)])] for row in EDGES
] + [[]]


def test_the_language_model_decides_with_its_weight(ngram):
    graph = packed([[(0.6, 1, B), (0.4, 1, A)], [(1.0, 2, EOS)], []])
    options = DagBeamOptions(length_penalty=0.0)
    model = {token: reference.ngram_log_prob(ngram, (token,), EOS) for token in (A, B)}
    even = math.log(0.6 / 0.4) / (model[A] - model[B])  # the weight where both are equal
    assert even > 0
    for weight, token in ((0.9 * even, B), (1.1 * even, A)):
        best = dag_beam_search(*graph, options=replace(options, ngram_weight=weight), ngram=ngram)[0][0]
        assert best.ids == [token]
        assert best.score == pytest.approx(math.log({A: 0.4, B: 0.6}[token]) + weight * model[token], abs=1e-5)
    assert dag_beam_search(*graph, options=replace(options, ngram_weight=1.1 * even))[0][0].ids == [B]


def test_candidates_end_where_they_hold_enough_probability():
    graph = packed([[(0.6, 1, A), (0.3, 1, B), (0.1, 1, C)], [(1.0, 2, EOS)], []])
    for top_p, expected in ((0.5, [[A]]), (0.7, [[A], [B]]), (0.95, [[A], [B], [C]])):
        assert [one.ids for one in dag_beam_search(*graph, options=DagBeamOptions(top_p=top_p, n_best=9))[0]] == expected
    # A candidate that is banned holds nothing.
    graph = packed([[(1.0, 1, A)], [(0.6, 2, A), (0.3, 2, B), (0.1, 2, C)], [(1.0, 3, EOS)], []])
    found = dag_beam_search(*graph, options=DagBeamOptions(top_p=0.35, n_best=9, no_consecutive_repeat=1))[0]
    assert [one.ids for one in found] == [[A, B], [A, C]]


def chain(tokens):
    """A graph whose one path emits these tokens."""
    return packed([*[[(0.5, vertex + 1, token)] for vertex, token in enumerate(tokens)], [(1.0, len(tokens) + 1, EOS)], []])


@pytest.mark.parametrize("rule", [{"no_consecutive_repeat": 2}, {"no_repeat_ngram": 2}, {"no_repeat_ngram": 1}])
def test_where_every_candidate_is_banned_the_best_of_them_is_taken(rule):
    found = dag_beam_search(*chain([A, B, A, B]), options=DagBeamOptions(beam_size=1, **rule))[0]
    assert found[0].ids == [A, B, A, B]
    assert found[0].found


@pytest.mark.parametrize(
    ("rule", "before", "refused"),
    [
        ({"no_consecutive_repeat": 1}, [A, B], {B}),
        ({"no_consecutive_repeat": 2}, [A, B, A], {A, B}),
        ({"no_consecutive_repeat": 3}, [A, B, C, A, B], {B, C}),
        ({"no_repeat_ngram": 1}, [A, B], {A, B}),
        ({"no_repeat_ngram": 2}, [A, B, A], {B}),
        ({"no_repeat_ngram": 3}, [A, B, A, B], {A}),
        ({"no_repeat_ngram": 2}, [A, A], {A}),
    ],
)
def test_what_is_banned(rule, before, refused):
    last = len(before)
    rows = [*[[(0.5, vertex + 1, token)] for vertex, token in enumerate(before)]]
    graph = packed([*rows, [(0.3, last + 1, token) for token in (A, B, C)], [(1.0, last + 2, EOS)], []])
    found = dag_beam_search(*graph, options=replace(UNPRUNED, **rule))[0]
    assert {one.ids[-1] for one in found} == {A, B, C} - refused


def test_repeats_are_collapsed_in_finished_outputs_alone():
    graph = packed([[(0.5, 1, A), (0.4, 2, A), (0.1, 1, B)], [(0.6, 2, A), (0.4, 2, B)], [(1.0, 3, EOS)], []])
    options = replace(UNPRUNED, length_penalty=0.0)
    whole = dag_beam_search(*graph, options=options)[0]
    collapsed = dag_beam_search(*graph, options=replace(options, deduplicate=True))[0]
    expected = {}
    for one in whole:
        expected.setdefault(reference.collapsed(tuple(one.ids)), one.score)  # best first
    assert as_scores(collapsed) == expected
    assert [A, A] in [one.ids for one in whole]
    assert len(collapsed) == len(expected) == 4
    two = dag_beam_search(*graph, options=replace(options, deduplicate=True, n_best=2))[0]
    assert two == collapsed[:2]


def test_candidates_may_come_in_any_order():
    scores, next_vertices, token_ids, lengths = drawn(3, 2, 12, 6, "")
    order = np.random.default_rng(1).permuted(np.broadcast_to(np.arange(6), scores.shape), axis=2)
    shuffled = (np.ascontiguousarray(np.take_along_axis(part, order, 2)) for part in (scores, next_vertices, token_ids))
    options = DagBeamOptions(beam_size=5, beams_per_length=2, n_best=5)
    assert dag_beam_search(*shuffled, lengths, options=options) == dag_beam_search(
        scores, next_vertices, token_ids, lengths, options=options
    )


def test_neither_threads_nor_company_change_a_result(ngram):
    draw = np.random.default_rng(5)
    shape, lengths = (12, 40, 5), np.arange(29, 41)
    scores = np.log(draw.dirichlet([0.5] * 5, shape[:2])).astype(np.float32)
    next_vertices = np.minimum(np.arange(40)[:, None] + draw.integers(1, 6, shape), lengths[:, None, None] - 1)
    batch = scores, next_vertices, draw.choice([A, B, C], shape), lengths
    options = DagBeamOptions(beam_size=20, beams_per_length=4, n_best=3, ngram_weight=0.3)
    alone = [dag_beam_search(*(part[i : i + 1] for part in batch), options=options, ngram=ngram)[0] for i in range(12)]
    assert all(one[0].found for one in alone)
    for threads in (1, 2, 5, 30):
        for _ in range(3):
            assert dag_beam_search(*batch, options=replace(options, threads=threads), ngram=ngram) == alone
    backwards = [np.ascontiguousarray(part[::-1]) for part in batch]
    assert dag_beam_search(*backwards, options=options, ngram=ngram) == alone[::-1]
    wider = [np.concatenate([part, np.full((12, 7, 5), 99, part.dtype)], axis=1) for part in batch[:3]]
    assert dag_beam_search(*wider, batch[3], options=options, ngram=ngram) == alone


def test_a_large_graph_whose_dead_prefixes_are_forgotten():
    """A graph with 100,000 prefixes, few of which can still be reached."""
    draw = np.random.default_rng(7)
    vertices, width = 52, 16
    scores = np.log(draw.dirichlet([0.5] * width, (1, vertices)).clip(1e-30)).astype(np.float32)
    next_vertices = np.minimum(np.arange(vertices)[None, :, None] + draw.integers(1, 6, scores.shape), vertices - 1)
    token_ids = draw.integers(A, 40, scores.shape)
    batch = scores, next_vertices, token_ids, np.array([vertices])
    options = DagBeamOptions(beam_size=200, beams_per_length=60, top_p=1.0, n_best=300)
    search = reference.beam_search(graphs_of(batch)[0], options)
    assert sum(map(len, search.ranks)) > 100_000
    best = dict(sorted(search.outputs.items(), key=lambda one: -one[1])[:300])
    assert_alike(dag_beam_search(*batch, options=options)[0], best)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf, -1e9, np.finfo(np.float32).min])
def test_graphs_without_a_path_have_no_output(bad):
    graph = packed(FIVE)
    broken = [(np.full_like(graph[0], bad), *graph[1:])]
    broken.append((graph[0], np.zeros_like(graph[1]), *graph[2:]))  # back to the first vertex
    broken.append((graph[0], np.full_like(graph[1], 5), *graph[2:]))  # beyond the graph
    broken += [(*graph[:3], np.array([length])) for length in (0, 1)]
    for one in broken:
        found = dag_beam_search(*one)
        assert found == [[([], -math.inf)]]
        assert not found[0][0].found
    assert dag_beam_search(*(part[:0] for part in graph)) == []


def test_one_bad_sentence_leaves_the_others_alone():
    good, bad = packed(FIVE), packed(FIVE)
    bad[0][:] = np.nan
    both = dag_beam_search(*(np.concatenate(parts) for parts in zip(bad, good, strict=True)))
    assert both == [[([], -math.inf)], *dag_beam_search(*good)]


def test_tensors_are_taken_as_arrays():
    graph = packed(FIVE)
    tensors = [torch.from_numpy(part) for part in graph]
    assert dag_beam_search(*tensors) == dag_beam_search(*graph)
    with pytest.raises(TypeError, match=r"scores: expected an array or a detached tensor on the CPU of float32 \[B,L,C\]"):
        dag_beam_search(tensors[0].requires_grad_(), *tensors[1:])


def test_arrays_and_options_are_checked(ngram):
    scores, next_vertices, token_ids, lengths = packed(FIVE)
    with pytest.raises(TypeError, match=r"scores: expected float32 \[B,L,C\], got float64"):
        dag_beam_search(scores.astype(float), next_vertices, token_ids, lengths)
    with pytest.raises(TypeError, match=r"graph_lengths: expected int64 \[B\], got int32"):
        dag_beam_search(scores, next_vertices, token_ids, lengths.astype(np.int32))
    with pytest.raises(ValueError, match=r"token_ids: expected \[B,L,C\], got the shape \(5, 10\)"):
        dag_beam_search(scores, next_vertices, token_ids[0], lengths)
    with pytest.raises(ValueError, match="next_vertices: expected the shape of scores"):
        dag_beam_search(scores, next_vertices[:, :4], token_ids, lengths)
    with pytest.raises(ValueError, match="graph_lengths: expected one for each of 1 sentences, got 2"):
        dag_beam_search(scores, next_vertices, token_ids, np.array([5, 5]))
    for length in (-1, 6):
        with pytest.raises(ValueError, match=f"graph_lengths: expected 0 to 5 vertices, got {length}"):
            dag_beam_search(scores, next_vertices, token_ids, np.array([length]))
    wrong = {
        "beam_size": 0,
        "beams_per_length": 0,
        "candidates": 0,
        "n_best": 0,
        "threads": 0,
        "top_p": 0.0,
        "length_penalty": -1.0,
    }
    wrong |= {"ngram_weight": math.nan, "no_repeat_ngram": -1, "no_consecutive_repeat": -1, "length_convention": "words"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}: expected"):
            dag_beam_search(scores, next_vertices, token_ids, lengths, options=replace(DagBeamOptions(), **{name: value}))
    with pytest.raises(ValueError, match="token_ids: expected ids below 6, got 9 at vertex 0"):
        dag_beam_search(scores, next_vertices, np.full_like(token_ids, 9), lengths, ngram=ngram)
