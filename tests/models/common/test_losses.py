"""Losses and scores over a vocabulary."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.common.layers import logits
from models.common.losses import cross_entropy as module
from models.common.losses.cross_entropy import cross_entropy, token_log_probs
from models.common.losses.token_scores import token_scores
from tests.models.common.tensor_sizes import TensorSizes

# ---- cross entropy


def formula(states, weight, labels, smoothing, penalty=0.0):
    """Compute the loss token by token and class by class, as written in the docstring."""
    total = states.new_zeros(())
    for state, label in zip(states, labels, strict=True):
        log_probs = torch.log_softmax(weight @ state, 0)
        total = total - (1 - smoothing) * log_probs[label]
        for value in log_probs:
            total = total - smoothing / len(log_probs) * value
        total = total + penalty * torch.logsumexp(weight @ state, 0) ** 2
    return total


def inputs(count=23, vocabulary=11, width=6):
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(count, width, generator=generator, requires_grad=True)
    weight = torch.randn(vocabulary, width, generator=generator, requires_grad=True)
    return states, weight, torch.randint(vocabulary, (count,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("held", [1, 70, 10**6])
def test_value_and_gradients_are_those_of_the_formula_whatever_the_parts(monkeypatch, smoothing, penalty, native, held):
    monkeypatch.setattr(logits, "CPU_LOGITS", held)
    monkeypatch.setattr(module, "is_native", lambda x: native)
    states, weight, labels = inputs()
    result = cross_entropy(states, weight, labels, smoothing, penalty)
    gradients = torch.autograd.grad(3.0 * result.total, (states, weight))
    expected = formula(states, weight, labels, smoothing, penalty)
    torch.testing.assert_close(result.total, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.nll, formula(states, weight, labels, 0.0), rtol=1e-5, atol=1e-5)
    for got, wanted in zip(gradients, torch.autograd.grad(3.0 * expected, (states, weight)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.log_z_squared, (states @ weight.t()).logsumexp(1).square().sum(), rtol=1e-5, atol=1e-5)
    assert result.correct == ((states @ weight.t()).argmax(1) == labels).sum()


def test_statistics_carry_no_gradient_and_nothing_is_kept_without_gradient():
    states, weight, labels = inputs()
    result = cross_entropy(states, weight, labels, 0.1)
    assert result.total.requires_grad
    assert not result.nll.requires_grad
    assert not result.correct.requires_grad
    with torch.no_grad():
        plain = cross_entropy(states, weight, labels, 0.1)
    assert not plain.total.requires_grad
    assert plain.total == result.total


def test_a_weight_that_stays_as_it_is_has_no_gradient_and_takes_none_from_the_states():
    states, weight, labels = inputs()
    (expected,) = torch.autograd.grad(cross_entropy(states, weight, labels, 0.1).total, states)
    frozen = weight.detach()
    cross_entropy(states, frozen, labels, 0.1).total.backward()
    assert states.grad.equal(expected)
    assert frozen.grad is None


def test_bfloat16_products_keep_float32_sums():
    states, weight, labels = inputs(400, 50, 16)
    exact = cross_entropy(states, weight, labels, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = cross_entropy(states, weight, labels, 0.1)
    gradients = torch.autograd.grad(rounded.total, (states, weight))
    assert rounded.total.dtype == torch.float32
    torch.testing.assert_close(rounded.total, exact.total, rtol=5e-3, atol=0)
    for got, wanted in zip(gradients, torch.autograd.grad(exact.total, (states, weight)), strict=True):
        assert got.dtype == torch.float32
        assert (got - wanted).norm() < 0.02 * wanted.norm()


def test_extreme_logits_stay_finite():
    states, weight = torch.tensor([[200.0], [-200.0]], requires_grad=True), torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    result = cross_entropy(states, weight, torch.tensor([1, 1]), 0.1)
    torch.testing.assert_close(result.nll, torch.tensor(400.0))
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.total, (states, weight)))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_bias_shifts_logits_and_minus_infinity_leaves_a_class_out(smoothing):
    states, weight, labels = inputs()
    bias = torch.linspace(-1.0, 1.0, 11)
    bias[[3, 7]] = -torch.inf
    labels = torch.where((labels == 3) | (labels == 7), 0, labels)
    kept = torch.tensor([token for token in range(11) if token not in (3, 7)])
    log_probs = torch.log_softmax(states @ weight[kept].t() + bias[kept], 1)
    places = torch.tensor([kept.tolist().index(label) for label in labels.tolist()])
    expected = -(1 - smoothing) * log_probs[torch.arange(len(labels)), places].sum() - smoothing * log_probs.mean(1).sum()
    result = cross_entropy(states, weight, labels, smoothing, bias=bias)
    torch.testing.assert_close(result.total, expected, rtol=1e-5, atol=1e-5)
    for got, wanted in zip(
        torch.autograd.grad(result.total, (states, weight)), torch.autograd.grad(expected, (states, weight)), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    scores = token_log_probs(states, weight, labels, bias)
    torch.testing.assert_close(scores, log_probs[torch.arange(len(labels)), places], rtol=1e-5, atol=1e-5)


# ---- token scores


def scores_by_formula(states, weight, targets, lengths, smoothing):
    """Compute the scores from all logits."""
    log_probs = (states @ weight.t()).log_softmax(2)
    chosen = torch.stack([log_probs[b][:, row].t() for b, row in enumerate(targets)])
    smoothed = (1 - smoothing) * chosen + smoothing * log_probs.mean(2)[:, None]
    inside = torch.arange(states.size(1)) < lengths[:, None]
    return smoothed.where(inside[:, None], 0.0)


def graphs(batch=3, vertices=7, tokens=5, vocabulary=11, width=4, *, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(batch, vertices, width, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(vocabulary, width, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(vocabulary, (batch, tokens), generator=generator)
    lengths = torch.randint(0, vertices + 1, (batch,), generator=generator)
    return states, weight, targets, lengths


def gradients(found, states, weight):
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).to(found.dtype)
    return torch.autograd.grad(found, (states, weight), upstream)


@given(
    batch=st.integers(1, 4),
    vertices=st.integers(1, 9),
    tokens=st.integers(1, 9),
    vocabulary=st.sampled_from([2, 11, 19]),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    held=st.sampled_from([1, 50, 10**6]),
    seed=st.integers(0, 2**32),
)
def test_scores_are_those_of_the_formula_whatever_the_parts(batch, vertices, tokens, vocabulary, smoothing, held, seed):
    """Targets nearly always repeat tokens."""
    states, weight, targets, lengths = graphs(batch, vertices, tokens, vocabulary, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logits, "CPU_LOGITS", held)
        found = token_scores(states, weight, targets, lengths, smoothing=smoothing).log_probs
        got = gradients(found, states, weight)
        both = token_scores(states, weight, targets, lengths, smoothing=smoothing, with_best=True)
    expected = scores_by_formula(states, weight, targets, lengths, smoothing)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(got, gradients(expected, states, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert torch.equal(both.log_probs, found)
    inside = torch.arange(vertices) < lengths[:, None]
    assert torch.equal(both.best, (states @ weight.t()).argmax(2).where(inside, 0))
    assert not both.best.requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_bias_enters_the_logits(smoothing):
    """The bias equals a column of the weights for a constant input of one."""
    states, weight, targets, lengths = graphs()
    bias = torch.randn(11, generator=torch.Generator().manual_seed(5))
    found = token_scores(states, weight, targets, lengths, bias=bias, smoothing=smoothing).log_probs
    ones = torch.ones(*states.shape[:2], 1)
    expected = scores_by_formula(torch.cat((states, ones), 2), torch.cat((weight, bias[:, None]), 1), targets, lengths, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients(found, states, weight), gradients(expected, states, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_without_lengths_every_vertex_counts():
    states, weight, targets, _ = graphs()
    whole = torch.full((3,), 7)
    assert torch.equal(token_scores(states, weight, targets).log_probs, token_scores(states, weight, targets, whole).log_probs)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_bfloat16_products_of_scores_keep_float32_sums(scale):
    states, weight, targets, lengths = graphs(4, 30, 9, 50, 16)
    with torch.no_grad():
        states *= scale
    with torch.autocast("cpu", torch.bfloat16):
        found = token_scores(states, weight, targets, lengths).log_probs
    exact = scores_by_formula(states, weight, targets, lengths, 0.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.1 * scale)
    if scale == 1.0:
        rounded = scores_by_formula(states.bfloat16(), weight.bfloat16(), targets, lengths, 0.0)
        assert (found - exact).norm() < (rounded.float() - exact).norm()
    for one, other in zip(gradients(found, states, weight), gradients(exact, states, weight), strict=True):
        assert one.dtype == torch.float32
        assert one.isfinite().all()
        if scale == 1.0:
            assert (one - other).norm() < 0.03 * other.norm()


@given(seed=st.integers(0, 2**32), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_as_many_vertices_as_are_negligible_together_are_left_out_of_the_gradient(seed, dtype):
    """Vertices with gradients of all magnitudes: the smallest ones, as many as add up to less than the bound, have none, and the
    others have those of the formula."""
    states, weight, targets, lengths = graphs(2, 12, 3, 11, 8, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    upstream = torch.randn(2, 3, 12, generator=generator) * 10.0 ** -(12 * torch.rand(2, 1, 12, generator=generator))
    real = torch.arange(12) < lengths[:, None]
    with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        found = token_scores(states, weight, targets, lengths).log_probs
    got = torch.autograd.grad(found, (states, weight), upstream)
    sums = upstream.double().abs().sum(1).masked_fill(~real, 0.0)
    bound = torch.finfo(dtype).eps / 16 * sums.sum()
    left_out = (got[0] == 0.0).all(2) & real
    added = sums.flatten().sort().values.cumsum(0)
    smallest = (added < bound).view(-1)[sums.flatten().argsort().argsort()].view_as(sums)
    assert torch.equal(left_out, smallest & real)
    exact = gradients_by_formula(states, weight, targets, lengths, upstream.masked_fill(left_out[:, None], 0.0))
    error = 1e-5 if dtype == torch.float32 else 0.03
    for one, other in zip(got, exact, strict=True):
        assert (one - other).norm() <= error * other.norm()


def gradients_by_formula(states, weight, targets, lengths, upstream):
    return torch.autograd.grad(scores_by_formula(states, weight, targets, lengths, 0.0), (states, weight), upstream)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_is_not_left_out(value):
    states, weight, targets, _ = graphs()
    upstream = torch.ones(3, 5, 7)
    upstream[1, 2, 5] = value
    found = token_scores(states, weight, targets).log_probs
    of_states, of_weight = torch.autograd.grad(found, (states, weight), upstream)
    assert not of_states[1, 5].isfinite().any()
    assert not of_weight.isfinite().all()


def test_without_gradients_of_scores_all_gradients_are_zero():
    states, weight, targets, lengths = graphs()
    found = token_scores(states, weight, targets, lengths).log_probs
    assert not any(gradient.any() for gradient in torch.autograd.grad(found, (states, weight), torch.zeros_like(found)))


def test_scores_of_extreme_logits_stay_finite():
    states = torch.tensor([[[1e4], [-1e4]]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    found = token_scores(states, weight, torch.tensor([[1, 0, 0]])).log_probs
    torch.testing.assert_close(found, torch.tensor([[[-2e4, 0.0], [0.0, -2e4], [0.0, -2e4]]]))
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), (states, weight)))


def test_no_more_than_a_part_of_the_logits_is_held(monkeypatch):
    monkeypatch.setattr(logits, "CPU_LOGITS", 200)
    states, weight, targets, lengths = graphs(4, 30, 5, 100, 3)
    with TensorSizes() as made:
        token_scores(states, weight, targets, lengths).log_probs.sum().backward()
    assert max(made.sizes) <= 4 * 30 * 5 < 4 * 30 * 100
