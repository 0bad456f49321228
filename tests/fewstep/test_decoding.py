"""Batches of sentences, read ahead of use."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewstep.decoding import DecodingMemoryError, batches, decode_batch, decode_sentences, prefetch
from fewstep.translation import Hypothesis
from tests.waiting import FAST_SECONDS

# ---- decoding


class Reversal:
    """A decoder that reverses its sources. A batch of more than `max_tokens` tokens does not fit into memory."""

    memory_errors = (torch.OutOfMemoryError, MemoryError)

    def __init__(self, max_tokens: int = 10**9, error: type[BaseException] = torch.OutOfMemoryError) -> None:
        self.max_tokens, self.error = max_tokens, error
        self.prepared: list[list[list[int]]] = []
        self.decoded: list[list[list[int]]] = []
        self.threads: set[int] = set()

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> list[list[int]]:
        assert all(sources), "empty sources are not decoded"
        self.prepared.append([list(ids) for ids in sources])
        return self.prepared[-1]

    def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
        self.threads.add(threading.get_ident())
        if sum(len(ids) + 1 for ids in prepared) > self.max_tokens:
            raise self.error("CUDA out of memory.\nmore lines")
        self.decoded.append(prepared)
        return [[Hypothesis([*ids[::-1], search], -1.0, 1)] for ids in prepared]

    def score(self, sources: Any, targets: Any) -> Any:
        raise NotImplementedError

    def problems(self, search: Any) -> Any:
        raise NotImplementedError


SOURCES = st.lists(st.lists(st.integers(7, 99), max_size=12), max_size=20)


@given(SOURCES, st.integers(1, 40), st.integers(1, 3), st.integers(13, 60))
def test_results_are_in_the_order_of_the_sources_for_any_batches(
    sources: list[list[int]], budget: int, in_flight: int, memory: int
) -> None:
    decoder = Reversal(memory)
    found = decode_sentences(decoder, sources, 5, batch_tokens=budget, in_flight=in_flight)
    assert [ranked[0].ids for ranked in found] == [[*ids[::-1], 5] if ids else [] for ids in sources]
    assert all(ranked[0].steps == 0 for ids, ranked in zip(sources, found, strict=True) if not ids)
    for batch in decoder.decoded:
        assert len(batch) == 1 or len(batch) * (max(map(len, batch)) + 1) <= budget


@given(st.lists(st.integers(0, 40)), st.integers(1, 100))
def test_batches_hold_every_sentence_once_within_the_budget(lengths: list[int], budget: int) -> None:
    made = batches(lengths, budget)
    assert sorted(index for batch in made for index in batch) == [index for index, length in enumerate(lengths) if length]
    for batch in made:
        assert len(batch) == 1 or len(batch) * (max(lengths[index] for index in batch) + 1) <= budget


def test_a_batch_is_prepared_while_the_one_before_is_decoded() -> None:
    second = threading.Event()

    class Waiting(Reversal):
        """Decodes the first batch only once the second one is being prepared."""

        memory_errors = (torch.OutOfMemoryError, MemoryError)

        def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> list[list[int]]:
            if self.prepared:
                second.set()
            return super().prepare(sources, search)

        def decode(self, prepared: list[list[int]], search: Any, threads: int | None = None) -> list[list[Hypothesis]]:
            assert second.wait(timeout=FAST_SECONDS)
            return super().decode(prepared, search)

    decoder = Waiting()
    decode_sentences(decoder, [[7]] * 5, 5, batch_tokens=2)
    assert len(decoder.prepared) == 5
    assert decoder.threads == {threading.get_ident()}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_a_batch_that_does_not_fit_is_decoded_in_halves(error: type[BaseException]) -> None:
    decoder, sources = Reversal(25, error), [[7] * length for length in (3, 9, 4, 11, 8, 2, 5)]
    found = decode_batch(decoder, sources, 5)
    assert [ranked[0].ids[:-1] for ranked in found] == sources
    assert len(decoder.decoded) > 1
    with pytest.raises(DecodingMemoryError, match=r"one source of 40 tokens: CUDA out of memory\.; reduce beam_size"):
        decode_batch(decoder, [[7], [7] * 40], 5)


def test_other_errors_are_not_caught() -> None:
    decoder = Reversal(3, ValueError)
    with pytest.raises(ValueError, match="CUDA"):
        decode_batch(decoder, [[7], [7]], 5)
    assert len(decoder.prepared) == 1


# ---- reading ahead


def test_items_come_in_their_order_with_what_was_made_of_them():
    assert list(prefetch(lambda item: item * 2, [3, 1, 2])) == [(3, 6), (1, 2), (2, 4)]
    assert list(prefetch(lambda item: item * 2, [])) == []


def test_the_next_item_is_prepared_before_this_one_is_asked_to_end():
    """The caller waits for the second item while it has the first, which would never end without prefetching."""
    prepared = [threading.Event() for _ in range(3)]
    turns = prefetch(lambda item: prepared[item].set(), [0, 1, 2])
    next(turns)
    assert prepared[1].wait(FAST_SECONDS)
    assert not prepared[2].is_set()
    next(turns)
    assert prepared[2].wait(FAST_SECONDS)


def test_one_item_needs_no_thread():
    (made,) = prefetch(lambda item: threading.current_thread(), [1])
    assert made[1] is threading.main_thread()


def test_what_goes_wrong_is_raised_in_its_turn():
    turns = prefetch(lambda item: 1 // item, [1, 0, 2])
    assert next(turns) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        next(turns)
