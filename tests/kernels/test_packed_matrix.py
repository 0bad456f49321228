import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.native import fewstep_native


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def halved(values):
    """Rounded to bfloat16: the nearest, of two equally near ones the even one."""
    return torch.from_numpy(values).bfloat16().float().numpy()


@pytest.mark.parametrize("halves", [False, True])
@settings(max_examples=150)
@given(rows=st.integers(0, 40), outputs=st.integers(1, 200), inputs=st.integers(1, 80), seed=st.integers(0, 2**32))
def test_equals_numpy_and_a_row_does_not_depend_on_company(halves, rows, outputs, inputs, seed):
    weights, bias, x = numbers(seed, outputs, inputs), numbers(seed + 1, outputs), numbers(seed + 2, rows, inputs)
    matrix = fewstep_native.PackedMatrix(weights, bias)
    found = matrix.multiply(x, halves=halves)
    if halves:
        x, weights = halved(x), halved(weights)
    expected = x.astype(np.float64) @ weights.astype(np.float64).T + bias
    assert found.shape == (rows, outputs)
    assert np.abs(found - expected).max(initial=0.0) < 1e-4
    for row in range(rows):
        assert matrix.multiply(x[row : row + 1], halves=halves).tobytes() == found[row].tobytes()
    for count in range(1, rows):
        assert matrix.multiply(x[:count], halves=halves).tobytes() == found[:count].tobytes()


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
