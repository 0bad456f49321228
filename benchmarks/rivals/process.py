"""The process of another program, with the environment of this one.

A rival chooses its backend and its threads as it would for its users: nothing of its environment is set, changed or removed. The
only exceptions are switches that its own documentation names, each of which is a further setting beside its own choice.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SWITCHES = frozenset({"CT2_USE_MKL", "CT2_PACKED_GEMM"})
"""Switches that a setting may state: https://opennmt.net/CTranslate2/environment_variables.html."""


def users_environment() -> dict[str, str]:
    """Return the environment that this process was started with, whatever libraries have changed since."""
    lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(line).split("=", 1) for line in lines if b"=" in line)


def environment(switches: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment with documented switches of a rival. Raises ValueError for any other variable."""
    if unknown := set(switches) - SWITCHES:
        raise ValueError(f"switches: expected those of the rival's documentation {sorted(SWITCHES)}, found {sorted(unknown)}")
    return {**users_environment(), **switches}


class Process:
    """A program that answers JSON lines with JSON lines, and its end."""

    def __init__(self, command: Sequence[str], switches: Mapping[str, str]) -> None:
        self.command = tuple(command)
        self._process = subprocess.Popen(
            command, env=environment(switches), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, request: Any) -> Any:
        """Return the answer to a request. Raises RuntimeError if the process has ended."""
        self.tell(request)
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(
                f"{' '.join(self.command)}: expected an answer, found the end of the process; run it for its message"
            )
        return json.loads(answer)

    def tell(self, request: Any) -> None:
        """Send a line that has no answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.communicate()
