"""A disk that loses power: of a real directory tree, the contents and names that were synced so far."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Survivors = dict[str, bytes]
"""Relative path -> content of each file after a power cut."""

CALLS = ("fsync", "rename", "replace", "link", "unlink", "rmdir", "mkdir")


class SimulatedDisk:
    """Cuts the power before and after each call of `os` that syncs or changes names, and hands what is left to `check`.

    Two disks are simulated: one that keeps only the names of synced directories, and one that records every name at once. Both
    keep only what was synced of a file; otherwise it is empty.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Survivors], None]) -> None:
        self.root, self.check, self.cuts = root, check, 0
        self._lock = threading.RLock()
        self._files: dict[int, bytes] = {}
        self._names: dict[int, list[tuple[str, int, bool]]] = {}
        """(name, inode, whether it is a directory) in each synced directory."""
        self._record(os.fspath(root))
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(getattr(os, name), name == "fsync"))

    def survivors(self) -> Survivors:
        """The files of which the content, the name and the names of all folders were synced."""
        return dict(self._synced(self.root.stat().st_ino, ""))

    def cut(self) -> None:
        """Cut the power now, on both disks."""
        self.cuts += 1
        self.check(self.survivors())
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        self.check({str(path.relative_to(self.root)): self._files.get(path.stat().st_ino, b"") for path in paths})

    def _watched(self, function: Callable[..., Any], syncs: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self.cut()
                result = function(*arguments, **options)
                if syncs:
                    self._record(f"/proc/self/fd/{arguments[0]}")
                self.cut()
                return result

        return call

    def _record(self, path: str) -> None:
        inode = os.stat(path).st_ino
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                self._names[inode] = [(entry.name, entry.inode(), entry.is_dir()) for entry in entries]
        else:
            self._files[inode] = Path(path).read_bytes()

    def _synced(self, inode: int, path: str) -> Iterator[tuple[str, bytes]]:
        for name, child, is_directory in self._names.get(inode, []):
            if is_directory:
                yield from self._synced(child, f"{path}{name}/")
            else:
                yield f"{path}{name}", self._files.get(child, b"")
