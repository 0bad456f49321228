import os
import subprocess
import sys
import time
from pathlib import Path

from pipeline.store.lease import Lease


def test_only_one_owner_holds_a_lease(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "x.lease", "a", 30), Lease(tmp_path / "x.lease", "b", 30)
    assert first.acquire()
    assert not second.acquire()
    assert (first.held(), second.held()) == (True, False)
    first.release()
    assert second.acquire()
    assert not first.renew()


def test_a_lease_that_is_not_renewed_expires(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "x.lease", "a", 10), Lease(tmp_path / "x.lease", "b", 10)
    first.acquire()
    old = time.time() - 11
    os.utime(first.path, (old, old))
    assert second.acquire()
    assert not first.renew()
    first.release()
    assert (second.holder() or {})["owner"] == "b"


def test_a_renewed_lease_does_not_expire(tmp_path: Path) -> None:
    first, second = Lease(tmp_path / "x.lease", "a", 10), Lease(tmp_path / "x.lease", "b", 10)
    first.acquire()
    old = time.time() - 11
    os.utime(first.path, (old, old))
    assert first.renew()
    assert not second.acquire()


def test_the_lease_of_a_dead_process_of_this_host_expires_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.lease"
    imports = "from pathlib import Path; from pipeline.store.lease import Lease"
    code = f"{imports}; print(Lease(Path({str(path)!r}), 'a', 1e9).acquire())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert Lease(path, "b", 1e9).acquire()


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
