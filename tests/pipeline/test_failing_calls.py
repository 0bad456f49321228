"""Each call of the operating system about a store fails, once or from then on: the command ends with words, nothing is damaged, and
its repetition makes the same artifacts as an undisturbed run."""

import itertools
import shutil
from collections.abc import Iterator
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
from tests.failing_calls import NUMBERS, EndlessError, FailingCalls
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, config

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
