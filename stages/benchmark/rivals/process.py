"""The process of another program, with the environment of this one.

A rival chooses its backend and its threads as it would for its users: nothing of its environment is set, changed or removed. The
only exceptions are switches that its own documentation names, each of which is a further setting beside its own choice.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fewstep.threads import without_defaults
from stages.errors import StageError

SWITCHES = frozenset({"CT2_USE_MKL", "CT2_PACKED_GEMM"})
"""Switches that a setting may state: https://opennmt.net/CTranslate2/environment_variables.html."""


def users_environment() -> dict[str, str]:
    """Return the environment that this process was started with, whatever libraries have changed since, without the project's own
    defaults, which workers on Ray are started with."""
    lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    return without_defaults(dict(os.fsdecode(line).split("=", 1) for line in lines if b"=" in line))


def environment(switches: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment with documented switches of a rival. Raises ValueError for any other variable."""
    if unknown := set(switches) - SWITCHES:
        raise ValueError(f"switches: expected those of the rival's documentation {sorted(SWITCHES)}, found {sorted(unknown)}")
    return {**users_environment(), **switches}


class Process:
    """A program that answers JSON lines with JSON lines, and its end."""

    def __init__(self, command: Sequence[str], switches: Mapping[str, str]) -> None:
        self._messages = TemporaryFile()  # noqa: SIM115 (closed by close)
        self._command = tuple(command)
        self._process = subprocess.Popen(
            command,
            env=environment(switches),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def ask(self, request: Any) -> Any:
        """Return the answer to a request. Raises StageError if the process has ended."""
        with suppress(BrokenPipeError):
            self.tell(request)
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            self._messages.seek(0)
            found = self._messages.read().decode(errors="replace")[-1000:]
            raise StageError(f"{' '.join(self._command)}: expected an answer, found the end of the process: {found}")
        return json.loads(answer)

    def tell(self, request: Any) -> None:
        """Send a line that has no answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._messages.close()
