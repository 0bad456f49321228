"""Signs of life, by clocks that the tests set."""

import os
import time
from pathlib import Path

import pytest

from stages.workers import pulse as pulses
from stages.workers.pulse import Watch, pulse


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pulses, "time", clock)
    return clock


def looks(watch: Watch, path: Path, clock: Clock, seconds: float, every: float = 1.0) -> list[bool]:
    found = []
    for _ in range(int(seconds / every)):
        clock.now += every
        found.append(watch.silent(path))
    return found


def test_a_file_that_is_not_touched_is_silent_after_the_given_time(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    assert not any(looks(watch, path, clock, 60))  # the process has not begun
    path.touch()
    watch.silent(path)
    assert looks(watch, path, clock, 11) == [False] * 9 + [True] * 2
    path.touch()
    assert looks(watch, path, clock, 11) == [False] * 10 + [True]
    path.unlink()
    assert not any(looks(watch, path, clock, 60))


def test_the_time_in_which_the_watching_process_was_stopped_is_no_silence(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    path.touch()
    watch.silent(path)
    clock.now += 3600
    assert not watch.silent(path)
    assert looks(watch, path, clock, 5)[-1]


def test_a_clock_of_the_file_system_that_is_wrong_does_not_matter(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    path.touch()
    for moment in (5e8, 4e9, 1e9, 3e9):
        os.utime(path, (moment, moment))
        assert not any(looks(watch, path, clock, 8))


def test_a_process_touches_its_file_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "p"
    with pulse(path, 0.08):
        seen: set[int] = set()
        while len(seen) < 3:
            if path.exists():
                seen.add(path.stat().st_mtime_ns)
            time.sleep(0.005)
    assert not path.exists()


def test_a_file_that_cannot_be_created_disturbs_nothing(tmp_path: Path) -> None:
    with pulse(tmp_path / "missing" / "p", 0.08):
        time.sleep(0.03)
