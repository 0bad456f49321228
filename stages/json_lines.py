"""The one reader of JSON lines: events, metrics and deaths, which several processes append to and which a kill may cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

MAX_LINE_BYTES = 16 << 20
"""Bytes of a line."""


class JsonLine(NamedTuple):
    """An object of a file of JSON lines."""

    value: dict[str, Any]
    end: int
    """Position in the file after this line, in bytes."""


def read_json_lines(path: Path, position: int = 0) -> Iterator[JsonLine]:
    """Yield the objects in a file from byte `position` on. A missing file has none. Raises OSError.

    A line ends with a line feed and with nothing else: U+2028 and other separators that `str.splitlines` knows occur within JSON
    strings. Lines that are no JSON objects, because a kill or a full disk cut them, are skipped, as are a line without its end and
    one of more than MAX_LINE_BYTES. A pipe or a device, which may never end, has none.
    """
    try:
        if not S_ISREG(path.stat().st_mode):
            return
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(position)
        beginning = True
        while line := file.readline(MAX_LINE_BYTES):
            position += len(line)
            whole = beginning and line.endswith(b"\n")
            beginning = line.endswith(b"\n")
            if not whole:
                continue
            try:
                value = json.loads(line.decode("utf-8", errors="replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield JsonLine(value, position)
