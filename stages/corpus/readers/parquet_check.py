"""A process of limited memory and time that reads a Parquet file before any other one does: `python -m ... < REQUEST > ANSWER`.

The library has no limits: pages expand against the footer, values against their page, and schemas that are nested a thousand times
overflow its stack. The request is JSON: {path, languages, columns, whole, memory, seconds}; `whole` false: the
footer alone. The answer is JSON:
{groups}, the rows of each row group, or {problem}.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.corpus.limits import MAX_ROW_GROUP_BYTES, require_regular
from stages.corpus.lines import readable
from stages.errors import DataError

MEMORY = 1 << 30
"""Bytes of memory beside those of the file, of which compressed columns of a row group are held."""
SECONDS, BYTES_PER_SECOND = 15, 4 << 20
"""Seconds of processor time, and bytes of a file for each further one."""


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
        [sys.executable, "-m", __name__],
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
            f"{limits['seconds']} s, "
            f"got one whose reader ended with the code {ended.returncode}: it is damaged, is nested too deeply or expands far more "
            "than text does; replace the file, or write it with smaller row groups"
        ) from error
    if "problem" in answer:
        raise DataError(answer["problem"])
    return list(answer["groups"])


def main() -> None:
    """Answer a request. A file that is beyond the limits ends the process, or raises an error that has no answer."""
    from stages.corpus.readers.parquet import checked_groups

    request = json.load(sys.stdin)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize() if os.path.exists("/proc") else 0
    limits = {resource.RLIMIT_DATA: used + request["memory"], resource.RLIMIT_CPU: request["seconds"], resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    try:
        groups = checked_groups(Path(request["path"]), tuple(request["languages"]), request["columns"], whole=request["whole"])
    except DataError as error:
        json.dump({"problem": str(error)}, sys.stdout)
    else:
        json.dump({"groups": groups}, sys.stdout)


if __name__ == "__main__":
    main()
