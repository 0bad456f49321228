"""Simulated object storage, on which an object appears as a whole when its upload ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from pipeline.store.object_storage import Folder
from pipeline.store.streams import DamagedError
from stages.errors import StageError
from tests.simulation.machine import Machine
from tests.simulation.scheduler import Violation
from tests.simulation.world import World


class Bucket:
    """The objects, which survive all processes. Its calls are counted, and some fail."""

    def __init__(self, world: World) -> None:
        self._world, self._objects, self._calls = world, dict[str, bytes](), 0

    def folder(self, machine: Machine) -> Folder:
        return BucketFolder(self, machine)

    def call(self, machine: Machine) -> dict[str, bytes]:
        """Return the objects. Raises StageError if this call fails."""
        machine.read()
        self._calls += 1
        if self._calls in self._world.faults.objects:
            self._world.counts["failed object calls"] += 1
            raise StageError("mirror: could not be reached")
        return self._objects

    def check(self) -> None:
        """Check that an index or a manifest names only what is there."""
        for name in self._objects:
            if name.endswith(".partial/index.json"):
                index = json.loads(self._objects[name])
                self._check(name, index["version"], index["files"])
            elif name.endswith("/manifest.json") and name.count("/") == 2:
                manifest = json.loads(self._objects[name])
                self._check(name, manifest["attempt"], manifest["files"])

    def _check(self, name: str, version: str, files: dict[str, Any]) -> None:
        for file, entry in files.items():
            data = self._objects.get(f"{name.rpartition('/')[0]}/{version}/{file}")
            if data is None or hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise Violation(f"mirror: {name} names {version}/{file}, which is {'damaged' if data else 'missing'}")


class BucketFolder(Folder):
    """The bucket as one process sees it."""

    def __init__(self, bucket: Bucket, machine: Machine) -> None:
        self.url, self._bucket, self._machine = "mirror:", bucket, machine

    def read(self, name: str) -> bytes | None:
        return self._bucket.call(self._machine).get(name)

    def write(self, name: str, data: bytes) -> None:
        self._bucket.call(self._machine)[name] = data
        self._bucket.check()

    def upload(self, name: str, path: Any) -> dict[str, Any]:
        data = path.read_bytes()
        self.write(name, data)
        return _entry(data)

    def download(self, name: str, path: Any, expected: dict[str, Any]) -> None:
        data = self._bucket.call(self._machine).get(name)
        if data is None or _entry(data) != expected:
            raise DamagedError(f"expected {expected}, got {'nothing' if data is None else _entry(data)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def sizes(self, prefix: str) -> dict[str, int]:
        objects = self._bucket.call(self._machine)
        return {name: len(data) for name, data in objects.items() if name.startswith(f"{prefix}/")}

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._bucket.call(self._machine).pop(name, None)
            self._bucket.check()


def _entry(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
