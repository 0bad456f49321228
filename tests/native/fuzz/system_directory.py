"""A whole system directory as one input of a fuzzer: it is written, with sizes and checksums that agree, loaded and used.

An input is the files of a directory one after the other: the length of the name (1 byte), the length of the content (4 bytes,
little-endian), the name and the content.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fewstep
from fewstep.decoding import DecodingMemoryError
from fewstep.system.format import write_json
from fewstep.system.integrity import measure, seal
from tests.fuzzing.systems import use

MAX_FILES, MAX_NAME = 12, 60
PLACE = Path(os.environ.get("FUZZED_DIRECTORY", tempfile.gettempdir())) / f"system-{os.getpid()}"


def packed(directory: Path) -> bytes:
    """Return a directory as an input. Weights stand first, where mutations of the whole reach their header."""
    files = sorted((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    return b"".join(_entry(str(path.relative_to(directory)).encode(), path.read_bytes()) for path in files)


def _entry(name: bytes, content: bytes) -> bytes:
    return bytes([len(name)]) + len(content).to_bytes(4, "little") + name + content


def unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files of an input; names that no file can have are left out."""
    start = 0
    while start + 5 <= len(data):
        names, size = start + 5 + min(data[start], MAX_NAME), int.from_bytes(data[start + 1 : start + 5], "little")
        with suppress(UnicodeDecodeError):
            yield data[start + 5 : names].decode(), data[names : names + size]
        start = names + min(size, len(data))


def trial(data: bytes) -> None:
    """Load and use the system of an input, or see it refused. Raises whatever is neither."""
    logging.disable(logging.WARNING)  # here, since tests import this module into their own process
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    for name, content in itertools.islice(unpacked(data), MAX_FILES):
        path = PLACE / name
        if ".." in path.parts or os.path.isabs(name) or "\0" in name:
            continue
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    _agree()
    with suppress(fewstep.BundleError, DecodingMemoryError):
        use(fewstep.load(PLACE))


def _agree() -> None:
    """Write the sizes and checksums of all parts into the descriptions, the inner ones first, as an attacker would."""
    for path in sorted(PLACE.rglob("system.json"), key=lambda path: -len(path.parts)):
        with suppress(OSError, ValueError, RecursionError):
            description = json.loads(path.read_bytes())
            parts = description.get("parts") if isinstance(description, dict) else None
            for name in parts if isinstance(parts, dict) else ():
                with suppress(OSError, ValueError):
                    parts[name] = measure(path.parent / name)
            write_json(path, seal(description))
