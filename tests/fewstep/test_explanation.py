"""Explanations against the enumeration of all paths."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.explanation import of_graph, of_lattice
from tests.kernels.dag_graphs import banded

SEEDS = st.integers(0, 2**32 - 1)


def graph(seed, size=5, width=2, tokens=4):
    draw = np.random.default_rng(seed)
    weights = np.triu(draw.gamma(0.5, size=(size, size)) + 1e-6, 1)
    weights[-1, -1] = 1.0
    transitions = np.full((size, size), -np.inf, np.float32)
    for row in range(size - 1):
        transitions[row, row + 1 :] = np.log(weights[row, row + 1 :] / weights[row].sum())
    emits = np.sort(draw.dirichlet(np.ones(tokens), size), 1)[:, ::-1][:, :width]
    ids = np.stack([draw.permutation(tokens)[:width] for _ in range(size)])
    return transitions, np.log(emits).astype(np.float32), ids


def all_paths(transitions):
    """All vertex sequences from the first to the last vertex, with their log-probabilities."""
    last = len(transitions) - 1
    for chosen in product((False, True), repeat=last - 1):
        path = [0, *(vertex for vertex, taken in enumerate(chosen, 1) if taken), last]
        yield path, sum(transitions[i, j] for i, j in pairwise(path))


@given(SEEDS)
def test_a_graph_has_the_probabilities_of_all_its_paths(seed):
    transitions, log_probs, ids = graph(seed)
    found = of_graph(banded(torch.from_numpy(transitions)).numpy(), log_probs, ids, [], str)
    passing = np.zeros(len(transitions))
    for path, score in all_paths(transitions):
        passing[path] += np.exp(score)
    assert [vertex.probability for vertex in found.vertices] == pytest.approx([p for p in passing if p >= 0.02], abs=1e-5)
    for edge in found.edges:
        assert found.vertices[edge.source].layer < found.vertices[edge.target].layer
    for vertex in found.vertices:
        assert [p for _, p in vertex.tokens] == sorted((p for _, p in vertex.tokens), reverse=True)


@given(SEEDS, st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_an_output_lies_on_the_most_probable_path_that_emits_it(seed, output):
    transitions, log_probs, ids = graph(seed)

    def emission(vertex, token):
        return next((log_probs[vertex, rank] for rank in range(2) if ids[vertex, rank] == token), -np.inf)

    scored = [
        (score + sum(emission(vertex, token) for vertex, token in zip(path[1:-1], output, strict=True)), path)
        for path, score in all_paths(transitions)
        if len(path) == len(output) + 2
    ]
    best, path = max(scored)
    found = of_graph(banded(torch.from_numpy(transitions)).numpy(), log_probs, ids, output, str)
    on_path = [index for index, vertex in enumerate(found.vertices) if vertex.on_path]
    edges = [(edge.source, edge.target) for edge in found.edges if edge.on_path]
    if not np.isfinite(best):
        assert not on_path
        assert not edges
        return
    assert len(on_path) == len(path)
    assert edges == list(pairwise(on_path))
    emitted = sum(emission(vertex, token) for vertex, token in zip(path[1:-1], output, strict=True))
    taken = sum(np.log(edge.probability) for edge in found.edges if edge.on_path)
    assert taken + emitted == pytest.approx(best, abs=1e-4)


@given(SEEDS, st.integers(1, 4), st.integers(1, 3))
def test_a_lattice_has_the_shares_of_all_its_paths(seed, slots, min_length):
    min_length = min(min_length, slots)
    draw = np.random.default_rng(seed)
    count = 3
    start, exits = draw.normal(size=count), draw.normal(size=(slots, count))
    edges = draw.normal(size=(slots - 1, count, count))
    ids = np.stack([draw.permutation(9)[:count] for _ in range(slots)])
    start[draw.random(count) < 0.2] = -np.inf
    weights = {}
    for length in range(min_length, slots + 1):
        for path in product(range(count), repeat=length):
            score = start[path[0]] + sum(edges[p, i, j] for p, (i, j) in enumerate(pairwise(path)))
            weights[path] = np.exp(score + exits[length - 1, path[-1]])
    total = sum(weights.values())
    if not total:
        return
    best = max(weights, key=weights.get)
    output = [int(ids[slot, k]) for slot, k in enumerate(best)]
    found = of_lattice(start, edges, exits, ids, min_length, output, str)
    share = {
        (slot, str(ids[slot, k])): sum(w for path, w in weights.items() if len(path) > slot and path[slot] == k) / total
        for slot in range(slots)
        for k in range(count)
    }
    seen = {(vertex.layer, vertex.tokens[0][0]): vertex for vertex in found.vertices}
    for cell, probability in share.items():
        assert (cell in seen) == (probability >= 0.02 or cell in [(slot, str(token)) for slot, token in enumerate(output)])
        if cell in seen:
            assert seen[cell].probability == pytest.approx(probability, abs=1e-6)
    assert [vertex.tokens[0][0] for vertex in found.vertices if vertex.on_path] == [str(token) for token in output]
    assert sum(edge.on_path for edge in found.edges) == len(output) - 1
    for edge in found.edges:
        one, other = found.vertices[edge.source], found.vertices[edge.target]
        both = sum(
            w
            for path, w in weights.items()
            if len(path) > other.layer
            and str(ids[one.layer, path[one.layer]]) == one.tokens[0][0]
            and str(ids[other.layer, path[other.layer]]) == other.tokens[0][0]
        )
        assert edge.probability == pytest.approx(both / total / one.probability, abs=1e-6)
