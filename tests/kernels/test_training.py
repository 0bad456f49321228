"""Token scores, dropout and attention of training."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import AttentionInputs, dropout_, fused_attention_, fused_attention_gradients_, token_gradients_, token_scores_
from kernels.reference import training as slow
from kernels.reference.training import ROW, factors


def batch(sentences, vertices, tokens, vocabulary, dtype, seed, scale=3.0):
    """Return logits of some of the vertices, unordered, and targets that repeat tokens."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(sentences * vertices, generator=generator)[: max(1, sentences * vertices - 2)]
    logits = (torch.randn(len(rows), vocabulary, generator=generator) * scale).to(dtype)
    targets = torch.randint(vocabulary, (sentences, tokens), generator=generator)
    return logits, targets, rows, torch.randn(sentences, tokens, vertices, generator=generator)


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 6)),
    vocabulary=st.sampled_from([2, 15, 16, 17, 64, 131]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    threads=st.sampled_from([1, 2]),
    penalty=st.sampled_from([0.0, 0.02, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_scores_are_the_reference(sizes, vocabulary, dtype, smoothing, threads, penalty, seed):
    logits, targets, rows, upstream = batch(*sizes, vocabulary, dtype, seed)
    scores, best = torch.full(upstream.shape, 7.0), torch.full(upstream.shape[::2], 7)
    wanted, wanted_best, exact = scores.double().numpy(), best.clone().numpy(), logits.double().numpy()
    expected = slow.token_scores(exact, targets.numpy(), rows.numpy(), wanted, wanted_best, smoothing)
    normalisers = token_scores_(logits, targets, rows, scores, best, smoothing=smoothing, threads=threads)
    np.testing.assert_allclose(normalisers.numpy(), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores.numpy(), wanted, rtol=1e-6, atol=4e-6)
    np.testing.assert_array_equal(best.numpy(), wanted_best)
    gradients = slow.token_gradients(exact, targets.numpy(), rows.numpy(), upstream.double().numpy(), expected, smoothing, penalty)
    token_gradients_(logits, targets, rows, upstream, normalisers, smoothing=smoothing, penalty=penalty, threads=threads)
    error = 4e-6 if dtype == torch.float32 else 2.0**-8  # half the distance of two numbers of bfloat16
    np.testing.assert_allclose(logits.double().numpy(), gradients, rtol=error, atol=4e-6)


def test_exponentials_are_within_two_units_in_the_last_place():
    """The gradient of a row whose upstream gradients sum to -1 is e^(x - n) itself, here with n = 0."""
    exponents = torch.linspace(-87.0, 0.0, 200_000)
    row = torch.cat((exponents, torch.zeros(1)))[None].clone()
    token_gradients_(row, torch.tensor([[200_000]]), torch.tensor([0]), torch.full((1, 1, 1), -1.0), torch.zeros(1))
    exact = np.exp(exponents.double().numpy())
    units = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert (np.abs(row[0, :-1].double().numpy() - exact) / units).max() <= 2.0


def test_bfloat16_is_rounded_to_the_nearest_even_one():
    """With upstream gradients that sum to 0 the gradient is that of the tokens alone, rounded as in torch."""
    values = torch.cat((torch.randn(5000), torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 3e38, 1e-30])))
    count = len(values)
    logits = torch.zeros(1, 2 * count, dtype=torch.bfloat16)
    targets = torch.arange(2 * count)[None]
    upstream = torch.cat((values, -values))[None, :, None].contiguous()
    token_gradients_(logits, targets, torch.tensor([0]), upstream, torch.full((1,), 1e4))
    assert torch.equal(logits[0], torch.cat((values, -values)).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equal_logits_the_first_is_best_and_hopeless_rows_are_no_numbers(dtype):
    rows, best = torch.arange(4), torch.zeros((1, 4), dtype=torch.int64)
    logits = torch.zeros(4, 150, dtype=dtype)
    logits[0, 77] = logits[0, 140] = 1.0
    logits[1, 149] = 1e30
    logits[2, 3] = math.nan
    logits[3] = -math.inf
    scores = torch.zeros(1, 1, 4)
    normalisers = token_scores_(logits, torch.tensor([[149]]), rows, scores, best)
    assert best[0, :2].tolist() == [77, 149]
    assert normalisers[:2].isfinite().all()
    assert scores[0, 0, 1] == 0.0
    assert normalisers[2].isnan()
    assert scores[0, 0, 2:].isnan().all()


def test_results_do_not_depend_on_the_rows_beside():
    logits, targets, rows, upstream = batch(3, 70, 5, 33, torch.float32, 1)
    whole, alone = torch.zeros(upstream.shape), torch.zeros(upstream.shape)
    token_scores_(logits, targets, rows, whole, threads=2)
    for row in range(len(rows)):
        token_scores_(logits[row : row + 1], targets, rows[row : row + 1], alone)
    assert torch.equal(whole, alone)


def test_bad_input_is_named():
    logits, targets, rows, upstream = batch(2, 5, 3, 11, torch.float32, 1)
    scores = torch.zeros(upstream.shape)
    with pytest.raises(TypeError, match=r"expected float32 or bfloat16, got torch\.float64"):
        token_scores_(logits.double(), targets, rows, scores)
    with pytest.raises(ValueError, match="contiguous"):
        token_scores_(logits[:, ::2], targets, rows, scores)
    with pytest.raises(ValueError, match="targets: expected ids below 11, got 11"):
        token_scores_(logits, targets.clamp(min=11), rows, scores)
    with pytest.raises(ValueError, match=r"rows: expected 0 to 9, got 1\d"):
        token_scores_(logits, targets, rows + 10, scores)
    with pytest.raises(ValueError, match="one for each row"):
        token_gradients_(logits, targets, rows, upstream, torch.zeros(1))


# ---- dropout


def dropped(x, probability, seed, threads=1):
    found = torch.full_like(x, 7.0)
    dropout_(x, found, probability, seed, threads=threads)
    return found


@given(
    count=st.integers(0, 70),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    probability=st.floats(0.0, 0.999),
    seed=st.integers(0, 2**64 - 1),
)
def test_dropout_is_the_reference(count, dtype, probability, seed):
    x = torch.randn(count).to(dtype)
    expected = x.double() * torch.from_numpy(factors(probability, seed, 0, np.arange(count)))
    torch.testing.assert_close(dropped(x, probability, seed), expected.to(dtype), rtol=2.0**-7, atol=0.0)


def test_units_have_masks_by_row_with_any_number_of_threads():
    x = torch.ones(2 * ROW + 21)
    found = dropped(x, 0.25, 3)
    expected = np.concatenate([factors(0.25, 3, row, np.arange(ROW)) for row in range(3)])
    np.testing.assert_allclose(found.numpy(), expected[: len(x)], rtol=1e-6)
    assert torch.equal(dropped(x, 0.25, 3, threads=3), found)


def test_may_write_over_its_input():
    x = torch.randn(100)
    found = dropped(x, 0.5, 9)
    dropout_(x, x, 0.5, 9)
    assert torch.equal(x, found)


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_units_are_dropped_independently_with_their_probability(probability):
    """Each statistic of n units is within 5 standard errors: the share of dropped ones, and the correlation with near and far
    units, with the same units of the next row and with those of the next seed."""
    count = 16 * ROW
    one, other = ((dropped(torch.ones(count), probability, seed) == 0).double() - probability for seed in (11, 12))
    variance = probability * (1 - probability)
    assert abs(one.mean()) < 5 * (variance / count) ** 0.5
    for pair in [(one[distance:], one[:-distance]) for distance in (1, 2, 4, 16, 256, ROW)] + [(one, other)]:
        assert abs((pair[0] * pair[1]).mean()) < 5 * variance / len(pair[0]) ** 0.5


def test_bad_input_of_dropout_is_named():
    x = torch.zeros(4)
    for probability in (-0.1, 1.0, 1.0 - 1e-9, float("nan")):
        with pytest.raises(ValueError, match="dropout: expected a probability from 0 to below 1"):
            dropout_(x, x, probability, 1)
    with pytest.raises(ValueError, match="dropped: expected 4 values, got 3"):
        dropout_(x, torch.zeros(3), 0.1, 1)
    with pytest.raises(TypeError):
        dropout_(x, torch.zeros(4, dtype=torch.bfloat16), 0.1, 1)
    with pytest.raises(TypeError):
        dropout_(x, x, 0.1, -1)


# ---- fused attention


def heads_of(rows, heads):
    """Return a view of `rows` [B,T,H d] as [B,H,T,d]."""
    return rows.unflatten(2, (heads, -1)).transpose(1, 2)


def attention_inputs(sentences, heads, queries, keys, size, dtype, seed, causal=False):
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
def test_attention_is_the_reference(sizes, size, dtype, causal, masked, dropout, threads, seed):
    inputs, upstream = attention_inputs(*sizes, size, dtype, seed, causal)
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
    inputs, upstream = attention_inputs(2, 1, 1100, 1500, 4, torch.float32, 5, causal)
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
    inputs, upstream = attention_inputs(4, 2, 9, 21, 8, torch.float32, 3)
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
    inputs, _ = attention_inputs(2, 1, 3, 5, 4, torch.float32, 1)
    inputs = inputs._replace(seen=None)
    inputs.keys[0, 0, 2, 1] = torch.nan
    mixed = torch.empty(2, 1, 3, 4)
    fused_attention_(inputs, mixed)
    assert mixed[0].isnan().all()
    assert mixed[1].isfinite().all()


def test_bad_input_of_attention_is_named():
    inputs, _ = attention_inputs(2, 1, 3, 5, 4, torch.float32, 1)
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
