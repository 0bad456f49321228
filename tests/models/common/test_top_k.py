"""The highest values of rows, and their order among equal ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.common.top_k import BLOCK, top_k


@given(st.integers(1, 6 * BLOCK), st.integers(1, 9), st.integers(1, 400), st.integers(0, 99))
def test_equal_values_are_ordered_by_their_indices(size, count, different, seed):
    """Also with many equal values, with few blocks, and in an incomplete last block."""
    values = torch.from_numpy(np.random.default_rng(seed).integers(-different, different, size=(3, size)) / 7).float()
    values[0, : size // 2] = -torch.inf
    count = min(count, size)
    expected = values.sort(dim=1, descending=True, stable=True)
    found, places = top_k(values, count)
    assert torch.equal(found, expected.values[:, :count])
    assert torch.equal(places, expected.indices[:, :count])


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_the_lowest_of_equal_indices_is_first_in_long_rows(count):
    ties = [10, 64, 65, 7000]
    values = torch.full((1, 8000), -5.0)
    values[0, ties] = -1.0
    found = top_k(values, count)[1][0].tolist()
    others = [place for place in range(30) if place not in ties]
    assert found == (ties + others)[:count]


def test_zeros_of_both_signs_are_equal():
    assert top_k(torch.tensor([[-1.0, -0.0, 0.0, -math.inf]]), 3)[1].tolist() == [[1, 2, 0]]
