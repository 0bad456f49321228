"""The scheduler: tasks of simulated processes, of which one runs at a time, and the simulated time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

SWITCHING = 0.3
"""Probability with which another task runs before a call of the file system."""
CALL_SECONDS = 0.01
"""Mean duration of a call of the file system."""
MAX_SECONDS = 3000.0
"""Simulated time after which a history counts as hanging."""


class Died(BaseException):
    """Ends a task of a process that was killed. The code of the pipeline cannot catch it."""


class Violation(AssertionError):  # noqa: N818
    """An invariant does not hold."""


@dataclass(eq=False)
class Process:
    """A simulated process: its tasks run until one of them kills it, or until the machine loses power."""

    name: str
    alive: bool = True
    paused_until: float = 0.0


@dataclass(eq=False)
class Task:
    """A thread of a process. `attempt` is the id of the attempt at a step that it works for."""

    process: Process
    run: greenlet
    wake: float = 0.0
    attempt: str = ""


@dataclass(eq=False)
class Scheduler:
    """Runs tasks in an order that the seed determines."""

    rng: random.Random
    now: float = 1000.0
    tasks: list[Task] = field(default_factory=list)
    current: Task | None = None
    errors: list[BaseException] = field(default_factory=list)
    _hub: greenlet = field(default_factory=getcurrent)

    def spawn(self, process: Process, function: Callable[[], Any], attempt: str = "") -> Task:
        """Start a task of a process."""

        def body() -> None:
            try:
                function()
            except Died:
                pass
            except BaseException as error:
                self.errors.append(error)

        task = Task(process, greenlet(body, self._hub), self.now, attempt)
        self.tasks.append(task)
        return task

    def run(self, done: Callable[[], bool]) -> None:
        """Run tasks until `done`, until all have ended, or until one has failed. Raises Violation for a history without end."""
        while not done() and not self.errors:
            self.tasks = [task for task in self.tasks if task.process.alive and not task.run.dead]
            if not self.tasks:
                return
            ready = [task for task in self.tasks if max(task.wake, task.process.paused_until) <= self.now]
            if not ready:
                self.now = min(max(task.wake, task.process.paused_until) for task in self.tasks)
                if self.now > MAX_SECONDS:
                    raise Violation(f"the history does not end: {[(task.process.name, task.wake) for task in self.tasks]}")
                continue
            self.current = ready[int(self.rng.random() * len(ready))]
            self.current.run.switch()
        if self.errors:
            raise self.errors[0]

    def pass_time(self) -> None:
        """Let a call take its time, and perhaps let another task run."""
        self.now += self.rng.random() * 2 * CALL_SECONDS
        if self.rng.random() < SWITCHING:
            self.switch()

    def switch(self, seconds: float = 0.0) -> None:
        """Let other tasks run, for some time."""
        task = self.current
        assert task is not None
        task.wake = self.now + seconds
        self._hub.switch()
        if not task.process.alive:
            raise Died

    def kill(self, process: Process) -> None:
        """End a process with all its tasks."""
        process.alive = False

    def close(self) -> None:
        """End all tasks, with their `finally` clauses, in which each call of the file system raises `Died`."""
        for task in self.tasks:
            task.process.alive = False
        for task in self.tasks:
            if task.run and not task.run.dead:
                task.run.throw(Died)
