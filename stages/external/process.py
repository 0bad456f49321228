"""A program that translates lines: its environment, its streams and its end."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO

from fewstep.streams import MAX_LINE_BYTES
from stages.errors import DataError, TransientError
from stages.shared.programs import PASSED

STDERR_LINES = 20
STDERR_BYTES = 500
"""Bytes of a line of the error stream. A progress bar writes one line without end."""
GRACE_SECONDS = 10.0
"""Seconds between the signals TERM and KILL."""
BLOCK = 1 << 16


class Translator:
    """One run of a program over some lines."""

    def __init__(
        self, command: Sequence[str], *, files: Sequence[Path], environment: Sequence[str], timeout_seconds: float
    ) -> None:
        self._command = command
        self._files = files
        self._environment = environment
        self._timeout = timeout_seconds
        self._stderr: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._received = 0

    def translate(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the translation of each line as soon as the program has written it.

        The program runs in a process group and a working directory of its own, where `files` are linked. Raises TransientError if
        it fails, is killed, or writes no line for the time of the limit; DataError if it cannot be started, writes a line of more
        than 1 MiB, or ends well with another number of lines or lines that are not UTF-8.
        """
        with tempfile.TemporaryDirectory(prefix="fewstep-external-") as scratch:
            for file in self._files:
                (Path(scratch) / file.name).symlink_to(file.absolute())
            process = self._start(scratch)
            try:
                yield from self._exchange(process, lines)
            finally:
                _end(process)

    def _start(self, scratch: str) -> subprocess.Popen[bytes]:
        names = {*PASSED, *self._environment}  # besides LANG and TMPDIR
        variables = {name: value for name, value in os.environ.items() if name in names}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        variables |= {"LANG": "C.UTF-8", "TMPDIR": scratch}
        try:
            return subprocess.Popen(list(self._command), cwd=scratch, env=variables, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]
        except OSError as error:
            raise DataError(
                f"teacher.command: {self._command[0]}: expected a program, got: {error.strerror}; install it"
            ) from error

    def _exchange(self, process: subprocess.Popen[bytes], lines: Sequence[str]) -> Iterator[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        writer = Thread(target=_write, args=(process.stdin, lines), daemon=True)
        reader = Thread(target=_keep, args=(process.stderr, self._stderr), daemon=True)
        writer.start()
        reader.start()
        for line in self._lines(process.stdout, len(lines)):
            self._received += 1
            if self._received > len(lines):
                break
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"teacher.command: line {self._received}: expected UTF-8, got {line[:40]!r}") from error
        if self._received > len(lines):
            raise DataError(self._problem(len(lines), "more lines"))
        status = self._status(process, len(lines))
        reader.join(GRACE_SECONDS)
        if status != 0:
            raise TransientError(self._problem(len(lines), f"signal {-status}" if status < 0 else f"exit {status}"))
        if self._received != len(lines):
            raise DataError(self._problem(len(lines), "exit 0"))

    def _status(self, process: subprocess.Popen[bytes], expected: int) -> int:
        try:
            return process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            raise TransientError(self._problem(expected, f"no end within {self._timeout:g} s")) from None

    def _lines(self, stream: IO[bytes], expected: int) -> Iterator[bytes]:
        """Yield what the program writes, cut at newlines."""
        held = b""
        deadline = time.monotonic() + self._timeout
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    raise TransientError(self._problem(expected, f"no line for {self._timeout:g} s"))
                block = os.read(stream.fileno(), BLOCK)
                if not block:
                    break
                *whole, held = (held + block).split(b"\n")
                if whole:
                    deadline = time.monotonic() + self._timeout
                yield from whole
                if len(held) > MAX_LINE_BYTES:
                    raise DataError(self._problem(expected, f"a line of more than {MAX_LINE_BYTES:,} bytes"))
        if held:
            yield held

    def _problem(self, expected: int, ending: str) -> str:
        tail = b"".join(self._stderr).decode("utf-8", "replace").strip() or "nothing"
        got = min(self._received, expected + 1)
        return f"teacher.command: {' '.join(self._command)}: expected {expected} lines, got {got} ({ending}); stderr ends: {tail}"


def _write(stream: IO[bytes], lines: Sequence[str]) -> None:
    """Write all lines. A program that ends early is recognised by its output."""
    try:
        with stream:
            for line in lines:
                stream.write(line.encode("utf-8") + b"\n")
    except (OSError, ValueError):
        return


def _keep(stream: IO[bytes], kept: deque[bytes]) -> None:
    """Keep the last messages until the stream ends, which may be later than the program where a process that it left behind holds
    it open."""
    with stream:
        kept.extend(iter(partial(stream.readline, STDERR_BYTES), b""))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and the processes that it started."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    if process.stdout is not None:
        process.stdout.close()
