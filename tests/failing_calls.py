"""Calls of the operating system that fail: the n-th one alone, or that one and all later ones."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NUMBERS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ESTALE)
OF_NAMES = ("open", "rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir")
OF_NAMES += ("listdir", "scandir", "stat", "lstat", "utime", "readlink", "statvfs")
OF_DESCRIPTORS = ("fsync", "read", "readv", "pread", "write", "fstat", "truncate")


class EndlessError(BaseException):
    """A program goes on calling, whatever fails."""


class FailingCalls:
    """Lets calls about files below `root` fail. Those of the thread that made it count; once all fail, so do those of others."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.made = os.fspath(root), Counter[str]()
        self.limit = 1_000_000
        """Calls after which a program counts as endless."""
        self._thread, self._quiet = threading.get_ident(), True
        self._at, self._number, self._for_good = 0, 0, False
        for name in OF_NAMES:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        for name in OF_DESCRIPTORS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        monkeypatch.setattr(fcntl, "flock", self._watched("flock", fcntl.flock))
        for module in (io, builtins):
            monkeypatch.setattr(module, "open", self._open)

    def start(self, at: int = 0, number: int = 0, *, for_good: bool = False) -> None:
        """Count calls from 1 on, and let the one with the number `at` fail with the error `number`; 0: none."""
        self.made.clear()
        self._at, self._number, self._for_good, self._quiet = at, number, for_good, False

    def stop(self) -> int:
        """Let nothing fail any more. Return the number of calls."""
        self._quiet = True
        return self.made.total()

    def call(self, name: str, subject: Any) -> None:
        """Count a call. Raises OSError if it is to fail."""
        if self._quiet or not self._is_below(subject):
            return
        if threading.get_ident() == self._thread:
            self.made[name] += 1
            if self.made.total() > self.limit:
                self._quiet = True
                raise EndlessError(f"{self.made.total()} calls: {self.made}")
            fails = self.made.total() == self._at
        else:
            fails = False
        if fails or (self._for_good and 0 < self._at < self.made.total()):
            place = subject if isinstance(subject, str | bytes | os.PathLike) else None
            raise OSError(self._number, os.strerror(self._number), *([] if place is None else [os.fspath(place)]))

    def _is_below(self, subject: Any) -> bool:
        if isinstance(subject, int):
            try:
                subject = _readlink(f"/proc/self/fd/{subject}")
            except OSError:
                return False
        elif hasattr(subject, "fileno"):
            return self._is_below(subject.fileno())
        return isinstance(subject, str | os.PathLike) and os.fspath(subject).startswith(self.root)

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            subject = arguments[0] if arguments else next(iter(options.values()), ".")
            folder = options.get("dir_fd")
            self.call(name, subject if folder is None else folder)
            return function(*arguments, **options)

        if function in os.supports_fd:  # shutil asks
            os.supports_fd.add(call)
        if function in os.supports_dir_fd:
            os.supports_dir_fd.add(call)
        if function in os.supports_follow_symlinks:
            os.supports_follow_symlinks.add(call)
        return call

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
        if self._quiet or not self._is_below(file):
            return _OPEN(file, mode, buffering, *arguments, **options)
        self.call("open", file)
        if "opener" in options:  # a file without a name, of tempfile
            return _OPEN(file, mode, buffering, *arguments, **options)
        raw = _File(self, file, mode.replace("b", "").replace("t", ""), closefd=options.pop("closefd", True))
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffered: Any = kind(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, line_buffering=buffering == 1, **options)


_OPEN, _readlink = io.open, os.readlink


class _File(io.FileIO):
    """A file whose reads and writes are counted."""

    def __init__(self, calls: FailingCalls, file: Any, mode: str, *, closefd: bool) -> None:
        super().__init__(file, mode, closefd=closefd)
        self._calls = calls

    def readinto(self, buffer: Any) -> int:
        self._calls.call("read", self.fileno())
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._calls.call("read", self.fileno())
        return super().readall()

    def read(self, size: int | None = -1) -> bytes:
        self._calls.call("read", self.fileno())
        return super().read(size)

    def write(self, data: Any) -> int:
        self._calls.call("write", self.fileno())
        return super().write(data)
