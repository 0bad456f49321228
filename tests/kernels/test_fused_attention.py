import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import AttentionInputs, fused_attention_, fused_attention_gradients_
from kernels.reference import fused_attention as slow
from kernels.reference.dropout import factors


def heads_of(rows, heads):
    """Return a view of `rows` [B,T,H d] as [B,H,T,d]."""
    return rows.unflatten(2, (heads, -1)).transpose(1, 2)


def batch(sentences, heads, queries, keys, size, dtype, seed, causal=False):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(sentences, count, heads * size, generator=generator).to(dtype) for count in (queries, keys, keys)]
    seen = torch.rand(sentences, keys, generator=generator) < 0.7
    return AttentionInputs(*(heads_of(row, heads) for row in rows), seen, causal), torch.randn(
        sentences, queries, heads * size, generator=generator
    ).to(dtype)


def gradients_of(inputs, normalisers, upstream, **options):
    found = tuple(torch.full(part.shape, 7.0, dtype=part.dtype) for part in inputs[:3])
    fused_attention_gradients_(inputs, normalisers, upstream, found, **options)
    return found


def exact(inputs):
    return [part.double().numpy() for part in inputs[:3]]


def factors_of(inputs):
    """Return the factors [B,H,T,S] of dropout."""
    rows, keys = inputs.queries.shape[:3], np.arange(inputs.keys.shape[2])
    return np.array([factors(inputs.dropout, inputs.seed, row, keys) for row in range(rows.numel())]).reshape(*rows, len(keys))


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.integers(1, 40)),
    size=st.sampled_from([1, 4, 16, 19, 32]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    causal=st.booleans(),
    masked=st.booleans(),
    dropout=st.sampled_from([0.0, 0.3, 0.9]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**63),
)
def test_is_the_reference(sizes, size, dtype, causal, masked, dropout, threads, seed):
    inputs, upstream = batch(*sizes, size, dtype, seed, causal)
    inputs = (inputs if masked else inputs._replace(seen=None))._replace(dropout=dropout, seed=seed)
    seen = inputs.seen.numpy() if masked else np.ones((sizes[0], sizes[3]), dtype=bool)
    mixed, given_back = torch.full_like(upstream, 7.0), heads_of(upstream, sizes[1])
    normalisers = fused_attention_(inputs, heads_of(mixed, sizes[1]), threads=threads)
    expected = slow.attention(*exact(inputs), seen, causal, factors_of(inputs))
    error = 2e-5 if dtype == torch.float32 else 2.0**-8  # half the distance of two numbers of bfloat16
    np.testing.assert_allclose(heads_of(mixed, sizes[1]).double().numpy(), expected, rtol=error, atol=2e-5)
    found = gradients_of(inputs, normalisers, given_back, threads=threads)
    wanted = slow.gradients(*exact(inputs), seen, causal, factors_of(inputs), given_back.double().numpy())
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.double().numpy(), other, rtol=error, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_queries_whose_weights_are_not_held_together(causal):
    inputs, upstream = batch(2, 1, 1100, 1500, 4, torch.float32, 5, causal)
    inputs = inputs._replace(dropout=0.1, seed=7)
    mixed, given_back = torch.full_like(upstream, 7.0), heads_of(upstream, 1)
    normalisers = fused_attention_(inputs, heads_of(mixed, 1), threads=1)
    mask = factors_of(inputs)
    expected = slow.attention(*exact(inputs), inputs.seen.numpy(), causal, mask)
    np.testing.assert_allclose(heads_of(mixed, 1).double().numpy(), expected, rtol=1e-4, atol=2e-5)
    wanted = slow.gradients(*exact(inputs), inputs.seen.numpy(), causal, mask, given_back.double().numpy())
    for one, other in zip(gradients_of(inputs, normalisers, given_back, threads=1), wanted, strict=True):
        np.testing.assert_allclose(one.double().numpy(), other, rtol=1e-4, atol=1e-4)


def test_scores_of_any_size_have_weights_and_gradients():
    """Scores whose exponentials overflow: only the highest one counts."""
    queries, keys = torch.full((1, 1, 1, 1), 1e4), torch.tensor([[[[1e4], [-1e4], [0.9e4]]]])
    inputs = AttentionInputs(queries, keys, torch.tensor([[[[1.0], [2.0], [3.0]]]]))
    mixed = torch.empty(1, 1, 1, 1)
    normalisers = fused_attention_(inputs, mixed)
    assert mixed.item() == 1.0
    of_queries, _, of_values = gradients_of(inputs, normalisers, torch.ones(1, 1, 1, 1))
    assert of_queries.item() == 0.0
    assert of_values.flatten().tolist() == [1.0, 0.0, 0.0]


def test_results_are_the_same_alone_and_with_any_threads():
    inputs, upstream = batch(4, 2, 9, 21, 8, torch.float32, 3)
    whole = torch.empty(4, 2, 9, 8)
    normalisers = fused_attention_(inputs, whole, threads=2)
    gradients = gradients_of(inputs, normalisers, heads_of(upstream, 2), threads=2)
    for row in range(4):
        part = AttentionInputs(*(tensor[row : row + 1] for tensor in inputs[:4]))
        alone = torch.empty(1, 2, 9, 8)
        own = fused_attention_(part, alone, threads=1)
        assert torch.equal(alone[0], whole[row])
        given = heads_of(upstream[row : row + 1], 2)
        assert all(torch.equal(one[0], all_[row]) for one, all_ in zip(gradients_of(part, own, given), gradients, strict=True))


def test_a_value_that_is_not_finite_stays_in_its_sentence():
    inputs, _ = batch(2, 1, 3, 5, 4, torch.float32, 1)
    inputs = inputs._replace(seen=None)
    inputs.keys[0, 0, 2, 1] = torch.nan
    mixed = torch.empty(2, 1, 3, 4)
    fused_attention_(inputs, mixed)
    assert mixed[0].isnan().all()
    assert mixed[1].isfinite().all()


def test_bad_input_is_named():
    inputs, _ = batch(2, 1, 3, 5, 4, torch.float32, 1)
    mixed = torch.empty(2, 1, 3, 4)
    with pytest.raises(TypeError, match=r"expected float32 or bfloat16, got torch\.float64"):
        fused_attention_(inputs._replace(keys=inputs.keys.double()), mixed)
    with pytest.raises(ValueError, match="values: expected 5 in dimension 2, got 4"):
        fused_attention_(inputs._replace(values=inputs.values[:, :, :4]), mixed)
    with pytest.raises(ValueError, match="mixed: expected 3 in dimension 2, got 5"):
        fused_attention_(inputs, torch.empty(2, 1, 5, 4))
    with pytest.raises(ValueError, match=r"seen: expected \[B,S\]"):
        fused_attention_(inputs._replace(seen=inputs.seen[:, :4].contiguous()), mixed)
    with pytest.raises(ValueError, match=r"dropout: expected a probability from 0 to below 1, got 1\.0"):
        fused_attention_(inputs._replace(dropout=1.0), mixed)
    with pytest.raises(ValueError, match="queries: expected the values of a row side by side"):
        fused_attention_(inputs._replace(queries=torch.empty(2, 1, 4, 3).transpose(2, 3)), mixed)
