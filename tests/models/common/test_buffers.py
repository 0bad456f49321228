"""Buffers of fixed shapes, their replay, shortlists, and the choice of the best tokens."""

import gc
import math
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.candidates import CandidateTables
from fewstep.shortlist import build_lexicon
from fewstep.sources import gather
from fewstep.vocabulary import EOS, PAD
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.common.buffers import empty_inputs, inputs_for, size_for
from models.common.replay import KEPT_RUNNERS, RunnerCache
from models.common.shortlist import linked_tokens, token_mask
from models.common.top_k import BLOCK, top_k
from tests.models.common.device_alone import DeviceAlone

# ---- buffers of rounded sizes hold every batch that a network can read and write


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


# ---- runnerCache of fixed shapes and the check that they never wait for the host


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: bool(x.any()),
        lambda x: x.item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
        lambda x: x.repeat_interleave(x),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.cpu(),
        lambda x: torch.ones(3).to(x.device),
        lambda x: torch.ones(3)[x],
        lambda x: x + torch.ones(3),
    ],
)
def test_an_operation_that_needs_the_host_is_found(waits):
    with pytest.raises((AssertionError, NotImplementedError, RuntimeError, TypeError)), DeviceAlone():
        waits(torch.ones(3, dtype=torch.int64, device="meta"))


def test_operations_on_the_device_are_counted():
    with DeviceAlone() as calls:
        x = torch.arange(6, device="meta")
        (x * 2).cumsum(0)
    assert calls.calls == 3


class Buffers:
    """A runner that refers to itself, as real ones do."""

    def __init__(self, key):
        self.key, self.step = key, self.run

    def run(self):
        return self.key


def test_a_cpu_keeps_no_runner():
    made = []
    kept = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cpu"))
    assert [kept.call(1, Buffers.run), kept.call(1, Buffers.run)] == [1, 1]
    gc.collect()
    assert [runner() for runner in made] == [None, None]


def test_the_runner_that_was_not_used_for_longest_is_dropped_with_its_memory():
    made = []
    runners = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cuda"))
    for key in range(KEPT_RUNNERS):
        assert runners.call(key, Buffers.run) == key
    assert runners.call(0, Buffers.run) == 0
    runners.call(KEPT_RUNNERS, Buffers.run)
    assert [number for number, runner in enumerate(made) if runner() is None] == [1]
    runners.call(0, Buffers.run)
    assert len(made) == KEPT_RUNNERS + 1
    runners.call(1, Buffers.run)
    assert len(made) == KEPT_RUNNERS + 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), MemoryError()])
def test_runners_leave_their_memory_to_a_smaller_batch(error):
    made = []
    runners = RunnerCache(lambda key: made.append(weakref.ref(runner := Buffers(key))) or runner, torch.device("cuda"))

    def fails(runner):
        raise error

    runners.call(1, Buffers.run)
    with pytest.raises(type(error)):
        runners.call(2, fails)
    error.__traceback__ = None  # it holds the frames of the call
    gc.collect()
    assert [runner() for runner in made] == [None, None]
    assert runners.call(1, Buffers.run) == 1


# ---- shortlists: their contents, and the sources that get one


def tables(folder: Path, backoff: float = 1.0) -> CandidateTables:
    """Three pairs: 7 is written as 8 twice and as 9 once, 8 as 9, 9 as nothing."""
    source = Sentences.of([[7, 8], [7, 8], [7, 9]])
    target = Sentences.of([[8, 9], [8, 10], [9, 11]])
    links = [0, 1, 0, -1, 0, -1]
    count_candidates(source, target, links, folder / "counts", options=CountOptions(source_size=12, target_size=13))
    merge_candidates([folder / "counts"], folder / "tables", options=TableOptions(reserved=7, backoff=backoff))
    return CandidateTables.load(folder / "tables")


def test_a_lexicon_is_counted_from_links(tmp_path):
    found = build_lexicon(tables(tmp_path), joint=False)
    assert found.common_tokens.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 7, 10, 11, 12]  # 8 and 9 twice each
    linked = linked_tokens(found, 3)
    assert linked is not None
    assert linked.shape == (12, 3)
    assert linked[7].tolist() == [8, 9, -1]
    assert linked[8].tolist() == [9, -1, -1]
    assert linked[9].tolist() == linked[0].tolist() == [-1, -1, -1]


def test_words_of_a_joint_vocabulary_bring_themselves_first(tmp_path):
    linked = linked_tokens(build_lexicon(tables(tmp_path), joint=True), 3)
    assert linked is not None
    assert linked[7].tolist() == [7, 8, 9]
    assert linked[8].tolist() == [8, 9, -1]
    assert linked[11].tolist() == [11, -1, -1]
    assert linked[2].tolist() == [-1, -1, -1]


def test_tables_that_were_counted_without_a_backoff_make_none(tmp_path):
    with pytest.raises(ValueError, match="backoff"):
        build_lexicon(tables(tmp_path, backoff=0.0), joint=False)


def test_a_shortlist_holds_common_tokens_and_those_of_real_positions_alone():
    linked = torch.from_numpy(np.array([[-1, -1], [4, -1], [5, 2], [3, 4]]))
    found = token_mask(torch.tensor([0]), linked, torch.tensor([[1, 2], [1, 3], [0, 2]]), torch.tensor([2, 1, 1]), 6)
    assert [row.nonzero()[:, 0].tolist() for row in found] == [[0, 2, 4, 5], [0, 4], [0]]
    assert token_mask(torch.tensor([0, 3]), None, torch.tensor([[1]]), torch.tensor([1]), 6)[0].nonzero()[:, 0].tolist() == [0, 3]


# ---- the highest values of rows, and their order among equal ones


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
