import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.common.layers import logits
from models.common.losses.token_scores import token_scores


def formula(states, weight, targets, lengths, smoothing):
    """Compute the scores from all logits."""
    log_probs = (states @ weight.t()).log_softmax(2)
    chosen = torch.stack([log_probs[b][:, row].t() for b, row in enumerate(targets)])
    smoothed = (1 - smoothing) * chosen + smoothing * log_probs.mean(2)[:, None]
    inside = torch.arange(states.size(1)) < lengths[:, None]
    return smoothed.where(inside[:, None], 0.0)


def inputs(batch=3, vertices=7, tokens=5, vocabulary=11, width=4, *, seed=0, dtype=torch.float32):
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
    states, weight, targets, lengths = inputs(batch, vertices, tokens, vocabulary, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logits, "CPU_LOGITS", held)
        found = token_scores(states, weight, targets, lengths, smoothing=smoothing).log_probs
        got = gradients(found, states, weight)
        both = token_scores(states, weight, targets, lengths, smoothing=smoothing, with_best=True)
    expected = formula(states, weight, targets, lengths, smoothing)
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
    states, weight, targets, lengths = inputs()
    bias = torch.randn(11, generator=torch.Generator().manual_seed(5))
    found = token_scores(states, weight, targets, lengths, bias=bias, smoothing=smoothing).log_probs
    ones = torch.ones(*states.shape[:2], 1)
    expected = formula(torch.cat((states, ones), 2), torch.cat((weight, bias[:, None]), 1), targets, lengths, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients(found, states, weight), gradients(expected, states, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_without_lengths_every_vertex_counts():
    states, weight, targets, _ = inputs()
    whole = torch.full((3,), 7)
    assert torch.equal(token_scores(states, weight, targets).log_probs, token_scores(states, weight, targets, whole).log_probs)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_bfloat16_products_keep_float32_sums(scale):
    states, weight, targets, lengths = inputs(4, 30, 9, 50, 16)
    with torch.no_grad():
        states *= scale
    with torch.autocast("cpu", torch.bfloat16):
        found = token_scores(states, weight, targets, lengths).log_probs
    exact = formula(states, weight, targets, lengths, 0.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.1 * scale)
    if scale == 1.0:
        rounded = formula(states.bfloat16(), weight.bfloat16(), targets, lengths, 0.0)
        assert (found - exact).norm() < (rounded.float() - exact).norm()
    for one, other in zip(gradients(found, states, weight), gradients(exact, states, weight), strict=True):
        assert one.dtype == torch.float32
        assert one.isfinite().all()
        if scale == 1.0:
            assert (one - other).norm() < 0.03 * other.norm()


def test_extreme_logits_stay_finite():
    states = torch.tensor([[[1e4], [-1e4]]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    found = token_scores(states, weight, torch.tensor([[1, 0, 0]])).log_probs
    torch.testing.assert_close(found, torch.tensor([[[-2e4, 0.0], [0.0, -2e4], [0.0, -2e4]]]))
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), (states, weight)))


def test_no_more_than_a_part_of_the_logits_is_held(monkeypatch):
    monkeypatch.setattr(logits, "CPU_LOGITS", 200)
    states, weight, targets, lengths = inputs(4, 30, 5, 100, 3)
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                sizes.append(result.numel())
            return result

    with Watch():
        token_scores(states, weight, targets, lengths).log_probs.sum().backward()
    assert max(sizes) <= 4 * 30 * 5 < 4 * 30 * 100
