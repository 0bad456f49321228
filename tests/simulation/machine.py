"""A simulated machine, a `pipeline.store.host.Host`: the calls of a process to the file system, its clocks and its identity."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.disk import Change, Disk, File, Folder, error
from tests.simulation.paths import SimulatedPath, Status
from tests.simulation.scheduler import Died, Process, Scheduler

if TYPE_CHECKING:
    from tests.simulation.world import World

A = TypeVar("A")
B = TypeVar("B")
STALE_SECONDS = 20.0
"""Time for which a client of NFS may believe a listing of names."""


@dataclass(frozen=True)
class Clocks:
    """The clocks of a machine: how far the time of day is off, and how fast the machine counts seconds."""

    offset: float = 0.0
    rate: float = 1.0


class Machine:
    """The machine of one process, with a class of paths of its own."""

    def __init__(self, world: World, process: Process, identity: Mapping[str, Any], clocks: Clocks, *, stale: bool = False) -> None:
        self.world, self.runner, self.identity, self.clocks = world, process, dict(identity), clocks
        self.scheduler: Scheduler = world.scheduler
        self.disk_state: Disk = world.disk
        self.lasting = set[Path]()
        self._listings: dict[int, tuple[float, list[str]]] | None = {} if stale else None
        self.path: type[SimulatedPath] = type("PathOf" + process.name, (SimulatedPath,), {"machine": self})

    @property
    def disk(self) -> Machine:
        return self

    @property
    def actor(self) -> str:
        """The attempt, or else the process, that calls."""
        task = self.scheduler.current
        return (task.attempt if task else "") or self.runner.name

    # The clocks and processes of `Host`.

    def time(self) -> float:
        return 1e9 + self.scheduler.now + self.clocks.offset

    def monotonic(self) -> float:
        return self.scheduler.now * self.clocks.rate

    def sleep(self, seconds: float) -> None:
        self._check_alive()
        self.scheduler.switch(seconds / self.clocks.rate)

    def token(self) -> str:
        return f"{self.scheduler.rng.getrandbits(32):08x}"

    def process(self) -> dict[str, Any]:
        return dict(self.identity)

    def runs(self, process: Mapping[str, Any]) -> bool | None:
        if any(process.get(key) != self.identity[key] for key in ("boot", "namespace")):
            return None
        return self.world.runs(process)

    # The calls of `Disk` that paths lack.

    def sync(self, path: SimulatedPath) -> None:
        self.write("sync")
        node = self.disk_state.find(path.parts[1:])
        if node is None:
            raise error(errno.ENOENT, path)
        self.disk_state.sync(node)

    def walk(self, directory: SimulatedPath, skip: Sequence[str] = ()) -> tuple[list[str], list[str]]:
        files: list[str] = []
        folders = [""]
        for folder in folders:
            for path in (directory / folder).iterdir():
                name = f"{folder}/{path.name}" if folder else path.name
                if path.is_dir() and (folder or path.name not in skip):
                    folders.append(name)
                elif path.is_file() and (folder or path.name not in skip):
                    files.append(name)
        return sorted(files), folders

    def statuses(self, directory: SimulatedPath, names: Iterable[str]) -> list[Status | None]:
        return [path.stat() if path.exists() else None for path in (directory / name for name in names)]

    def digests(self, directory: SimulatedPath, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        contents = ((directory / name).read_bytes() for name in names)
        return ((len(content), hashlib.sha256(content).hexdigest()) for content in contents)

    def sync_all(self, directory: SimulatedPath, names: Sequence[str]) -> None:
        self.each(self.sync, [directory / name for name in names], 1)

    def each(self, function: Callable[[A], B], items: Iterable[A], at_once: int) -> list[B]:
        shuffled = list(enumerate(items))
        self.scheduler.rng.shuffle(shuffled)
        results = {number: function(item) for number, item in shuffled}
        return [results[number] for number in sorted(results)]

    def remove_tree(self, path: SimulatedPath) -> None:
        try:
            for child in list(path.iterdir()):
                self.remove_tree(child)
            path.rmdir()
        except NotADirectoryError:
            path.unlink(missing_ok=True)
        except OSError:
            return

    def exchange(self, first: SimulatedPath, second: SimulatedPath) -> None:
        self.write("rename")
        one, other = self.disk_state.find(first.parts[1:]), self.disk_state.find(second.parts[1:])
        if one is None or other is None:
            raise error(errno.ENOENT, first if one is None else second)
        folders = [self.disk_state.folder(path.parts[1:-1]) for path in (first, second)]
        self.change([(folders[0], first.name, other), (folders[1], second.name, one)])

    @contextmanager
    def lock(self, path: SimulatedPath, *, shared: bool, holder: str, waiting: Callable[[str], object]) -> Iterator[None]:
        held = self.world.locks.setdefault(str(path), [])
        while any(other.alive and not (shared and other_shared) for other, other_shared in held):
            self.sleep(0.2)
        held.append((self.runner, shared))
        try:
            yield
        finally:
            held.remove((self.runner, shared))

    def mounts(self) -> frozenset[str]:
        return frozenset()

    # What paths call.

    def read(self) -> None:
        """Make a call that changes nothing."""
        self._check_alive()
        self.scheduler.pass_time()

    def write(self, kind: str) -> None:
        """Make a call that changes something. Faults happen before it takes effect."""
        self._check_alive()
        self.scheduler.pass_time()
        self.world.before_write(self, kind)

    def names(self, folder: Folder) -> list[str]:
        """Return the names in a directory. A client of NFS may see those of a while ago."""
        if self._listings is None:
            return sorted(folder.entries)
        known = self._listings.get(id(folder))
        if known is None or known[0] < self.scheduler.now:
            known = self._listings[id(folder)] = (self.scheduler.now + STALE_SECONDS, sorted(folder.entries))
        return known[1]

    def change(self, change: Change) -> None:
        self.disk_state.change(change, self.scheduler.now)
        for folder, name, node in change:
            self.world.check_change(self, folder, name, node)
            if self._listings is not None:
                self._listings.pop(id(folder), None)  # its own changes are seen at once

    def written(self, file: File) -> None:
        self.world.check_written(self, file)

    def renamed(self, source: SimulatedPath, target: SimulatedPath) -> None:
        self.world.check_renamed(self, source, target)

    def _check_alive(self) -> None:
        if not self.runner.alive:
            raise Died
