"""Graphs with known answers and brute force over their paths, for the tests of all implementations."""

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from kernels import dense_transitions


def banded(dense, band=None, beyond=-torch.inf):
    """Return the band [...,L,D] of transitions [...,L,L], with `beyond` after the last vertex; all later vertices if `band` is
    None."""
    size = dense.size(-1)
    band = size - 1 if band is None else min(band, size - 1)
    following = torch.arange(size)[:, None] + 1 + torch.arange(band)
    cells = dense.gather(-1, following.clamp(max=size - 1).expand(*dense.shape[:-1], band))
    return cells.masked_fill(following >= size, beyond)


def dense(cells):
    """Return the values [B,L,L] of a band [B,L,D], 0 elsewhere."""
    return dense_transitions(cells).masked_fill(dense_transitions(torch.zeros_like(cells)) < 0, 0.0)


def of_dense(kernel):
    """Return a kernel that takes dense transitions. Cells of its band after the last vertex are NaN, since nothing reads them."""
    return lambda tokens, transitions, *rest, **options: kernel(tokens, banded(transitions, beyond=torch.nan), *rest, **options)


class Graphs(NamedTuple):
    """The arguments of the DAG kernels, with dense transitions."""

    tokens: Tensor
    transitions: Tensor
    target_lengths: Tensor
    graph_lengths: Tensor

    def to(self, dtype):
        return self._replace(tokens=self.tokens.to(dtype), transitions=self.transitions.to(dtype))


def single(tokens, transitions):
    """One sentence of probabilities: tokens [M][L], and transitions [i] to the vertices after i."""
    size = len(tokens[0])
    table = torch.zeros(1, size, size, dtype=torch.float64)
    for i, row in enumerate(transitions):
        table[0, i, i + 1 : i + 1 + len(row)] = torch.tensor(row, dtype=torch.float64)
    scores = torch.tensor([tokens], dtype=torch.float64)
    return Graphs(scores.log(), table.log(), torch.tensor([len(tokens)]), torch.tensor([size]))


def figure_11(*words):
    """Figure 11 of the paper: <s> at 0, Yes at 1 and 2, </s> at 3."""
    rows = {"<s>": [1.0, 0, 0, 0], "Yes": [0, 0.8, 0.8, 0], "</s>": [0, 0, 0, 1.0]}
    return single([rows[word] for word in ("<s>", *words, "</s>")], [[0.5, 0.5, 0], [0.1, 0.9], [1.0]])


def five_vertices(*words):
    rows = {
        "<s>": [1.0, 0, 0, 0, 0],
        "A": [0.1, 0.5, 0.2, 0.4, 0.1],
        "B": [0.1, 0.1, 0.6, 0.5, 0.1],
        "</s>": [0, 0, 0.1, 0.2, 0.9],
    }
    edges = [[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.25], [0.5, 0.5], [1.0]]
    return single([rows[word] for word in ("<s>", *words, "</s>")], edges)


def steep(slope):
    """One sentence of 24 tokens and 96 vertices whose sums span more powers of ten than float32 has: transitions fall by `slope` a
    vertex, tokens 1 to 11 are improbable after vertex 20, and token 12 can be written at vertex 70 alone."""
    vertex = torch.arange(96)
    gaps = (vertex - vertex[:, None]).double()
    transitions = (-slope * gaps).masked_fill(gaps <= 0, -torch.inf).log_softmax(1).nan_to_num(nan=-torch.inf)
    tokens = torch.zeros(24, 96, dtype=torch.float64)
    tokens[1:12, 21:] = -150.0
    tokens[12] = tokens[12].masked_fill(vertex != 70, -torch.inf)
    return Graphs(tokens[None], transitions[None], torch.tensor([24]), torch.tensor([96]))


STEEP = {3.0: -190.631330, 2.0: -120.751849}
"""The log-likelihoods of these graphs by their slopes."""


@cache
def stirling(n, k):
    """Unsigned Stirling numbers of the first kind."""
    if n == 0 or k == 0:
        return int(n == k)
    return stirling(n - 1, k - 1) + (n - 1) * stirling(n - 1, k)


def uniform(vertices, tokens):
    """Return a graph with every token anywhere at no cost and uniform transitions, and its exact likelihood."""
    edges = [[1.0 / (vertices - 1 - i)] * (vertices - 1 - i) for i in range(vertices - 1)]
    for n in range(vertices):
        stirling(n, tokens - 1)  # bottom up, for the sake of the stack
    exact = Fraction(stirling(vertices - 1, tokens - 1), math.factorial(vertices - 1))
    return single([[1.0] * vertices] * tokens, edges), exact


def paths(tokens, vertices):
    """Yield all paths of a sentence."""
    if tokens == 1:
        return [(0,)] if vertices == 1 else []
    if tokens > vertices or tokens < 1:
        return []
    return [(0, *inner, vertices - 1) for inner in itertools.combinations(range(1, vertices - 1), tokens - 2)]


def path_scores(graphs, sentence):
    """Return the score of each path of a sentence."""
    found = {}
    for path in paths(int(graphs.target_lengths[sentence]), int(graphs.graph_lengths[sentence])):
        emitted = sum(float(graphs.tokens[sentence, t, v]) for t, v in enumerate(path))
        found[path] = emitted + sum(float(graphs.transitions[sentence, i, j]) for i, j in itertools.pairwise(path))
    return found


def log_sum(scores):
    most = max(scores, default=-math.inf)
    return most if math.isinf(most) else most + math.log(sum(math.exp(score - most) for score in scores))


def posteriors(graphs, sentence):
    """Return the posteriors of tokens at vertices and of transitions, by enumerating paths."""
    scores = path_scores(graphs, sentence)
    total = log_sum(scores.values())
    tokens, transitions = torch.zeros_like(graphs.tokens[0]), torch.zeros_like(graphs.transitions[0])
    for path, score in scores.items():
        share = math.exp(score - total) if total > -math.inf else 0.0
        for t, v in enumerate(path):
            tokens[t, v] += share
        for i, j in itertools.pairwise(path):
            transitions[i, j] += share
    return tokens, transitions


def random_graphs(sentences, tokens, vertices, *, spread=2.0, seed=0, dtype=torch.float64):
    """Normalised transitions, any token scores, lengths of all sizes."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(sentences, tokens, vertices, generator=generator, dtype=torch.float64) * spread - 2.0
    edges = torch.randn(sentences, vertices, vertices, generator=generator, dtype=torch.float64) * spread
    later = torch.ones(vertices, vertices).triu(1) > 0
    edges = edges.masked_fill(~later, -torch.inf).log_softmax(2).masked_fill(~later, -torch.inf)
    target_lengths = torch.randint(min(2, tokens), tokens + 1, (sentences,), generator=generator)
    graph_lengths = torch.randint(min(2, vertices), vertices + 1, (sentences,), generator=generator)
    target_lengths[0], graph_lengths[0] = tokens, vertices
    return Graphs(scores.to(dtype), edges.to(dtype), target_lengths, graph_lengths)


@st.composite
def extreme_graphs(draw, values=(0.0, -0.1, -2.0, -60.0, -250.0, -300.0, -700.0, -1e4, -torch.inf), most=9):
    """Up to three sentences of such scores, slightly blurred; lengths of all sizes, impossible ones too."""
    sentences, tokens, vertices = draw(st.integers(1, 3)), draw(st.integers(1, most)), draw(st.integers(1, most))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    usual = draw(st.lists(st.sampled_from(values), min_size=1, max_size=5))

    def scores(*shape):
        blur = torch.rand(shape, generator=generator, dtype=torch.float64)
        return torch.tensor(usual, dtype=torch.float64)[torch.randint(len(usual), shape, generator=generator)] - blur

    def lengths(most):
        return torch.tensor(draw(st.lists(st.integers(0, most), min_size=sentences, max_size=sentences)))

    graphs = Graphs(scores(sentences, tokens, vertices), scores(sentences, vertices, vertices), lengths(tokens), lengths(vertices))
    return graphs.to(torch.float32).to(torch.float64)
