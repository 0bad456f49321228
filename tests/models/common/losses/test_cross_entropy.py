import pytest
import torch

from models.common.layers import logits
from models.common.losses import cross_entropy as module
from models.common.losses.cross_entropy import cross_entropy, token_log_probs


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
