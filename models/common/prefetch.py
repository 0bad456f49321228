"""Preparation on the CPU one batch ahead of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
P = TypeVar("P")


def prefetch(prepare: Callable[[A], P], items: Sequence[A]) -> Iterator[tuple[A, P]]:
    """Yield each item with its result of `prepare`. A thread prepares the next item while the caller works with one.

    An exception that `prepare` raises for an item is raised when that item is due.
    """
    if len(items) < 2:
        yield from ((item, prepare(item)) for item in items)
        return
    with ThreadPoolExecutor(1) as helper:
        waiting: tuple[A, Future[P]] | None = None
        for item in items:
            following = item, helper.submit(prepare, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = following
        if waiting is not None:
            yield waiting[0], waiting[1].result()
