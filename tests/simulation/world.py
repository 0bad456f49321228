"""The world of a history: one file system, the processes on it, the faults that hit them, and the invariants."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.disk import Disk, File, Folder, Node, error
from tests.simulation.machine import Clocks, Machine
from tests.simulation.paths import SimulatedPath
from tests.simulation.scheduler import Died, Process, Scheduler, Violation

FINGERPRINT = re.compile(r"[0-9a-f]{32}")
ATTEMPT = re.compile(r"[0-9a-f]{32}\.partial-([\w-]+)")
WORDS = 3
"""Number of writes that make up the result of a step."""


def piece(number: int) -> bytes:
    """Return the content of a piece, which is the same in all attempts."""
    return f"piece {number} ".encode() * 4


@dataclass
class Faults:
    """The faults of a history, by the number of the change of the file system that they hit."""

    kills: set[int] = field(default_factory=set)
    errors: set[int] = field(default_factory=set)
    cuts: set[int] = field(default_factory=set)
    pauses: dict[int, float] = field(default_factory=dict)
    """Seconds for which the process that makes the change is paused before it."""
    reordered: bool = False
    """Whether a power cut loses changes of names in any order."""
    rot: set[int] = field(default_factory=set)
    """Changes before which a bit of a finished artifact, a lease or a stamp flips."""
    objects: set[int] = field(default_factory=set)
    """Numbers of calls of the object storage that fail."""


class World:
    """Everything that a history consists of."""

    def __init__(self, rng: random.Random, faults: Faults, *, stale: bool = False) -> None:
        self.rng, self.faults, self.stale = rng, faults, stale
        self.scheduler, self.disk = Scheduler(rng), Disk()
        self.locks: dict[str, list[tuple[Process, bool]]] = {}
        self.processes: list[Machine] = []
        self.counts: Counter[str] = Counter()
        """Faults that happened, by kind, and other events."""
        self.changes = 0
        self.begun: dict[str, str] = {}
        """The latest attempt that began, by the path of its artifact."""
        self.committed: set[str] = set()
        self.saved: set[tuple[str, int]] = set()
        """Pieces that were saved, by the path of their artifact and their number."""
        self.computed: Counter[tuple[str, int]] = Counter()
        self.rotten: set[str] = set()
        """Paths of files of which a bit flipped."""
        self.failures: list[str] = []
        """Errors with which steps and drivers ended."""
        self.boot = 0

    def start(self, name: str, *, clocks: Clocks | None = None, kernel: str = "", **identity: Any) -> Machine:
        """Return the machine of a new process. Processes with an equal `kernel` see each other."""
        number = len(self.processes)
        whole = {"host": kernel, "boot": f"{kernel}-{self.boot}", "namespace": "pid:[1]", "pid": 100 + number, "started": number}
        machine = Machine(self, Process(f"{name}{number}"), whole | identity, clocks or Clocks(), stale=self.stale)
        self.processes.append(machine)
        return machine

    def runs(self, process: Mapping[str, Any]) -> bool:
        """Return whether the process with this identity runs."""
        return any(other.runner.alive and other.identity.items() <= process.items() for other in self.processes)

    # Faults.

    def before_write(self, machine: Machine, kind: str) -> None:
        """Let the faults happen that hit this change."""
        self.changes += 1
        number, faults, process = self.changes, self.faults, machine.runner
        if number in faults.rot:
            self._flip_a_bit()
        if number in faults.cuts:
            self.counts["power cuts"] += 1
            self.lose_power()
            raise Died
        if number in faults.kills:
            self.counts["kills"] += 1
            self.scheduler.kill(process)
            raise Died
        if number in faults.pauses:
            self.counts["pauses"] += 1
            process.paused_until = self.scheduler.now + faults.pauses[number]
            self.scheduler.switch()
        if number in faults.errors:
            self.counts[f"failed {kind}"] += 1
            raise error(errno.EIO, kind)

    def lose_power(self) -> None:
        """Cut the power. All processes end, and what was not synced may be lost."""
        for machine in self.processes:
            self.scheduler.kill(machine.runner)
        self.locks.clear()
        self.boot += 1
        self.disk.lose_power(self.rng, reordered=self.faults.reordered)
        self.check_all()
        for path in self.committed:
            if self._manifest(path) is None:
                raise Violation(f"{path} was committed and is lost")
        if not (self.faults.pauses or self.faults.errors):  # else an attempt may have begun without the pieces of another
            self._check_pieces()

    def _flip_a_bit(self) -> None:
        found = [(path, node) for path, node in self._files() if node.data and self._may_rot(path)]
        if found:
            path, node = found[self.rng.randrange(len(found))]
            position = self.rng.randrange(len(node.data))
            flipped = node.data[position] ^ (1 << self.rng.randrange(8))
            node.data = node.data[:position] + bytes([flipped]) + node.data[position + 1 :]
            self.rotten.add(path)
            self.counts["flipped bits"] += 1

    @staticmethod
    def _may_rot(path: str) -> bool:
        name = path.split("/")[3] if path.count("/") > 2 else ""
        return bool(FINGERPRINT.fullmatch(name)) or ".lease" in path or "/verified/" in path

    # Invariants.

    def check_written(self, machine: Machine, file: File) -> None:
        """Check that nobody writes to the file of another, and that an attempt without a lease writes to nothing that counts."""
        actor = machine.actor
        if file.creator != machine.runner.name:
            raise Violation(f"{actor} writes to a file of {file.creator}")
        if machine.scheduler.current and machine.scheduler.current.attempt:
            for path, node in self._files() if actor not in self.begun.values() else ():
                if node is file and f".partial-{actor}/" not in path and "/verified/" not in path and ".removed/" not in path:
                    raise Violation(f"{actor}, which lost its lease, writes to {path}")

    def check_change(self, machine: Machine, folder: Folder, name: str, node: Node | None) -> None:
        """Check that the collection of garbage removes nothing that a run needs. (All runs need all steps.)"""
        if node is None and machine.runner.name.startswith("gc"):
            if FINGERPRINT.fullmatch(name):
                raise Violation(f"gc removes the artifact {name}")
            if ATTEMPT.fullmatch(name) and name[:32] not in folder.entries:
                raise Violation(f"gc removes {name}, whose step is not finished")

    def check_renamed(self, machine: Machine, source: SimulatedPath, target: SimulatedPath) -> None:
        """Check an artifact when it gets its final name, and that no other attempt at it has begun meanwhile."""
        if FINGERPRINT.fullmatch(target.name):
            self.counts["commits"] += 1
            self._check_whole(str(target))
            attempt = ATTEMPT.fullmatch(source.name)
            if attempt and attempt[1] != self.begun.get(str(target)) and not self.stale:
                raise Violation(f"{attempt[1]} commits {target}, which {self.begun.get(str(target))} has begun")

    def check_start(self, path: str, attempt: str) -> None:
        """Check that a step is not executed whose artifact is finished."""
        if self._manifest(path) is not None and not self.stale and not self.rotten:
            raise Violation(f"{attempt} begins {path}, which is finished")
        if self.holder(path) == attempt:  # else it slept before it began
            self.begun[path] = attempt

    def holder(self, path: str) -> str:
        """Return the attempt that holds the lease on an artifact, or an empty string."""
        stage, name = path.rsplit("/", 1)
        entries = self.disk.folder(tuple(stage.split("/")[1:])).entries
        files = [(int(found[1]), entry) for entry in entries if (found := re.fullmatch(rf"{name}\.lease-(\d+)", entry))]
        node = entries[max(files)[1]] if files else None
        owner = re.search(rb'"owner": "([\w-]+)"', node.data) if isinstance(node, File) else None
        return owner[1].decode() if owner else ""

    def check_all(self) -> None:
        """Check all finished artifacts."""
        for path, _ in list(self._files()):
            folder, _, name = path.rpartition("/")
            if name == "manifest.json" and FINGERPRINT.fullmatch(folder.rpartition("/")[2]):
                self._check_whole(folder)

    def _check_pieces(self) -> None:
        """Check that saved pieces are there, in whatever directory."""
        parts = [path.split("/") for path, _ in self._files() if path.endswith("/state")]
        found = {(f"/{place}/{stage}/{name[:32]}", number) for _, place, stage, name, _, number, _ in parts}
        for path, number in self.saved:
            if (path, str(number)) not in found and self._manifest(path) is None:
                raise Violation(f"piece {number} of {path} was saved and is lost")

    def _check_whole(self, path: str) -> None:
        manifest = self._manifest(path)
        if manifest is None:
            raise Violation(f"{path} has no manifest")
        if any(rotten.startswith(f"{path}/") for rotten in self.rotten):
            return
        for name, entry in manifest["files"].items():
            node = self.disk.find((*path.split("/")[1:], *name.split("/")))
            if not isinstance(node, File) or hashlib.sha256(node.data).hexdigest() != entry["sha256"]:
                raise Violation(f"{path}: the manifest names {name}, which is {'damaged' if node else 'missing'}")
        result = self.disk.find((*path.split("/")[1:], "result"))
        expected = f"{manifest['attempt']} ".encode() * WORDS
        if not isinstance(result, File) or result.data != expected:
            raise Violation(
                f"{path}: expected the result {expected!r}, found {result.data if isinstance(result, File) else None!r}"
            )

    def _manifest(self, path: str) -> dict[str, Any] | None:
        node = self.disk.find((*path.split("/")[1:], "manifest.json"))
        if not isinstance(node, File):
            return None
        try:
            return dict(json.loads(node.data))
        except ValueError:
            if f"{path}/manifest.json" in self.rotten:
                return None
            raise Violation(f"{path}: the manifest is cut off") from None

    def _files(self) -> list[tuple[str, File]]:
        """Return the paths of all files."""
        return list(_walk(self.disk.root, ""))


def _walk(folder: Folder, path: str) -> Any:
    for name, node in list(folder.entries.items()):
        if isinstance(node, Folder):
            yield from _walk(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node
