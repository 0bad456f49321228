"""The rows of a Parquet file, counted by a process of limited memory and time before any other process reads the file.

The library has no limits of its own: pages can be larger than the footer states, values larger than their page, and a schema of a
thousand nested levels overflows its stack.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.corpus.limits import MAX_ROW_GROUP_BYTES, require_regular
from stages.corpus.lines import readable
from stages.errors import DataError

READER = "stages.corpus.readers.parquet_limits"
"""The module that the process runs."""
MEMORY = 1 << 30
"""Bytes of memory beside those of the file, of which compressed columns of a row group are held."""
SECONDS = 15
"""Seconds of processor time for any file."""
BYTES_PER_SECOND = 4 << 20
"""Bytes of a file for which it has a further second."""


def row_groups(path: Path, languages: tuple[str, str], columns: Sequence[str | int], *, whole: bool = True) -> list[int]:
    """Return the number of rows of each row group of a file, which was read whole unless `whole` is False.

    Raises DataError for a file that cannot be read, or not within these limits.
    """
    with readable(path):
        require_regular(path)
        size = path.stat().st_size
    limits = {"memory": MEMORY + min(size, MAX_ROW_GROUP_BYTES), "seconds": SECONDS + size // BYTES_PER_SECOND}
    request = {"path": str(path), "languages": languages, "columns": columns, "whole": whole, **limits}
    ended = subprocess.run(
        [sys.executable, "-m", READER],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ARROW_DEFAULT_MEMORY_POOL": "system"},
        check=False,
    )
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        raise DataError(
            f"{path}: expected a Parquet file that can be read in {limits['memory'] >> 20:,} MiB of memory and "
            f"{limits['seconds']} s, got one whose reader ended with the code {ended.returncode}: it is damaged, is nested too "
            "deeply or expands far more than text does; replace the file, or write it with smaller row groups"
        ) from error
    if "problem" in answer:
        raise DataError(answer["problem"])
    return list(answer["groups"])
