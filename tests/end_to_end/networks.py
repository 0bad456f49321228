"""A Ray cluster over machines whose cables can be pulled: network namespaces of this machine, joined by a switch.

A machine has processes and a network of its own, and the disk of all. Needs iproute2 and the right to make namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.end_to_end.nodes import patience
from tests.end_to_end.runs import ROOT, Watched
from tests.processes import SLOW_SECONDS, command_of

SUBNET = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
"""Ray looks for other nodes with its address on the whole machine, whatever their namespace: networks of two processes differ."""
PORT = 6379
STARTED = "Ray runtime started"
CABLE = "eth0"
ENVIRONMENT = (
    f"GLOO_SOCKET_IFNAME={CABLE}",  # gloo would take the address that belongs to the name of this machine
    "RAY_AUTH_MODE=token",
    f"RAY_AUTH_TOKEN={'0123456789abcdef' * 4}",
)
"""Variables of all processes on the machines. Nodes would otherwise disagree about tokens, by who has found one first."""
NOWHERE = "02:00:00:00:00:00"
"""The hardware address of no machine."""


def obstacle() -> str:
    """Return the reason why this machine cannot make network namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "needs the command ip (on Debian: iproute2)"
    name = f"fewstep-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        bridge = ["ip", "-n", name, "link", "add", "bridge", "type", "bridge"]
        made = subprocess.run(bridge, capture_output=True, text=True, check=False)
        _ip("netns", "delete", name)
    return f"network namespaces and bridges are not allowed: {made.stderr.strip()}" if made.returncode else ""


class Machine:
    """A namespace with one cable to the switch, in which a node of Ray runs."""

    def __init__(self, network: Network, number: int) -> None:
        self.address = f"{SUBNET}.{number}"
        self._name, self._switch, self._cable = network.namespace(str(number)), network.switch, f"cable{number}"
        _ip("-n", self._switch, "link", "add", self._cable, "type", "veth", "peer", "name", CABLE, "netns", self._name)
        _ip("-n", self._switch, "link", "set", self._cable, "master", "bridge", "up")
        _ip("-n", self._name, "address", "add", f"{self.address}/24", "dev", CABLE)
        _ip("-n", self._name, "link", "set", CABLE, "up")

    def command(self, *command: str) -> list[str]:
        """Return a command that runs `command` on the machine."""
        return ["ip", "netns", "exec", self._name, "env", *ENVIRONMENT, *command]

    def start_ray(self, log: Path, *options: str) -> None:
        """Start a node of Ray with these options of `ray start`, and wait until it is there."""
        program = [sys.executable, "-m", "tests.end_to_end.networks", f"--node-ip-address={self.address}", *options]
        with log.open("w") as output:
            process = subprocess.Popen(self.command(*program), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + SLOW_SECONDS
        while STARTED not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def cut(self) -> None:
        """Pull the cable: packets to and from the machine are lost in silence."""
        _ip("-n", self._switch, "link", "set", self._cable, "down")

    def lose_packets_to(self, other: Machine) -> None:
        """Lose the packets to one other machine in silence."""
        _ip("-n", self._name, "neighbour", "replace", other.address, "lladdr", NOWHERE, "dev", CABLE, "nud", "permanent")

    def find(self, other: Machine) -> None:
        """Send packets to one other machine again."""
        _ip("-n", self._name, "neighbour", "delete", other.address, "dev", CABLE)

    def raylet(self) -> int:
        """Return the process that manages the node of Ray."""
        return min(pid for pid in self._pids() if b"/raylet/raylet\0" in command_of(pid))

    def stop(self) -> None:
        """Kill all processes of the machine."""
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", self._name], capture_output=True, text=True, check=True)
        return [int(pid) for pid in done.stdout.split()]


class Network:
    """A switch and the machines at it. The first one is the head of a Ray cluster, without CPUs."""

    def __init__(self, folder: Path) -> None:
        """`folder` takes the output of the nodes."""
        self._names: list[str] = []
        self._folder = folder
        self.machines: list[Machine] = []
        self.switch = self.namespace("switch")
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")

    @property
    def address(self) -> str:
        """The address of the cluster."""
        return f"{self.machines[0].address}:{PORT}"

    def add(self) -> Machine:
        """Add a machine with a node of Ray, which has one CPU if it is not the head."""
        number = len(self.machines)
        machine = Machine(self, number + 1)
        self.machines.append(machine)
        head = ("--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")
        worker = (f"--address={self.address}", "--num-cpus=1")
        machine.start_ray(self._folder / f"node{number}", *(worker if number else head))
        return machine

    def namespace(self, name: str) -> str:
        """Make a namespace and return its full name."""
        full = f"fewstep-{os.getpid()}-{name}"
        _ip("netns", "add", full)
        self._names.append(full)
        _ip("-n", full, "link", "set", "lo", "up")
        return full

    def close(self) -> None:
        """Kill all processes of the machines and remove the namespaces."""
        for machine in self.machines:
            machine.stop()
        for name in self._names:
            _ip("netns", "delete", name)


class RunAt(Watched):
    """A run whose driver is on a machine of a network."""

    def __init__(self, machine: Machine, store: Path, *options: str) -> None:
        super().__init__(store, *options)
        self._machine = machine

    def command(self) -> list[str]:
        return self._machine.command(*super().command())


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Yield a network without machines and remove it afterwards. `folder` takes the output of the nodes."""
    made = Network(folder)
    try:
        yield made
    finally:
        made.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    from ray.scripts.scripts import cli

    with patience():
        cli(["start", "--block", "--disable-usage-stats", "--object-store-memory=100000000", *sys.argv[1:]])
