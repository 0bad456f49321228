"""A session: pieces one after the other, each in a process of its own, until the time is over."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Literal

import torch

from benchmarks.proof.pieces import Proof
from pipeline.plan.code_digest import code_digest, git_revision
from pipeline.plan.step import Step
from pipeline.run import execute
from pipeline.store.files import read_json

FORK = multiprocessing.get_context("fork")
"""Children begin with all that was imported. This process never touches the GPU: one that broke, or was left hanging, ends with the
piece."""
PARENT_DEATH_SIGNAL = 1
"""The option of prctl(2) that names the signal of a process whose parent has died."""
PIECE_SHARE = 0.4
"""Share of the time after which a piece is stopped."""
STOP_SECONDS = 20.0
"""Time for a stopped training to save its state, and for that of the session to be written, at the end of the time."""
TRAINING_SECONDS = 15.0
"""Shortest time for which a training is begun or continued."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a piece."""

    piece: str
    outcome: Literal["done", "stopped", "failed", "left out"]
    seconds: float = 0.0
    reason: str = ""


class StoppedError(Exception):
    """A piece was stopped because its time was over."""


def attempt(function: Callable[[], str | None], end: float) -> str | None:
    """Run a function in a process of its own until `end` (of time.monotonic); return what it returns.

    When its time is over it gets SIGTERM, and SIGKILL if it has not ended `STOP_SECONDS` later. Raises StoppedError then, and
    ChildProcessError for a process that ended by itself without an answer.
    """
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(function, sender))
    process.start()
    sender.close()
    try:
        process.join(max(0.0, end - time.monotonic()))
    finally:  # the session may be interrupted
        if stopped := process.is_alive():
            process.terminate()
            process.join(STOP_SECONDS)
            process.kill()
            process.join()
    with suppress(EOFError):
        if not stopped and receiver.poll():
            answer: str | None = receiver.recv()
            return answer
    if stopped:
        raise StoppedError
    raise ChildProcessError(f"its process ended with code {process.exitcode} and no answer")


def _answer(function: Callable[[], str | None], sender: Connection) -> None:
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)  # a session that is killed leaves nobody on the GPU
    with suppress(KeyboardInterrupt):  # SIGTERM, once the state is saved
        try:
            sender.send(function())
        except Exception as error:
            sender.send(f"{type(error).__name__}: {error}")


class Session:
    """The pieces of a proof until a time."""

    def __init__(self, proof: Proof, end: float, save: Callable[[list[Outcome]], None]) -> None:
        """`end`: the time (of time.monotonic) at which the session has ended. `save` is called when there is something to keep."""
        self.proof = proof
        self.end = end
        self.outcomes = list[Outcome]()
        self._last = end - STOP_SECONDS
        self._longest = PIECE_SHARE * (end - time.monotonic())
        self._save = save

    def run(self) -> list[Outcome]:
        """Run all pieces for which there is time; return what became of each."""
        warm(self.proof)
        try:
            self._run_pieces()
        finally:
            self._save(self.outcomes)
        return self.outcomes

    def _run_pieces(self) -> None:
        problems: set[str] = set()
        for step in self.proof.missing():
            cause = next((need for need in step.needs if need in problems), None)
            reason = f"needs {cause}" if cause else self._no_time(step)
            outcome = Outcome(step.name, "left out", reason=reason) if reason else self._run(step)
            self.outcomes.append(outcome)
            print(f"{outcome.outcome:9}{outcome.seconds:7.1f} s  {step.name}  {outcome.reason}", flush=True)
            if outcome.outcome != "done":
                problems.add(step.name)
            if step.stage.trains and not reason:
                self._save(self.outcomes)

    def _no_time(self, step: Step) -> str:
        """Return why a step is not begun, or nothing if there is time for it."""
        left = self._last - time.monotonic()
        wanted = TRAINING_SECONDS if step.stage.trains else self._measured(step)
        return "" if left > wanted else f"{max(0.0, left):.0f} s were left, and it takes {wanted:.0f} s"

    def _measured(self, step: Step) -> float:
        """Return the time of the slowest finished step of the same stage; 0 if none is known."""
        found = [read_json(path) for path in (self.proof.store.root / step.stage.name).glob("*/manifest.json")]
        return max((float(manifest["seconds"]) for manifest in found), default=0.0)

    def _run(self, step: Step) -> Outcome:
        began = time.monotonic()
        try:
            error = attempt(lambda: _executed(self.proof, step), min(self._last, began + self._longest))
            kind: Literal["done", "failed"] = "done" if error is None else "failed"
            return Outcome(step.name, kind, round(time.monotonic() - began, 2), error or "")
        except StoppedError:
            reason = "its time was over; what it had finished is kept"
            return Outcome(step.name, "stopped", round(time.monotonic() - began, 2), reason)
        except ChildProcessError as error:
            return Outcome(step.name, "failed", round(time.monotonic() - began, 2), str(error))


def warm(proof: Proof) -> None:
    """Import the stages of missing steps and compute the digests of their code, which the processes of the pieces then share."""
    for module in dict.fromkeys(step.stage.module for step in proof.missing()):
        import_module(module)
        code_digest(module)
    git_revision()


def _executed(proof: Proof, step: Step) -> str | None:
    """Execute a step as `fewstep run --in-process` does; return the error."""
    found = execute.run(proof.settings, proof.plan(step), proof.store, config_file=str(proof.file), in_process=True)
    return next((f"{type(error).__name__}: {error}" for error in found.failed.values()), None)


def card() -> str:
    """Return the GPU, its memory and whether it has bfloat16, as JSON text. Raises RuntimeError without one."""
    found = torch.cuda.get_device_properties(0)
    return json.dumps(
        {
            "name": found.name,
            "memory_gib": round(found.total_memory / 2**30, 1),
            "bfloat16": bool(torch.cuda.is_bf16_supported(including_emulation=False)),
        }
    )
