"""Each call of the operating system about a store fails, once or from then on: the command ends with words, nothing is damaged, and
its repetition makes the same artifacts as an undisturbed run."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import durable
import pipeline.commands.run
from pipeline.__main__ import main
from pipeline.plan.step import Builder, Plan
from pipeline.store.artifacts import Store
from pipeline.store.host import RealHost
from pipeline.store.marker import open_store
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, config

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


STEP = 13
"""Number of calls that fail in the fast test: each once with one error, and for good with the next one."""
GIVE_UP_SECONDS = 3600.0
"""Time on the clock of the machine after which a program counts as one that hangs."""


class Clock:
    """The clock and the processes of a machine, on which time passes only while a program waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.pid = 0.0, 1
        monkeypatch.setattr(RealHost, "monotonic", lambda host: self.now)
        monkeypatch.setattr(RealHost, "sleep", lambda host, seconds: self.sleep(seconds))
        monkeypatch.setattr(RealHost, "process", lambda host: dict.fromkeys(("host", "boot", "namespace"), "x") | {"pid": self.pid})
        monkeypatch.setattr(RealHost, "runs", lambda host, process: process.get("pid") == self.pid)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > GIVE_UP_SECONDS:
            raise EndlessError("it waits for ever")


class Ended(NamedTuple):
    code: int
    shown: str
    calls: int


class Program:
    """Commands of this process on a store, as one process each."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        self.clock, self.calls = Clock(monkeypatch), FailingCalls(root, monkeypatch)
        monkeypatch.setattr(pipeline.commands.run, "planned", lambda *arguments: self._planned())

    def _planned(self) -> tuple[Any, Plan, Store]:
        store = open_store(self.root)
        return config(store), plan(store), store

    def __call__(self, *arguments: str, at: int = 0, number: int = 0, for_good: bool = False) -> Ended:
        self.clock.now, self.clock.pid = 0.0, self.clock.pid + 1
        durable.DISK.lasting.clear()
        self.calls.start(at, number, for_good=for_good)
        try:
            code = main(arguments)
        finally:
            made = self.calls.stop()
        return Ended(code, "".join(self._capsys.readouterr()), made)


def plan(store: Store) -> Plan:
    builder = Builder(store.root)
    first = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    builder.add(STAGE, "b", ToyInputs((first,)), ToyConfig("b"))
    return builder.plan()


RUN = ("run", "toy.yaml", "--in-process")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path / "store", monkeypatch, capsys)


def contents(root: Path) -> dict[str, str]:
    """Return the results of all finished artifacts of a store."""
    return {str(path.relative_to(root)): path.read_text() for path in root.glob("toy/*/text") if not path.parent.suffix}


def faults(calls: int, step: int) -> Iterator[tuple[int, int, bool]]:
    """Yield calls that fail, with their errors, alone or for good: all of them for a step of 1."""
    if step == 1:
        yield from itertools.product(range(1, calls + 1), NUMBERS, (False, True))
    for at in range(1, calls + 1, step) if step > 1 else ():
        yield at, NUMBERS[at % len(NUMBERS)], False
        yield at, NUMBERS[(at + 1) % len(NUMBERS)], True


def check_words(ended: Ended, where: str) -> None:
    assert "Traceback" not in ended.shown, f"{where}: {ended.shown}"
    assert ended.code in (0, 1, 2), f"{where}: {ended.shown}"
    if ended.code:
        assert 0 < ended.shown.count("\n") <= 8, f"{where}: {ended.shown}"


STEPS = [STEP, pytest.param(1, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("step", STEPS)
def test_a_run_whose_calls_fail_ends_with_words_and_continues(program: Program, step: int) -> None:
    assert program(*RUN).code == 0
    undisturbed = contents(program.root)
    assert sorted(undisturbed.values()) == ["a", "ab"]
    shutil.rmtree(program.root)
    calls = program(*RUN).calls
    program.calls.limit = 20 * calls
    outcomes = set()
    for at, number, for_good in faults(calls, step):
        where = f"call {at} of {calls}, {number}, {'for good' if for_good else 'once'}"
        shutil.rmtree(program.root, ignore_errors=True)
        ended = program(*RUN, at=at, number=number, for_good=for_good)
        check_words(ended, where)
        outcomes.add((ended.code, for_good))
        assert [problem for _, problem in Store(program.root).verify_all() if problem] == [], where
        assert contents(program.root).items() <= undisturbed.items(), where
        again = program(*RUN)
        assert (again.code, contents(program.root)) == (0, undisturbed), f"{where}: {ended.shown} then {again.shown}"
    assert {(0, False), (1, True)} <= outcomes


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("command", ["gc --delete", "gc", "status --json", "status", "runs", "report"])
def test_a_command_whose_calls_fail_ends_with_words_and_damages_nothing(program: Program, command: str, step: int) -> None:
    assert program(*RUN).code == 0
    arguments = (*command.split(), "--store", str(program.root))
    undisturbed, kept = contents(program.root), program.root.with_name("kept")
    leave_garbage(program.root)
    shutil.copytree(program.root, kept, symlinks=True)
    first = program(*arguments)
    after = names(program.root)
    program.calls.limit = 20 * first.calls
    for at, number, for_good in faults(first.calls, step):
        where = f"{command}: call {at} of {first.calls}, {number}, {'for good' if for_good else 'once'}"
        shutil.rmtree(program.root)
        shutil.copytree(kept, program.root, symlinks=True)
        check_words(program(*arguments, at=at, number=number, for_good=for_good), where)
        assert contents(program.root).items() >= undisturbed.items(), where
        assert program(*arguments).code == first.code, where
        assert names(program.root) == after, where


def leave_garbage(root: Path) -> None:
    """Leave an artifact that no run needs, and the directory of an attempt that ended long ago."""
    used = next(root.glob("toy/*/manifest.json")).parent
    unused = used.with_name("f" * 32)
    shutil.copytree(used, unused)
    manifest = unused / "manifest.json"
    manifest.write_text(manifest.read_text().replace(used.name, unused.name))
    partial = used.with_name(f"{used.name}.partial-x")
    partial.mkdir()
    (partial / "text").write_text("half")


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if "toy" in (path.parent.name, path.parent.parent.name)}
