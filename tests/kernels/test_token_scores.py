import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import token_gradients_, token_scores_
from kernels.reference import token_scores as slow


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
def test_is_the_reference(sizes, vocabulary, dtype, smoothing, threads, penalty, seed):
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
