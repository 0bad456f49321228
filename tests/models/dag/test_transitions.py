import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import dense_transitions
from models.dag import transitions as module
from models.dag.transitions import transition_log_probs


def formula(queries, keys, log_gates, lengths):
    """Compute transitions edge by edge, as written in the docstring."""
    batch, size, heads, width = queries.shape
    found = queries.new_full((batch, size, size), -torch.inf)
    for b in range(batch):
        end = int(lengths[b])
        for i in range(end - 1):
            mixed = 0
            for h in range(heads):
                scores = keys[b, i + 1 : end, h] @ queries[b, i, h] / width**0.5
                mixed = mixed + log_gates[b, i, h].exp() * scores.softmax(0)
            found[b, i, i + 1 : end] = mixed.log()
    return found


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


@given(
    batch=st.integers(1, 4),
    size=st.integers(1, 8),
    heads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    held=st.sampled_from([1, 200, 10**6]),
)
def test_value_and_gradients_are_those_of_the_formula_whatever_the_parts(batch, size, heads, seed, held):
    tensors, lengths = inputs(batch, size, heads, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CPU_SCORES", held)
        found = dense_transitions(transition_log_probs(*tensors, lengths))
        got = gradients(found, tensors)
    expected = formula(*tensors, lengths)
    torch.testing.assert_close(found, expected)
    if size > 1:
        for one, other in zip(got, gradients(expected, tensors), strict=True):
            torch.testing.assert_close(one, other)
    for b, end in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[b, : max(0, end - 1)].exp().sum(1), torch.ones(max(0, end - 1), dtype=torch.float64))
        assert (found[b, max(0, end - 1) :] == -torch.inf).all()


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


def test_gradients_are_those_of_finite_differences():
    tensors, lengths = inputs(2, 5)

    def finite(*tensors):
        found = transition_log_probs(*tensors, lengths)
        return found[found > -torch.inf]

    assert torch.autograd.gradcheck(finite, tensors)


def test_no_more_than_a_part_of_the_scores_is_held(monkeypatch):
    """The largest tensor that either pass makes has the heads of one sentence."""
    monkeypatch.setattr(module, "CPU_SCORES", 1)
    (queries, keys, gates), lengths = inputs(8, 12, 4, dtype=torch.float32)
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                sizes.append(result.numel())
            return result

    with Watch():
        transition_log_probs(queries, keys, gates, lengths).sum().backward()
    assert max(sizes) <= max(8 * 12 * 11, 4 * 12 * 12, queries.numel())
