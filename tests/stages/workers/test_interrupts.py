"""Signals wait until state is saved."""

import os
import signal
import threading

import pytest

from stages.workers.interrupts import delayed_signals


@pytest.fixture
def noted():
    """Signals that reached the original handler."""
    came = []
    previous = {number: signal.signal(number, lambda n, frame: came.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    yield came
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_acts_when_the_block_ends(noted, number):
    with delayed_signals() as came:
        assert not came()
        os.kill(os.getpid(), number)
        assert came()
        assert noted == []
    assert noted == [number]


def test_a_second_signal_acts_at_once(noted):
    with delayed_signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert noted == [signal.SIGINT]
    assert noted == [signal.SIGINT, signal.SIGINT]


def test_handlers_are_restored(noted):
    before = signal.getsignal(signal.SIGTERM)
    with delayed_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_delay_no_signal(noted):
    seen = []

    def inside():
        with delayed_signals() as came:
            seen.append((came(), signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
