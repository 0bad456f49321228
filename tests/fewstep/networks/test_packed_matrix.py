import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.native import fewstep_native


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def halved(values):
    """Round to the nearest bfloat16, ties to even."""
    return torch.from_numpy(values).bfloat16().float().numpy()


IN_16_BITS = fewstep_native.LEVEL in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
"""Whether the level in use adds products of bytes in 16 bits."""


def in_bytes(weights):
    """Round the weights of each output to 8 bits: multiples of a scale, the largest being at most 127 times the scale.

    Where products are added in 16 bits, the positive (or negative) ones among the inputs 0, 1, 4 and 5 of eight, and among the
    other four, are at most 256 times the scale together.
    """
    scales = (np.abs(weights) / np.float32(127)).max(axis=1, keepdims=True)
    if IN_16_BITS:
        padded = np.pad(weights, [(0, 0), (0, -weights.shape[1] % 8)]).reshape(len(weights), -1, 2, 2, 2).swapaxes(2, 3)
        for sign in (1, -1):
            sums = np.maximum(sign * padded, 0).sum((3, 4)).max((1, 2))
            scales = np.maximum(scales, sums[:, None] / np.float32(256))
    return np.rint(weights / scales) * scales


def rows_in_bytes(x):
    """Round rows of values to 8 bits with their sign, or to steps of 7 bits from their lowest to their highest value."""
    if IN_16_BITS:
        span = np.maximum(x, 0).max(axis=1, keepdims=True) + np.maximum(-x, 0).max(axis=1, keepdims=True)
        return np.rint(x * (np.float32(126) / span)) * (span / np.float32(126))
    tops = np.abs(x).max(axis=1, keepdims=True)
    return np.rint(x * (np.float32(127) / tops)) * (tops / np.float32(127))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@given(rows=st.integers(0, 40), outputs=st.integers(1, 200), inputs=st.integers(1, 80), seed=st.integers(0, 2**32))
def test_equals_numpy_and_a_row_does_not_depend_on_company(precision, rows, outputs, inputs, seed):
    weights, bias, x = numbers(seed, outputs, inputs), numbers(seed + 1, outputs), numbers(seed + 2, rows, inputs)
    matrix = fewstep_native.PackedMatrix(weights, bias)
    found = matrix.multiply(x, precision=precision)
    read, multiplied = x, weights
    if precision == "bfloat16":
        read, multiplied = halved(x), halved(weights)
    if precision == "int8":
        read, multiplied = rows_in_bytes(x), in_bytes(weights)
    expected = read.astype(np.float64) @ multiplied.astype(np.float64).T + bias
    assert found.shape == (rows, outputs)
    assert np.abs(found - expected).max(initial=0.0) < 1e-4
    for row in range(rows):
        assert matrix.multiply(x[row : row + 1], precision=precision).tobytes() == found[row].tobytes()
    for count in range(1, rows):
        assert matrix.multiply(x[:count], precision=precision).tobytes() == found[:count].tobytes()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@given(rows=st.integers(1, 150), outputs=st.integers(1, 200), inputs=st.integers(100, 1500), seed=st.integers(0, 2**32))
def test_long_rows_that_are_gone_through_in_pieces(precision, rows, outputs, inputs, seed):
    """A single row is not shared out."""
    matrix = fewstep_native.PackedMatrix(numbers(seed, outputs, inputs), numbers(seed + 1, outputs))
    x = numbers(seed + 2, rows, inputs)
    together = matrix.multiply(x, precision=precision)
    assert together.tobytes() == b"".join(matrix.multiply(row[None], precision=precision).tobytes() for row in x)


def test_sums_of_bytes_do_not_overflow_and_rows_of_zeros_stay():
    inputs = 4000
    matrix = fewstep_native.PackedMatrix(np.ones((3, inputs), dtype=np.float32), np.zeros(3, dtype=np.float32))
    x = np.vstack([np.ones(inputs), -np.ones(inputs), np.zeros(inputs)]).astype(np.float32)
    found = matrix.multiply(x, precision="int8")
    assert np.abs(found - [[inputs], [-inputs], [0]]).max() < 1e-2


@given(rows=st.integers(1, 12), outputs=st.integers(1, 60), inputs=st.integers(8, 300), seed=st.integers(0, 2**32))
def test_the_largest_bytes_of_any_sign_have_exact_sums(rows, outputs, inputs, seed):
    """Values and weights of 1 and -1 take the ends of their ranges, so that all products are the largest, and rounding is exact."""
    draw = np.random.default_rng(seed)
    weights, x = (draw.choice([1.0, -1.0], (count, inputs)).astype(np.float32) for count in (outputs, rows))
    # Whole stretches of one sign, beside signs that alternate: sums of neighbours that are as large as they can be.
    weights[:, :8], weights[::3], weights[1::3, 8:] = 1, 1, np.resize([1, -1], inputs - 8)
    x[::2], x[1::4] = 1, -1
    found = fewstep_native.PackedMatrix(weights, np.zeros(outputs, np.float32)).multiply(x, precision="int8")
    assert np.abs(found - x @ weights.T).max() <= 1e-4 * inputs


@given(st.integers(0, 12), st.integers(1, 700), st.integers(1, 80), st.integers(2, 6), st.integers(0, 2**32))
def test_threads_that_share_out_the_outputs_find_the_same(rows, outputs, inputs, threads, seed):
    matrix = fewstep_native.PackedMatrix(numbers(seed, outputs, inputs), numbers(seed + 1, outputs))
    x = numbers(seed + 2, rows, inputs)
    assert matrix.multiply(x, threads=threads).tobytes() == matrix.multiply(x).tobytes()


def test_misshapen_arrays_are_refused():
    matrix = fewstep_native.PackedMatrix(numbers(0, 3, 2), numbers(0, 3))
    with pytest.raises(ValueError, match=r"x: expected \[rows,2\]"):
        matrix.multiply(numbers(0, 1, 3))
    with pytest.raises(ValueError, match="bias"):
        fewstep_native.PackedMatrix(numbers(0, 3, 2), numbers(0, 2))


@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001])
@pytest.mark.parametrize("inputs", [1, 2, 17, 40])
def test_what_is_no_number_stays_none_in_bfloat16(bits, inputs):
    """Rounding the bits of these would give zero or infinity."""
    nan = np.array([bits], np.uint32).view(np.float32)[0]
    x, weights = numbers(1, 1, inputs), numbers(2, 3, inputs)
    expected = fewstep_native.PackedMatrix(weights, numbers(3, 3)).multiply(x, precision="bfloat16")
    assert np.isfinite(expected).all()
    for place in range(inputs):
        broken = weights.copy()
        broken[1, place] = nan
        found = fewstep_native.PackedMatrix(broken, numbers(3, 3)).multiply(x, precision="bfloat16")
        assert np.isnan(found[0, 1])
        assert (found[0, [0, 2]] == expected[0, [0, 2]]).all()
        changed = x.copy()
        changed[0, place] = nan
        assert np.isnan(fewstep_native.PackedMatrix(weights, numbers(3, 3)).multiply(changed, precision="bfloat16")).all()
