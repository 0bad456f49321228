"""Programs of others that a step runs to their end."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.context import Context
from stages.errors import StageError, TransientError

PASSED = ("PATH", "HOME", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that a program of another environment sees in any case."""


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
        try:
            with stdin.open("rb") as source, stdout.open("wb") as out, log.open("wb") as messages:
                process = subprocess.Popen([executable, *arguments], stdin=source, stdout=out, stderr=messages, env=environment)
        except OSError as error:
            raise StageError(
                f"{executable}: expected {self.owner}'s program {self.name}, but it cannot be run: {error}; check {self.key}"
            ) from error
        try:
            while process.poll() is None:
                if context.stop_requested():
                    raise TransientError(f"asked to stop while {self.name} was running; it starts again from the beginning")
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        if process.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            code = process.returncode
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise StageError(f"{executable}: {ended}; its last messages: {' '.join(lines[-2:]) or 'none'} ({log})")
