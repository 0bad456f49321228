"""Graphs whose transitions lead to the next vertices only."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewstep.families.dag.config import DagConfig, DagSearch
from models.dag import transitions as module
from models.dag.decode import DagDecoder
from models.dag.fuzzy_alignment import passing_probabilities
from models.dag.graph_size import fits
from models.dag.loss import loss
from models.dag.transitions import transition_log_probs
from models.training.batch import collate
from tests.models.dag.test_native import SEARCHES, compare, frozen, network, outputs, sources
from tests.models.dag.test_transitions import gradients, inputs


def by_masking(queries, keys, log_gates, lengths, band):
    """Return transitions from scores of all pairs of vertices, masked before each softmax."""
    size = queries.size(1)
    scores = torch.einsum("bihd,bjhd->bhij", queries, keys) / queries.size(3) ** 0.5
    place = torch.arange(size)
    allowed = (place > place[:, None]) & (place <= place[:, None] + band) & (place < lengths[:, None, None])
    heads = scores.masked_fill(~allowed[:, None], -1e30).log_softmax(3) + log_gates.transpose(1, 2)[..., None]
    return heads.logsumexp(1).masked_fill(~allowed, -torch.inf)


@settings(deadline=None, max_examples=30)
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
        found = transition_log_probs(*tensors, lengths, band)
        got = gradients(found, tensors)
    expected = by_masking(*tensors, lengths, band)
    torch.testing.assert_close(found, expected)
    if size > 1:
        for one, other in zip(got, gradients(expected, tensors), strict=True):
            torch.testing.assert_close(one, other)
    if band >= size - 1:
        torch.testing.assert_close(found, transition_log_probs(*tensors, lengths))
    for b, end in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[b, : max(0, end - 1)].exp().sum(1), torch.ones(max(0, end - 1), dtype=torch.float64))


def test_a_known_graph_has_its_passing_probabilities():
    edges = torch.tensor([[0.6, 0.1, 0.05, 0.25], [0, 0.45, 0.2, 0.35], [0, 0, 0.25, 0.75], [0, 0, 0, 1.0]], dtype=torch.float64)
    full = torch.zeros(1, 5, 5, dtype=torch.float64)
    full[0, :4, 1:] = edges
    place = torch.arange(5)
    banded = full.masked_fill(place > place[:, None] + 2, 0.0)
    banded[:, :4] /= banded[:, :4].sum(2, keepdim=True)
    assert passing_probabilities(banded)[0].tolist() == pytest.approx([1, 0.857143, 0.736264, 0.447802, 1], abs=1e-6)


def batch():
    return collate([0, 1, 2], [[8, 9, 10], [7], [12, 13]], [[7, 11], [12], [9, 9]])


@pytest.mark.parametrize("objective", ["sum", "max", "ngram"])
def test_a_wide_band_is_no_band_in_training(objective):
    results = []
    for band in (None, 60):
        model = network(max_transition_length=band, objective=objective).train()
        torch.manual_seed(5)
        result = loss(model, batch(), 1, 0.0)
        result.total.backward()
        results.append((result.total.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (one, gradients_of_one), (other, gradients_of_other) = results
    assert torch.equal(one, other)
    assert all(map(torch.equal, gradients_of_one, gradients_of_other))


def test_a_narrow_band_changes_the_loss_and_trains():
    model = network(max_transition_length=5).train()
    torch.manual_seed(5)
    result = loss(model, batch(), 1, 0.0)
    result.total.backward()
    torch.manual_seed(5)
    assert result.total != loss(network().train(), batch(), 1, 0.0).total
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
    place = torch.arange(found.transitions.size(1))
    assert (found.transitions[:, place > place[:, None] + 5] == -torch.inf).all()
    assert (found.transitions[:, place == place[:, None] + 5] > -torch.inf).any()
    together = outputs(decoder, rows, search)
    assert [outputs(decoder, [row], search)[0] for row in rows] == together
    wide = frozen(network(max_transition_length=60))
    assert outputs(wide, rows, search) == outputs(frozen(network()), rows, search)


def test_pairs_out_of_reach_are_left_out():
    config = dataclasses.replace(DagConfig(), graph_factor=4.0, max_transition_length=8)
    assert fits(config, 4, 2)  # 24 vertices, and 3 steps reach 25
    assert not fits(config, 5, 2)  # 28 vertices
    assert fits(dataclasses.replace(config, max_transition_length=None), 5, 2)
