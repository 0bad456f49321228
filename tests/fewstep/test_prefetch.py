"""The next batch is prepared while the caller decodes this one."""

import threading

import pytest

from fewstep.decoding import prefetch
from tests.waiting import FAST_SECONDS


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
