"""The one reader of JSON lines: events, metrics and deaths, which several processes append to and which a kill may cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class JsonLine(NamedTuple):
    """An object of a file of JSON lines."""

    value: dict[str, Any]
    end: int
    """Position in the file after this line, in bytes."""


def read_json_lines(path: Path, position: int = 0) -> Iterator[JsonLine]:
    """Yield the objects in a file from byte `position` on. A missing file has none. Raises OSError.

    A line ends with a line feed and with nothing else: U+2028 and other separators that `str.splitlines` knows occur within JSON
    strings. Lines that are no JSON objects, because a kill or a full disk cut them, are skipped, as is a line without its end.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n"):
                return
            position += len(line)
            try:
                value = json.loads(line.decode("utf-8", errors="replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield JsonLine(value, position)
