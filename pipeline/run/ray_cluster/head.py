"""The head of a Ray cluster, without which a driver cannot go on: whether it answers, and words if it does not."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from fewstep.local_ray import ANSWER_SECONDS, check_answers
from stages.errors import StageError

log = logging.getLogger("fewstep")

HEAD_SECONDS = 20.0
"""Time that the head of a cluster may take to be started again."""
STUCK_SECONDS = 15.0
"""Further time after which the process of a driver is ended, since calls of Ray wait for the head and cannot be interrupted."""
LEAVE_SECONDS = 5.0
"""Time that Ray may take to disconnect from a cluster whose head does not answer."""
LEAVING = "leaving"
"""Name of the thread that disconnects from such a cluster."""


class Head:
    """A thread that looks at the head of a cluster every second."""

    def __init__(self, address: str, cluster: str, end: Callable[[int], object] = os._exit) -> None:
        """`address`: host:port of its global control store; `cluster`: address by which the user knows it.

        `end` is called with exit code 1 if this process does not end by itself although the head is lost.
        """
        self._address = address
        self._cluster = cluster or "this machine"
        self._end = end
        self._silence = 0.0
        self._refused = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="head", daemon=True).start()

    def answers(self) -> bool:
        """Return whether the head answered at the last look."""
        return self._silence == 0.0

    def is_lost(self) -> bool:
        """Return whether no process listens at the address, or none has answered for `HEAD_SECONDS`."""
        return self._silence > HEAD_SECONDS or (self._silence > 0.0 and self._refused)

    def check(self) -> None:
        """Raise StageError if the head has not answered for `HEAD_SECONDS`."""
        if self._silence > HEAD_SECONDS:
            raise StageError(self._problem())

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _problem(self) -> str:
        return (
            f"the Ray cluster at {self._cluster}: expected an answer from {self._address}, got none in {HEAD_SECONDS:g} s; "
            "finished steps are in the store: start the cluster again and repeat the command to continue"
        )

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            self._look()
            if self._silence > HEAD_SECONDS + STUCK_SECONDS and not self._closed.is_set():
                log.error("%s", self._problem())
                self._end(1)

    def _look(self) -> None:
        """Look once. A look counts for at most its limit: this process may have been stopped meanwhile."""
        begun = time.monotonic()
        try:
            check_answers(self._address)
            self._silence = 0.0
        except OSError as error:
            self._refused = isinstance(error, ConnectionRefusedError)
            if self._silence == 0.0:
                log.warning("the head of the Ray cluster at %s does not answer (%s)", self._cluster, error)
            self._silence += 1.0 + min(time.monotonic() - begun, ANSWER_SECONDS)


def leave(disconnect: Callable[[], object]) -> None:
    """Call a function that may wait without end for a head that is lost, and go on after `LEAVE_SECONDS` at the latest."""
    thread = threading.Thread(target=disconnect, name=LEAVING, daemon=True)
    thread.start()
    thread.join(LEAVE_SECONDS)


def is_leaving() -> bool:
    """Return whether Ray still waits for a head that is lost. The usual end of Python, beside Ray's threads, would crash then."""
    return any(thread.name == LEAVING for thread in threading.enumerate())
