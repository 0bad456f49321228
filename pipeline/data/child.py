"""Programs of other packages, run as processes of their own: in an empty directory, without their caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.errors import StageError

TIMEOUT_SECONDS = 600.0
"""Time after which a process is ended."""
SHOWN_CHARACTERS = 1000
"""Characters of the end of its messages that an error shows."""


def answer_of(module: str, request: bytes, directory: Path, environment: Mapping[str, str]) -> Any:
    """Return the JSON that a module of this folder writes when it runs in `directory` with `request` as its input.

    Raises StageError if it fails or does not end in time.
    """
    # Without -P the folder of the module, whose files have names such as `records`, would be searched for imports first.
    command = [sys.executable, "-P", str(Path(__file__).with_name(f"{module}.py"))]
    try:
        ended = subprocess.run(
            command,
            input=request,
            capture_output=True,
            cwd=directory,
            env={**os.environ, **environment},
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"{' '.join(command)}: expected an end within {TIMEOUT_SECONDS:.0f} s, got none; run again") from error
    if ended.returncode == 0:
        return json.loads(ended.stdout)
    last = ended.stderr.decode(errors="replace").strip()[-SHOWN_CHARACTERS:]
    raise StageError(f"{' '.join(command)}: expected exit status 0, got {ended.returncode}; its messages end: {last}")
