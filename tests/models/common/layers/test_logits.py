"""Parts of logits cover all rows once, and hold no more than they may."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.common.layers.logits import CPU_LOGITS, CPU_ROWS, logits_parts, with_logits


@given(count=st.integers(0, 3000), vocabulary=st.integers(1, 2 * CPU_LOGITS))
def test_parts_cover_all_rows_in_order_and_are_small_enough(count, vocabulary):
    parts = list(logits_parts(count, vocabulary, torch.device("cpu")))
    assert [row for part in parts for row in range(count)[part]] == list(range(count))
    sizes = [part.stop - part.start for part in parts]
    assert all(0 < size <= CPU_ROWS and (size == 1 or size * vocabulary <= CPU_LOGITS) for size in sizes)
    assert len(set(sizes[:-1])) <= 1


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("count", [0, 1, CPU_ROWS, 2 * CPU_ROWS + 3])
def test_logits_of_all_parts_are_those_of_one_product_and_share_memory(count, biased):
    states, weight, bias = torch.randn(count, 4), torch.randn(7, 4), torch.randn(7) if biased else None
    found, places = torch.empty(count, 7), set()
    for part, logits in with_logits(states, weight, bias):
        found[part] = logits
        places.add(logits.data_ptr())
    torch.testing.assert_close(found, torch.nn.functional.linear(states, weight, bias))
    assert len(places) == min(count, 1)
