"""Tests of leases: who holds one, when it expires, and what a holder can do that slept too long."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.host import HOST, RealHost
from pipeline.store.lease import Lease
from stages.errors import LeaseLostError, TransientError


class Machine(RealHost):
    """A machine with a name, a kernel, clocks and processes of its own."""

    def __init__(self, boot: str = "boot 1", namespace: str = "pid:[1]", pid: int = 7, now: float = 1e9) -> None:
        self.identity = {"host": "worker-0", "boot": boot, "namespace": namespace, "pid": pid, "started": 100}
        self.now, self.running = now, {pid}

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def process(self) -> dict[str, Any]:
        return self.identity

    def runs(self, process: Mapping[str, Any]) -> bool | None:
        seen = all(process.get(key) == self.identity[key] for key in ("boot", "namespace"))
        return process["pid"] in self.running if seen else None


def leases(tmp_path: Path, *machines: Machine, seconds: float = 30) -> list[Lease]:
    return [Lease(tmp_path / "x.lease", name, seconds, machine) for name, machine in zip("abc", machines, strict=False)]


def test_only_one_owner_holds_a_lease(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "x.lease", "a", 30), Lease(tmp_path / "x.lease", "b", 30)
    assert first.acquire()
    assert not second.acquire()
    assert (first.held(), second.held()) == (True, False)
    first.release()
    assert second.acquire()
    assert not first.renew()


def test_a_lease_that_is_not_renewed_expires(tmp_path: Path) -> None:
    here, there = Machine(), Machine("boot 2")
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    for now, taken in ((0, False), (29, False), (31, True)):
        there.now = now
        assert second.acquire() is taken
    assert not first.renew()
    first.release()
    assert (second.holder() or {})["owner"] == "b"
    with pytest.raises(LeaseLostError, match="expected the lease of a, but b holds it"):
        first.check()


def test_a_renewed_lease_does_not_expire(tmp_path: Path) -> None:
    here, there = Machine(), Machine("boot 2")
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    for now in range(0, 300, 20):
        there.now = now
        assert not second.acquire()
        assert first.renew()


def test_a_clock_that_is_an_hour_ahead_takes_no_lease(tmp_path: Path) -> None:
    """Neither the first look at a lease nor the time of its file says how old it is."""
    here, there = Machine(now=1e9), Machine("boot 2", now=1e9 + 3600)
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    assert not second.acquire()
    there.now += 29
    assert not second.acquire()


def test_a_process_of_another_container_with_the_same_name_and_pid_is_not_mistaken_for_an_ended_one(tmp_path: Path) -> None:
    """It is the first process of its container, as this one is, and it started at another time."""
    for n, other in enumerate((Machine(namespace="pid:[2]"), Machine("boot 2"))):
        here = Machine()
        here.running = set()
        first, second = leases(tmp_path / str(n), other, here)
        assert first.acquire()
        assert not second.acquire()
        assert first.held()


def test_a_process_that_has_ended_loses_its_lease_at_once(tmp_path: Path) -> None:
    here = Machine()
    first, second = leases(tmp_path, Machine(pid=6), here)
    assert first.acquire()
    here.running = {6, 7}
    assert not second.acquire()
    here.running = {7}
    assert second.acquire()


def test_the_lease_of_a_dead_process_of_this_host_expires_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.lease"
    imports = "from pathlib import Path; from pipeline.store.lease import Lease"
    code = f"{imports}; print(Lease(Path({str(path)!r}), 'a', 1e9).acquire())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert Lease(path, "b", 1e9).acquire()


def test_this_process_runs_until_another_one_has_its_pid() -> None:
    process = HOST.process()
    assert HOST.runs(process) is True
    assert HOST.runs({**process, "started": 1}) is False
    assert HOST.runs({**process, "namespace": "pid:[1]"}) is None
    assert HOST.runs({"owner": "of an unreadable lease"}) is None


def test_a_process_that_proc_hides_is_not_taken_for_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid, usual on shared machines, /proc shows no process of another user: the counter decides."""
    process, now = HOST.process(), 0.0
    ended = subprocess.Popen(["true"])
    assert HOST.runs({**process, "pid": 1, "started": 1}) is False
    ended.wait()
    here = RealHost()
    monkeypatch.setattr(here, "process", lambda: process, raising=False)
    holder = Lease(tmp_path / "x.lease", "a", 30, here)
    assert holder.acquire()
    monkeypatch.setattr("pipeline.store.host._started", lambda pid: None)
    assert HOST.runs(process) is None
    assert HOST.runs({**process, "pid": 1}) is None
    assert HOST.runs({**process, "pid": ended.pid}) is False
    host = RealHost()
    monkeypatch.setattr(host, "monotonic", lambda: now, raising=False)
    other = Lease(tmp_path / "x.lease", "b", 30, host)
    for _ in range(3):
        assert not other.acquire()
        now += 20
        assert holder.renew()
    now += 31
    assert not other.acquire()
    now += 31
    assert other.acquire()


def test_a_holder_that_slept_does_not_touch_the_lease_of_its_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was paused between opening its file and writing to it."""
    here, there = Machine(), Machine("boot 2")
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    real = first._content

    def paused(renewals: int, *, released: bool) -> bytes:
        there.now += 60
        second.acquire()
        there.now += 60
        assert second.acquire()
        return real(renewals, released=released)

    monkeypatch.setattr(first, "_content", paused)
    first.renew()
    assert second.held()
    assert not first.held()
    assert json.loads((tmp_path / "x.lease-2").read_text())["owner"] == "b"


def test_of_two_that_take_over_an_expired_lease_one_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is paused before it creates its file. Meanwhile the other takes the lease and a third one after it."""
    dead, slow, fast, last = (Machine(f"boot {n}") for n in range(4))
    gone, sleeper, quick = leases(tmp_path, dead, slow, fast)
    third = Lease(tmp_path / "x.lease", "d", 30, last)
    assert gone.acquire()
    assert not any(lease.acquire() for lease in (sleeper, quick))
    slow.now += 60
    fast.now += 60
    real = sleeper._create

    def paused(number: int, earlier: list[Path]) -> bool:
        assert quick.acquire()
        assert not third.acquire()
        last.now += 60
        assert third.acquire()
        return real(number, earlier)

    monkeypatch.setattr(sleeper, "_create", paused)
    assert not sleeper.acquire()
    assert [lease.held() for lease in (sleeper, quick, third)] == [False, False, True]


def test_a_lease_whose_creation_was_cut_off_expires(tmp_path: Path) -> None:
    there = Machine()
    (tmp_path / "x.lease-4").touch()
    lease = Lease(tmp_path / "x.lease", "a", 30, there)
    assert not lease.acquire()
    there.now += 31
    assert lease.acquire()


def test_a_second_owner_waits_until_it_meets_the_first(tmp_path: Path) -> None:
    here, there = Machine(), Machine("boot 2")
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    there.sleep = lambda seconds: first.renew()  # type: ignore[method-assign, assignment]
    assert not second.acquire_or_meet()
    del there.sleep
    before = there.now
    assert Lease(second.path, "c", 30, there).acquire_or_meet()
    assert there.now - before > 30


def test_one_of_several_simultaneous_processes_acquires_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "x.lease"
    code = (
        "import sys, time; from pathlib import Path; from pipeline.store.lease import Lease\n"
        f"got = Lease(Path({str(path)!r}), sys.argv[1], 1e9).acquire(); print(got, flush=True); sys.stdin.read()"
    )
    peers = [
        subprocess.Popen([sys.executable, "-c", code, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    answers = [peer.stdout.readline().strip() for peer in peers if peer.stdout]
    for peer in peers:
        peer.communicate("")
    assert sorted(answers) == ["False", "False", "False", "True"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
@pytest.mark.parametrize("call", ["read_bytes", "iterdir"])
def test_a_lease_that_cannot_be_read_is_an_error_after_a_bounded_time(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Machine(), Machine("boot 2", now=0.0)
    first, second = leases(tmp_path, here, there)
    assert first.acquire()
    failures = [0]
    real = getattr(Path, call)

    def failing(path: Path) -> Any:
        if failures[0]:
            failures[0] -= 1
            raise OSError(number, os.strerror(number))
        return real(path)

    monkeypatch.setattr(Path, call, failing)
    failures[0] = 2
    assert not second.acquire()  # it passes
    for use in (second.acquire, second.held, second.taken, second.check, second.watch):
        failures[0] = 1000
        with pytest.raises(TransientError, match=rf"x\.lease: the lease could not be read: {os.strerror(number)}"):
            use()
    assert there.now < 60
    failures[0] = 1000
    first.release()
    failures[0] = 0
    assert first.held() == (call == "iterdir")  # its file is not found; its content is not needed
