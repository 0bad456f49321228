"""Transitions between all vertices and in a band, and sizes of graphs."""

import dataclasses
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import decoding_factor, vertex_counts
from fewstep.vocabulary import BOS, EOS
from kernels import dense_transitions
from models.dag import band as of_bands
from models.dag import transitions as module
from models.dag.band import Edges
from models.dag.decode import DagDecoder
from models.dag.fuzzy_alignment import fuzzy_alignment
from models.dag.loss import loss
from models.dag.model import fits, graph_lengths
from models.dag.search import GraphTensors, greedy, search_on_host
from models.dag.segments import segments_of
from models.dag.transitions import transition_log_probs
from models.training.batch import collate
from tests.kernels.dag_graphs import banded as band_of
from tests.models.common.tensor_sizes import TensorSizes
from tests.models.dag.test_decode import random_graph, tokens_on
from tests.models.dag.test_native import SEARCHES, compare, frozen, network, outputs, sources
from tests.shared import rest_exhaustive


def inputs(batch=3, size=7, heads=2, width=3, *, seed=0, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randn(batch, size, heads, width, generator=generator, dtype=dtype) * scale for _ in range(2))
    gates = torch.randn(batch, size, heads, generator=generator, dtype=dtype).log_softmax(2)
    lengths = torch.randint(0, size + 1, (batch,), generator=generator)
    lengths[0] = size
    return [x.requires_grad_() for x in (queries, keys, gates)], lengths


def gradients(found, tensors):
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(found.dtype)
    kept = found > -torch.inf
    return torch.autograd.grad((found.where(kept, 0.0) * weights).sum(), tensors)


def test_dead_rows_and_masked_cells_carry_no_nan_though_they_are_given_gradient():
    tensors, lengths = inputs(3, 6, dtype=torch.float32)
    lengths = torch.tensor([6, 1, 0])
    found = transition_log_probs(*tensors, lengths)
    assert not found.isnan().any()
    for gradient in torch.autograd.grad(found, tensors, torch.ones_like(found)):
        assert gradient.isfinite().all()
        assert gradient[1:].count_nonzero() == 0
        assert gradient[0, :4].count_nonzero() > 0


def test_sharp_scores_stay_finite_and_exact():
    """Log-probabilities are right for probabilities far below the smallest float32."""
    tensors, lengths = inputs(2, 9, 2, 4, dtype=torch.float32, scale=15.0)
    lengths = torch.tensor([9, 8])
    found = transition_log_probs(*tensors, lengths)
    double = [x.detach().double().requires_grad_() for x in tensors]
    exact = transition_log_probs(*double, lengths)
    assert exact[exact > -torch.inf].min() < -200
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-3)
    for one, other in zip(gradients(found, tensors), gradients(exact, double), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one.double(), other, rtol=2e-3, atol=2e-3)


def test_float32_whatever_autocast_says():
    tensors, lengths = inputs(dtype=torch.float32)
    plain = transition_log_probs(*tensors, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        cast = transition_log_probs(*tensors, lengths)
        reduced = transition_log_probs(*(x.bfloat16() for x in tensors), lengths)
    assert cast.dtype == reduced.dtype == torch.float32
    assert torch.equal(cast, plain)
    (gradient,) = torch.autograd.grad(gradients_of_sum(reduced), tensors[0])
    assert gradient.dtype == torch.float32


def gradients_of_sum(found):
    return found.where(found > -torch.inf, 0.0).sum()


def test_no_more_than_a_part_of_the_scores_is_held(monkeypatch):
    """The largest tensor that either pass makes has the heads of one sentence."""
    monkeypatch.setattr(module, "CPU_SCORES", 1)
    (queries, keys, gates), lengths = inputs(8, 12, 4, dtype=torch.float32)
    with TensorSizes() as made:
        transition_log_probs(queries, keys, gates, lengths).sum().backward()
    assert max(made.sizes) <= max(8 * 12 * 11, 4 * 12 * 12, queries.numel())


# ---- graphs whose transitions lead to the next vertices only


def by_masking(queries, keys, log_gates, lengths, band):
    """Return transitions from scores of all pairs of vertices, masked before each softmax."""
    size = queries.size(1)
    scores = torch.einsum("bihd,bjhd->bhij", queries, keys) / queries.size(3) ** 0.5
    place = torch.arange(size)
    allowed = (place > place[:, None]) & (place <= place[:, None] + band) & (place < lengths[:, None, None])
    heads = scores.masked_fill(~allowed[:, None], -1e30).log_softmax(3) + log_gates.transpose(1, 2)[..., None]
    return heads.logsumexp(1).masked_fill(~allowed, -torch.inf)


@given(
    size=st.integers(1, 9),
    band=st.integers(1, 9),
    rows=st.integers(1, 5),
    held=st.sampled_from([1, 200, 10**6]),
    seed=st.integers(0, 2**32),
)
def test_transitions_are_those_of_masked_scores_whatever_the_parts(size, band, rows, held, seed):
    tensors, lengths = inputs(3, size, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CPU_SCORES", held)
        patch.setattr(module, "BAND_ROWS", rows)
        found = dense_transitions(transition_log_probs(*tensors, lengths, band))
        got = gradients(found, tensors)
        if band >= size - 1:
            assert torch.equal(found, dense_transitions(transition_log_probs(*tensors, lengths)))
    expected = by_masking(*tensors, lengths, band)
    torch.testing.assert_close(found, expected)
    if size > 1:
        for one, other in zip(got, gradients(expected, tensors), strict=True):
            torch.testing.assert_close(one, other)
    for b, end in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[b, : max(0, end - 1)].exp().sum(1), torch.ones(max(0, end - 1), dtype=torch.float64))
        assert (found[b, max(0, end - 1) :] == -torch.inf).all()


def test_a_known_graph_has_its_passing_probabilities():
    rows = torch.tensor([[0.6, 0.1, 0.05, 0.25], [0, 0.45, 0.2, 0.35], [0, 0, 0.25, 0.75], [0, 0, 0, 1.0]], dtype=torch.float64)
    full = torch.zeros(1, 5, 5, dtype=torch.float64)
    full[0, :4, 1:] = rows
    place = torch.arange(5)
    banded = full.masked_fill(place > place[:, None] + 2, 0.0)
    banded[:, :4] /= banded[:, :4].sum(2, keepdim=True)
    assert Edges.of(band_of(banded, 2, 0.0)).passing()[0].tolist() == pytest.approx([1, 0.857143, 0.736264, 0.447802, 1], abs=1e-6)


def three_pairs():
    return collate([0, 1, 2], [[8, 9, 10], [7], [12, 13]], [[7, 11], [12], [9, 9]])


@pytest.mark.parametrize("objective", ["sum", "max", "ngram"])
def test_a_wide_band_is_no_band_in_training(objective):
    results = []
    for band in (None, 60):
        model = network(max_transition_length=band, objective=objective).train()
        torch.manual_seed(5)
        result = loss(model, three_pairs(), 1, 0.0)
        result.total.backward()
        results.append((result.total.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (one, gradients_of_one), (other, gradients_of_other) = results
    assert torch.equal(one, other)
    assert all(map(torch.equal, gradients_of_one, gradients_of_other))


def test_a_narrow_band_changes_the_loss_and_trains():
    model = network(max_transition_length=5).train()
    torch.manual_seed(5)
    result = loss(model, three_pairs(), 1, 0.0)
    result.total.backward()
    torch.manual_seed(5)
    assert result.total != loss(network().train(), three_pairs(), 1, 0.0).total
    assert int(result.statistics["impossible"]) == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.label)
@pytest.mark.parametrize("band", [1, 5])
def test_native_code_decodes_as_torch(search, band):
    model, rows = network(max_transition_length=band), sources(8)
    compare(outputs(DagDecoder(model), rows, search), outputs(frozen(model), rows, search))


def test_native_graphs_are_banded_and_equal_in_any_batch():
    model, rows, search = network(max_transition_length=5), sources(8), DagSearch(strategy="beam", candidates=4)
    decoder = frozen(model)
    found = decoder.graph(decoder.prepare(rows), search)
    expected = DagDecoder(model).graph(decoder.prepare(rows), search)
    torch.testing.assert_close(found.transitions, expected.transitions, rtol=1e-4, atol=1e-4)
    assert found.transitions.size(2) == 5
    assert (found.transitions[:, :, 4] > -torch.inf).any()
    together = outputs(decoder, rows, search)
    assert [outputs(decoder, [row], search)[0] for row in rows] == together
    wide = frozen(network(max_transition_length=60))
    assert outputs(wide, rows, search) == outputs(frozen(network()), rows, search)


@given(
    size=st.integers(2, 12), band=st.integers(1, 11), rows=st.integers(1, 4), order=st.integers(1, 3), seed=st.integers(0, 2**32)
)
def test_fuzzy_alignment_is_that_without_the_other_transitions(size, band, rows, order, seed):
    generator = torch.Generator().manual_seed(seed)
    links = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    place = torch.arange(size)
    links = links.masked_fill((place <= place[:, None]) | (place > place[:, None] + band), -torch.inf).log_softmax(2)
    match = torch.randn(2, 4, size, generator=generator, dtype=torch.float64).log_softmax(1).requires_grad_()
    sizes = torch.tensor([[7, 8, 8, 9], [7, 8, 8, 8]]), torch.tensor([4, 3]), torch.tensor([size, max(2, size - 1)])
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_bands, "MIN_ROWS", rows)
        for width in (None, band):
            cells = band_of(links, width, torch.nan).requires_grad_()
            found = fuzzy_alignment(match, cells, *sizes, order=order)
            results.append((found, *torch.autograd.grad(found.scores.sum(), (match, cells))))
    (whole, of_match, of_links), (narrow, *gradients) = results
    for one, other in zip(narrow, whole, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(gradients[0], of_match)
    torch.testing.assert_close(gradients[1], of_links[..., : gradients[1].size(2)])


ALL_SEARCHES = [*SEARCHES, DagSearch(strategy="beam", candidates=30, beam_size=20, n_best=2)]


@pytest.mark.parametrize("search", ALL_SEARCHES, ids=lambda search: search.label)
@pytest.mark.parametrize("band", [1, 2, 4])
def test_searches_find_what_they_find_without_the_other_transitions(search, band):
    lengths = [9, 2, 6]
    dense = dense_transitions(random_graph(lengths, seed=2).transitions)
    place = torch.arange(9)
    links = dense.masked_fill(place > place[:, None] + band, -torch.inf)
    tokens = random_graph(lengths, words=5, seed=3).tokens
    whole, narrow = (GraphTensors(band_of(links, width), tokens, torch.tensor(lengths)) for width in (None, band))
    rows = [[7], [8], [9]]
    if search.strategy == "greedy":
        one, other = (
            greedy(graph.transitions, graph.lengths, lambda path: tokens_on(tokens, path)).hypotheses() for graph in (whole, narrow)
        )
    else:
        one, other = (search_on_host(graph, search, rows) for graph in (whole, narrow))
    assert one == other
    assert any(hypothesis.ids for ranked in one for hypothesis in ranked)


STEP = """
import sys
from pathlib import Path

import torch

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from models.dag.loss import loss
from models.dag.search import GraphTensors, greedy, search_on_host
from models.dag.model import DagModel
from models.training.batch import collate


def resident(what):
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def step(vertices, tokens):
    sizes = dict(width=8, feed_forward=8, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0)
    graph = dict(graph_size="fixed", graph_factor=vertices - 2, max_vertices=vertices, max_transition_length=32)
    model = DagModel(DagConfig(**sizes, **graph, objective=sys.argv[1], max_positions=16), Sizes(12, 12, True)).train()
    result = loss(model, collate([0], [[8, 9]], [[10] * (tokens - 2)]), 1, 0.0)
    result.total.backward()
    assert int(result.statistics["impossible"]) == 0
    assert model.links.keys.weight.grad.isfinite().all()
    assert model.links.keys.weight.grad.any()


torch.manual_seed(0)
step(64, 9)
Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
before = resident("VmRSS")
step(16384, 530)
print(resident("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("objective", rest_exhaustive(["sum", "max", "ngram"], ["sum"]))
def test_a_step_of_a_long_graph_takes_memory_linear_in_its_vertices(objective):
    """Native memory included. A single float32 matrix over pairs of vertices would have 1 GiB; token scores have 33 MiB."""
    done = subprocess.run([sys.executable, "-c", STEP, objective], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 700


def test_pairs_out_of_reach_are_left_out():
    config = dataclasses.replace(DagConfig(), graph_factor=4.0, max_transition_length=8)
    assert fits(config, 4, 2)  # 24 vertices, and 3 steps reach 25
    assert not fits(config, 5, 2)  # 28 vertices
    assert fits(dataclasses.replace(config, max_transition_length=None), 5, 2)


# ---- sizes of graphs, and the pairs that fit them


def size(config, source, target, factor):
    return graph_lengths(config, torch.tensor([source + 1]), torch.tensor([target + 2]), factor).item()


@pytest.mark.parametrize(
    ("options", "source", "target", "factor", "expected"),
    [
        ({}, 5, 3, 4.0, 28),  # int(f (n + 2))
        ({"conventions": "v2"}, 5, 3, 4.0, 24),  # int(f (n + 1))
        ({}, 5, 3, 1.9, 13),
        ({"graph_size": "predicted"}, 5, 3, 4.0, 14),  # int(f m) + 2
        ({"graph_size": "fixed"}, 5, 3, 30.5, 32),
        ({}, 0, 0, 0.5, 2),
    ],
)
def test_sizes_follow_their_rule(options, source, target, factor, expected):
    assert size(DagConfig(**options), source, target, factor) == expected


def test_a_factor_for_each_sentence():
    config = DagConfig()
    lengths = graph_lengths(config, torch.tensor([6, 6]), torch.tensor([5, 5]), torch.tensor([4.0, 8.0]))
    assert lengths.tolist() == [28, 56]


def test_decoding_takes_the_middle_of_a_range():
    assert decoding_factor(DagConfig(graph_factor_range=(4.0, 8.0))) == 6.0
    assert decoding_factor(DagConfig(graph_factor=5.0)) == 5.0
    assert decoding_factor(DagConfig(graph_factor_range=(4.0, 8.0)), DagSearch(graph_factor=4.5)) == 4.5


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
@pytest.mark.parametrize("factor", [0.1, 1.9, 4.7, 8.3, 30.5])
def test_both_sides_of_the_project_round_alike(graph_size, factor):
    config = DagConfig(graph_size=graph_size, max_vertices=300)
    counts = vertex_counts(config, factor)
    lengths = torch.arange(len(counts))
    expected = graph_lengths(config, lengths, lengths.clamp(min=2), factor).clamp(max=300)
    assert counts.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("options", "source", "target", "expected"),
    [
        ({"graph_factor": 2.0}, 3, 8, True),  # 10 vertices for BOS, 8 tokens, EOS
        ({"graph_factor": 2.0}, 3, 9, False),
        ({"graph_factor": 2.0, "graph_factor_range": (1.5, 4.0)}, 3, 6, False),  # the smallest graph counts
        ({"graph_factor": 2.0, "graph_factor_range": (1.5, 4.0)}, 3, 5, True),
        ({"graph_factor": 8.0, "max_vertices": 40}, 3, 1, True),
        ({"graph_factor": 8.0, "max_vertices": 39}, 3, 1, False),
        ({"max_positions": 8}, 7, 1, True),
        ({"max_positions": 8}, 8, 1, False),
        ({"max_positions": 8, "source_bos": True}, 6, 1, True),
        ({"max_positions": 8, "source_bos": True}, 7, 1, False),
        ({}, 0, 0, True),
    ],
)
def test_pairs_that_no_graph_holds_are_left_out(options, source, target, expected):
    assert fits(DagConfig(**options), source, target) is expected


@pytest.mark.parametrize("graph_size", ["source", "predicted", "fixed"])
@pytest.mark.parametrize(
    ("options", "target", "expected"),
    [
        ({"graph_factor_range": (4.0, 8.0)}, 127, True),  # 127 tokens of spans and separators, at most 8 x 127 + 2 vertices
        ({"graph_factor_range": (4.0, 8.0)}, 128, False),
        ({"graph_factor": 1.0}, 100, True),
        ({"graph_factor": 0.9}, 100, False),  # a span has fewer vertices than tokens
        ({"graph_factor": 8.0, "max_transition_length": 8}, 100, True),
        ({"graph_factor": 8.0, "max_transition_length": 7}, 100, False),
    ],
)
def test_the_graph_of_segments_is_bounded_by_the_target_alone(graph_size, options, target, expected):
    config = DagConfig(graph_size=graph_size, segments=True, max_positions=1024, **options)
    assert [fits(config, source, target) for source in (0, 140, 600)] == [expected] * 3


@pytest.mark.parametrize("spans", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("factor", [1.0, 2.7, 8.0])
def test_texts_of_segments_that_fit_have_a_path_within_the_largest_graph(spans, factor):
    size = 3 * spans + spans - 1  # spans of 3 tokens, and what separates them
    bound = int(factor * size) + 2
    config = DagConfig(graph_factor=factor, max_vertices=bound, segments=True)
    assert fits(config, 5, size)
    assert not fits(replace(config, max_vertices=bound - 1), 5, size)
    ids = torch.tensor([[BOS, *([7, 8, 9, BOS] * spans)[:-1], EOS]])
    segments = segments_of(config, ids, torch.tensor([size + 2]), training=True)
    gaps = segments.borders[0, segments.separators[0]].diff()
    assert int(segments.graph_lengths) <= bound
    assert all(gap - 1 >= 3 for gap in gaps.tolist())  # a vertex for each token
