"""Programs of others that a step runs to their end. What they write is bounded, so that one that writes without end fills neither
the memory nor the disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from stages.context import Context
from stages.errors import StageError, TransientError

PASSED = ("PATH", "HOME", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that a program of another environment sees in any case."""
MAX_MESSAGE_BYTES = 64 << 20
"""Bytes that a program may write to its error stream."""
TAIL_BYTES = 1 << 14
"""Bytes at the end of its messages that are read for an error."""
MORE_OUTPUT, LINE_OUTPUT, LEAST_OUTPUT = 4, 1024, 1 << 20
"""Bytes that a program may write for each byte that it is given, for each line beyond them, and in any case."""
POLL_SECONDS = 0.02


class Ended(NamedTuple):
    """The end of a program that was given lines."""

    code: int
    """Its exit code; that of a signal is negative."""
    output: bytes
    messages: list[str]
    """The last lines of its error stream."""


def run_to_end(
    command: Sequence[str], given: bytes, place: str, *, timeout_seconds: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a program that reads lines and writes lines, in a process group of its own, which is ended with it. `place`: what names
    it, in errors. `environment`: all of its variables; None: those of this process.

    Raises StageError if it writes more than a program that judges or changes its lines can, or does not end in time; OSError if it
    cannot be started.
    """
    # Files, unlike pipes, keep nobody waiting where a process that it left behind holds them open.
    with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as messages:
        source.write(given)
        source.seek(0)
        process = subprocess.Popen(
            list(command), stdin=source, stdout=out, stderr=messages, env=environment, start_new_session=True
        )
        deadline = time.monotonic() + timeout_seconds
        most = LEAST_OUTPUT + MORE_OUTPUT * len(given) + LINE_OUTPUT * given.count(b"\n")
        try:
            ended = False
            while not ended:
                ended = _ends(process)
                check_size(place, out, most, "output")
                check_size(place, messages, MAX_MESSAGE_BYTES, "messages")
                if not ended and time.monotonic() > deadline:
                    raise StageError(f"{place}: expected an end within {timeout_seconds:g} s, got none; check the program")
        finally:
            _kill(process)
        out.seek(0)
        return Ended(process.returncode, out.read(most), last_lines(messages))


def check_size(place: str, file: IO[bytes], most: int, what: str) -> None:
    """Raise StageError if a program has written more than `most` bytes to a file."""
    if (size := os.fstat(file.fileno()).st_size) > most:
        raise StageError(f"{place}: expected at most {most:,} bytes of {what}, got {size:,} and no end; check the program")


def last_lines(messages: IO[bytes]) -> list[str]:
    """Return the last lines of a file that a program has written, without blank ones around them."""
    messages.seek(max(0, messages.seek(0, os.SEEK_END) - TAIL_BYTES))
    return messages.read(TAIL_BYTES).decode("utf-8", "replace").strip().splitlines()


def _ends(process: subprocess.Popen[bytes]) -> bool:
    """Wait for a moment, and return whether a process has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(POLL_SECONDS)
    return process.returncode is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Program:
    """A program that a config names."""

    executable: str
    """Its path, or its name on PATH."""
    name: str
    """Its usual name."""
    owner: str
    """The project that it belongs to, such as `KenLM`."""
    key: str
    """The key of the config that names it."""
    remedy: str
    """The remedy where it is missing."""

    def find(self) -> str:
        """Return its path. Raises StageError if it is not found."""
        if problem := self.problem():
            raise StageError(problem)
        return shutil.which(self.executable) or self.executable

    def problem(self) -> str | None:
        """Return what is wrong if the program is not found."""
        if shutil.which(self.executable):
            return None
        return f"{self.key}: expected {self.owner}'s program {self.name} as {self.executable}, found no such program; {self.remedy}"

    def run(
        self,
        arguments: Sequence[str],
        log: Path,
        context: Context,
        *,
        stdin: Path = Path(os.devnull),
        stdout: Path = Path(os.devnull),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run it with its arguments, and write what it says to `log`. `environment`: all of its variables; None: those of this
        process.

        Raises StageError when it is not found or fails, TransientError when the step is asked to stop.
        """
        executable = self.find()
        with log.open("w+b") as messages:
            try:
                with stdin.open("rb") as source, stdout.open("wb") as out:
                    process = subprocess.Popen([executable, *arguments], stdin=source, stdout=out, stderr=messages, env=environment)
            except OSError as error:
                raise StageError(
                    f"{executable}: expected {self.owner}'s program {self.name}, but it cannot be run: {error}; check {self.key}"
                ) from error
            try:
                while not _ends(process):
                    check_size(executable, messages, MAX_MESSAGE_BYTES, "messages")
                    if context.stop_requested():
                        raise TransientError(f"asked to stop while {self.name} was running; it starts again from the beginning")
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
            lines = last_lines(messages) if process.returncode else []
        if code := process.returncode:
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise StageError(f"{executable}: {ended}; its last messages: {' '.join(lines[-2:]) or 'none'} ({log})")
