"""Waiting for events: a deadline is no measure of a program's speed, and only ends a test whose event never comes."""

import time
from collections.abc import Callable

FAST_SECONDS = 200.0
"""Deadline in fast tests, which pytest itself ends after 300 s."""
SLOW_SECONDS = 1200.0
"""Deadline in slow tests, which pytest itself ends after 1500 s (`make test-slow`)."""


def until(ready: Callable[[], bool], seconds: float = FAST_SECONDS) -> None:
    """Wait until `ready` returns True. Raises AssertionError if it never does."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"the event has not come in {seconds:g} s"
        time.sleep(0.01)
