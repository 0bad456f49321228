import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import dropout_
from kernels.reference.dropout import ROW, factors


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
def test_is_the_reference(count, dtype, probability, seed):
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


def test_bad_input_is_named():
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
