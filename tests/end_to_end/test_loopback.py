"""The servers of a local Ray cluster are reachable from this machine only."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import descendants
from tests.waiting import SLOW_SECONDS, until

pytestmark = [pytest.mark.slow, pytest.mark.ray]

PROGRAM = """
import sys
from pipeline.config.schema import Cluster
from pipeline.run.ray_cluster.connection import connect_ray

machines = connect_ray(Cluster(cpus=1))
print("ready", flush=True)
sys.stdin.read()
machines.close()
"""
LISTENING = "0A"
LOOPBACK = re.compile(r"0100007F|0000000000000000FFFF00000100007F|0{24}01000000")
"""127.0.0.1, the same as an IPv6 address, and ::1, as in /proc/net/tcp."""


def sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
        except OSError:
            continue
    return found


def listening(inodes: set[str]) -> list[str]:
    """Return the addresses, in hexadecimal, at which these sockets listen."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == LISTENING and line[9] in inodes]


def addresses_of(pid: int) -> list[str]:
    """Return the addresses at which a process and its descendants listen."""
    return listening(set().union(*(sockets(found) for found in descendants(pid))))


def is_ready(process: "subprocess.Popen[str]", sign: str) -> bool:
    """Wait for a line that begins with `sign`. Return False if the process ends before."""
    assert process.stdout is not None
    return any(line.startswith(sign) for line in process.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("program", ["pipeline", "serve"])
def test_local_ray_listens_on_loopback_alone(program: str, systems: dict[str, Path]) -> None:
    serve = ["-m", "fewstep", "serve", str(systems["autoregressive"]), "--ray", "--port", "0", "--cpus", "0.5"]
    arguments, sign = {"pipeline": (["-c", PROGRAM], "ready"), "serve": (serve, "serving ")}[program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **pipes) as process:
        try:
            assert is_ready(process, sign)
            until(lambda: len(addresses_of(process.pid)) > 5, SLOW_SECONDS)
            addresses = addresses_of(process.pid)
        finally:
            process.terminate()
            process.wait(SLOW_SECONDS)
    assert [address for address in addresses if not LOOPBACK.fullmatch(address)] == []
