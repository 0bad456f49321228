"""Histories: two drivers or more work on one plan, faults of one class hit them, and undisturbed drivers finish the work."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.run.execute import required
from pipeline.store.artifacts import Store
from pipeline.store.mirror import Mirror
from tests.simulation.machine import Clocks, Machine
from tests.simulation.objects import Bucket
from tests.simulation.programs import LEASE_SECONDS, PIECES, collect, drive, make_plan, problems
from tests.simulation.scheduler import Violation
from tests.simulation.world import Faults, World

PLACE = "/store"
CHANGES = 280
"""Changes of the file system in a history of two drivers without faults, about."""

DISTURBANCES = ("kills", "power cuts", "pauses", "flipped bits")

Rng = random.Random


def _some(rng: Rng, most: int) -> set[int]:
    return {rng.randrange(1, CHANGES) for _ in range(rng.randint(1, most))}


def _pauses(rng: Rng, most: int) -> dict[int, float]:
    """Pauses of up to four times the duration of a lease."""
    return {number: LEASE_SECONDS * rng.uniform(0.2, 4.0) for number in _some(rng, most)}


@dataclass(frozen=True)
class FaultClass:
    """The faults of a history, and how its drivers see each other."""

    faults: Callable[[Rng], Faults]
    same_kernel: float = 0.5
    """Probability with which a driver runs on the kernel of the first one, whose processes it sees."""
    skewed: bool = False
    """Whether the clocks of the drivers differ, by up to two hours and 30 %."""
    equal_names: bool = False
    """Whether all drivers have the same host name and pid, in containers of their own."""
    stale: bool = False
    """Whether listings of names are up to 20 seconds old, as with NFS."""
    gc: bool = False
    """Whether `gc --delete` runs beside the drivers."""
    mirror: bool = False
    """Whether the drivers have a mirror, and perhaps stores of their own."""


CLASSES = {
    "power": FaultClass(lambda rng: Faults(cuts=_some(rng, 2)), same_kernel=1.0),
    "reorder": FaultClass(lambda rng: Faults(cuts=_some(rng, 2), reordered=True), same_kernel=1.0),
    "kill": FaultClass(lambda rng: Faults(kills=_some(rng, 3))),
    "error": FaultClass(lambda rng: Faults(errors=_some(rng, 2))),
    "pause": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 5))),
    "clock": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 3), kills=_some(rng, 1)), same_kernel=0.2, skewed=True),
    "names": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 3), kills=_some(rng, 2)), equal_names=True),
    "nfs": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 3), kills=_some(rng, 2)), same_kernel=0.2, stale=True),
    "gc": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 3), kills=_some(rng, 2)), gc=True),
    "rot": FaultClass(lambda rng: Faults(rot=_some(rng, 3), kills=_some(rng, 1))),
    "mirror": FaultClass(lambda rng: Faults(pauses=_pauses(rng, 2), kills=_some(rng, 2), objects=_some(rng, 3)), mirror=True),
    "everything": FaultClass(
        lambda rng: Faults(cuts=_some(rng, 1), kills=_some(rng, 1), errors=_some(rng, 1), pauses=_pauses(rng, 2)),
        skewed=True, gc=True,
    ),
}  # fmt: skip


class History:
    """One history, which its fault class and seed determine."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.rng = CLASSES[kind], random.Random(f"{kind} {seed}")
        self.world = World(self.rng, self.kind.faults(self.rng), stale=self.kind.stale)
        self._bucket = Bucket(self.world) if self.kind.mirror else None
        self._places = [PLACE]
        if self.kind.mirror and self.rng.random() < 0.5:
            self._places.append("/other")

    def run(self) -> Counter[str]:
        """Run the history and return what happened. Raises Violation if an invariant does not hold."""
        try:
            for _ in range(2):
                self._start_driver(self.rng.choice(self._places))
            if self.kind.gc:
                machine = self.world.start("gc", kernel=f"kernel {self.rng.randint(0, 1)}")
                self.world.scheduler.spawn(machine.runner, lambda: collect(machine, PLACE))
            self.world.scheduler.run(lambda: False)
            self._finish()
            self._check()
            return self.world.counts + Counter({"histories": 1, "changes": self.world.changes})
        finally:
            self.world.scheduler.close()

    def _start_driver(self, place: str, *, disturbed: bool = True) -> Machine:
        """Start a driver, on the kernel of others or on another one."""
        number, kind = len(self.world.processes), self.kind
        kernel = "kernel 0" if not disturbed or self.rng.random() < kind.same_kernel else f"kernel {number}"
        identity = {"host": "worker-0", "pid": 7, "namespace": f"pid:[{number}]"} if kind.equal_names else {}
        skew = Clocks(self.rng.uniform(-7200, 7200), self.rng.uniform(0.7, 1.3)) if kind.skewed else None
        machine = self.world.start("driver", clocks=skew, kernel=kernel, **identity)
        bucket = self._bucket
        mirror = (lambda store: Mirror("mirror:", store, bucket.folder(machine))) if bucket else None
        self.world.scheduler.spawn(machine.runner, lambda: drive(machine, place, mirror))
        return machine

    def _finish(self) -> None:
        """Start drivers without further faults until everything is finished: one is enough, unless an artifact is damaged."""
        world = self.world
        world.counts.update(dict.fromkeys(("failures",), len(world.failures)))
        self._check_failures()
        world.faults = Faults()
        for place in self._places:
            if world.rotten:
                self._remove_damaged(place)
            world.failures = []
            self._start_driver(place, disturbed=False)
            world.scheduler.run(lambda: False)
            if world.failures:
                raise Violation(f"an undisturbed run failed: {world.failures}")

    def _check_failures(self) -> None:
        """Check that only faults that are reported as errors make steps and drivers fail."""
        may_fail = self.world.faults.errors or self.world.rotten or self.world.faults.objects
        if self.world.failures and not may_fail:
            raise Violation(f"a run failed: {self.world.failures}")

    def _remove_damaged(self, place: str) -> None:
        """Do what the error messages for damaged artifacts ask for."""
        machine = self.world.start("verifier", kernel="kernel 0")

        def verify() -> None:
            found = list(problems(machine, place))
            paths = {path for path in self.world.rotten if path.startswith(f"{place}/") and self._is_result(path)}
            for path in sorted(paths):
                if not any(path.rpartition("/")[0] in problem for problem in found) and self._differs(path):
                    raise Violation(f"{path} is damaged, and verify_all does not find it: {found}")
            for path in {path.rpartition("/")[0] for path in self.world.rotten if self._is_result(path)}:
                machine.remove_tree(machine.path(path))
            self.world.rotten = set()

        self.world.scheduler.spawn(machine.runner, verify)
        self.world.scheduler.run(lambda: False)

    @staticmethod
    def _is_result(path: str) -> bool:
        return path.count("/") == 4 and path.endswith(("/result", "/manifest.json"))

    def _differs(self, path: str) -> bool:
        """Return whether a damaged result is still there. (In a manifest, the bit may be in an unused field.)"""
        return path.endswith("/result") and self.world.disk.find(tuple(path.split("/")[1:])) is not None

    def _check(self) -> None:
        world = self.world
        world.check_all()
        for place in self._places:
            machine = world.start("check", kernel="kernel 0")
            world.scheduler.spawn(machine.runner, lambda machine=machine, place=place: self._check_finished(machine, place))
            world.scheduler.run(lambda: False)
        if self._bucket:
            self._bucket.check()
        faults = sum(count for kind, count in world.counts.items() if kind in DISTURBANCES or "failed" in kind)
        lost = sum(world.computed.values()) - len(world.computed)
        if lost > faults * PIECES and not self.kind.stale:
            raise Violation(f"{lost} pieces were made twice after {faults} faults")
        world.counts["pieces made twice"] += lost

    def _check_finished(self, machine: Machine, place: str) -> None:
        store = Store(machine.path(place), machine)  # type: ignore[arg-type]
        todo, _ = required(make_plan(store), store)
        if todo:
            raise Violation(f"{[step.name for step in todo]} are not finished")


def run_histories(kind: str, seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """Run histories; return what happened in all of them, and the violation of each seed that found one."""
    counts: Counter[str] = Counter()
    found: dict[int, str] = {}
    for seed in seeds:
        try:
            counts += History(kind, seed).run()
        except Exception as error:
            found[seed] = f"{type(error).__name__}: {error}"
    return counts, found
