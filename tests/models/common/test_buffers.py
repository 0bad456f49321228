"""Buffers of rounded sizes hold every batch that a network can read and write."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.sources import gather
from fewstep.vocabulary import EOS, PAD
from models.common.buffers import empty_inputs, inputs_for, size_for

LONGEST = 40
"""The largest number of positions, between two multiples of the blocks."""
GPU, CPU = torch.device("cuda"), torch.device("cpu")


@given(st.lists(st.integers(0, LONGEST - 1), min_size=1, max_size=9), st.integers(1, LONGEST), st.integers(1, 3))
def test_sizes_are_rounded_up_within_what_the_network_has(lengths, slots, step):
    prepared = gather([[7] * length for length in lengths], LONGEST - 1)
    size = size_for(prepared, slots, GPU, max_source=LONGEST, max_slots=LONGEST, step=step)
    assert len(lengths) <= size.sentences < 2 * len(lengths)
    assert max(lengths) + 1 <= size.source <= LONGEST
    assert slots <= size.slots < LONGEST + step
    assert size.slots % step == 0
    assert size.source % 16 == 0 or size.source == LONGEST
    exact = size_for(prepared, slots, CPU, max_source=LONGEST, max_slots=LONGEST, step=step)
    assert exact == (len(lengths), max(lengths) + 1, -(-slots // step) * step)


def test_mixed_lengths_are_padded_and_missing_sentences_are_empty():
    prepared = gather([[7] * (LONGEST - 1), [8], []], LONGEST - 1)
    size = size_for(prepared, 5, GPU, max_source=LONGEST, max_slots=LONGEST)
    batch = inputs_for(prepared, np.array([5, 4, 3]), 0, torch.ones(3, 9, dtype=torch.bool), size, CPU)
    kept = empty_inputs(size, 9, CPU, shortlists=True)
    kept.fill(batch)
    assert (kept.source.shape, kept.lengths.tolist(), kept.slots.tolist()) == ((4, LONGEST), [LONGEST, 2, 1, 1], [5, 4, 3, 0])
    assert kept.source[1].tolist() == [8, EOS, *[PAD] * (LONGEST - 2)]
    assert kept.source[2].tolist() == kept.source[3].tolist() == [EOS, *[PAD] * (LONGEST - 1)]
    assert not kept.excluded.any()
