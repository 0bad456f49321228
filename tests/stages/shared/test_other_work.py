"""How busy a machine is with other work: from a made `/proc`, and from the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.shared import environment
from stages.shared.environment import OtherWork, is_loaded

TICKS = os.sysconf("SC_CLK_TCK")
SPIN = "import time\nwhile time.process_time() < 0.3: pass\n"


def process(proc: Path, number: int, parent: int, *times: int, name: str = "python") -> None:
    (proc / str(number)).mkdir(exist_ok=True)
    fields = ["S", parent, *range(5, 14), *times, 20, 0]
    (proc / str(number) / "stat").write_text(f"{number} ({name}) {' '.join(map(str, fields))}\n")


def machine(proc: Path, user: int = 0, system: int = 0, idle: int = 0, stolen: int = 0) -> None:
    (proc / "stat").write_text(f"cpu  {user} 0 {system} {idle} 700 0 0 {stolen} 900 0\ncpu0 1 2 3\n")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed, for tests to change."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_own_work_and_that_of_descendants_is_no_other_work(tmp_path: Path, clock: list[float]) -> None:
    me = os.getpid()
    machine(tmp_path, user=1_000_000 * TICKS)
    process(tmp_path, me, 1, 3, 4, 5, 6)
    process(tmp_path, me + 2, me + 1, 0, 0, 0, 0, name="a) S 1")
    process(tmp_path, me + 1, me, 7 * TICKS, 0, 0, 0)
    process(tmp_path, 1, 0, 50, 0, 0, 0)
    work = OtherWork(tmp_path)
    clock[0] += 10
    assert work.processors() == 0.0
    machine(tmp_path, user=1_000_020 * TICKS, system=TICKS, idle=99 * TICKS, stolen=2 * TICKS)
    process(tmp_path, me, 1, 3 + 9 * TICKS, 4 + TICKS, 5 + 2 * TICKS, 6 + TICKS)  # a child has ended and was waited for
    process(tmp_path, me + 2, me + 1, TICKS, 0, 0, 0, name="a) S 1")
    process(tmp_path, me + 1, me, 9 * TICKS, TICKS, 0, 0)
    process(tmp_path, 1, 0, 5000, 0, 0, 0)
    assert work.processors() == pytest.approx((20 + 1 + 2 - 13 - 1 - 3) / 10)


def test_it_is_unknown_without_the_kernels_figures(tmp_path: Path, clock: list[float]) -> None:
    work = OtherWork(tmp_path)
    clock[0] += 1
    assert work.processors() is None
    assert not is_loaded({"other_processors": None, "cpus": 2})


def test_the_work_of_a_child_is_own_work_on_this_machine() -> None:
    before = environment._own_ticks(environment.PROC)
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert environment._own_ticks(environment.PROC) - before >= 0.25 * TICKS


@pytest.mark.parametrize(("busy", "cpus", "loaded"), [(0.2, 2, False), (0.21, 2, True), (0.21, 4, False), (1.0, 4, True)])
def test_a_machine_is_loaded_from_a_tenth_of_its_processors(busy: float, cpus: int, loaded: bool) -> None:
    assert is_loaded({"other_processors": busy, "cpus": cpus}) == loaded
