"""A process that works on object storage: `python object_storage_process.py URL < REQUESTS > ANSWERS`.

The libraries of object storage hold answers whole in memory, follow lists of any number of pages and wait without an end; this
process bounds their memory, and whoever started it ends it where it lets them wait. It imports nothing of this package.

A request is a line of JSON, {operation, name}, behind which the blocks of `write` follow. Blocks have their length in front, as
four bytes, and end with an empty one. An answer is the blocks of `read` and an empty one, which a line of JSON follows: {result},
{missing} or {problem, errno}.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

MEMORY_BYTES = 192 << 20
"""Bytes beside those of the libraries."""
IDLE_SECONDS = 60
"""Seconds after the last request after which the process ends."""
ALARM_SECONDS = 3600
"""Seconds without progress after which it ends in any case, such as behind a program that was killed."""
MIN_BLOCK, MAX_BLOCK = 1 << 16, 1 << 20
READY = b"."
"""The byte that the process writes before the first answer."""
MAX_NAMES = 100_000
"""Objects of a list."""


def read_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks up to the empty one. Raises EOFError without it."""
    while size := int.from_bytes(_exactly(source, 4)):
        yield _exactly(source, size)


def write_block(target: IO[bytes], block: bytes) -> None:
    """Write a block, or the empty one."""
    target.write(len(block).to_bytes(4) + block)


def _exactly(source: IO[bytes], size: int) -> bytes:
    content = source.read(size)
    if len(content) < size:
        raise EOFError("the other process ended")
    return content


def read(files: Any, path: str) -> Iterator[bytes]:
    """Yield the content of an object, in larger blocks from a faster storage."""
    size = MIN_BLOCK
    with files.open_input_stream(path) as stream:
        while True:
            started = time.monotonic()
            block: bytes = stream.read(size)
            if not block:
                return
            yield block
            size = min(2 * size, MAX_BLOCK) if time.monotonic() - started < 1 else MIN_BLOCK


def write(files: Any, path: str, blocks: Iterator[bytes]) -> None:
    """Write an object, which gets its name when it is complete."""
    try:
        with files.open_output_stream(path) as stream:
            for block in blocks:
                stream.write(block)
    except FileNotFoundError as error:  # of a bucket
        raise OSError(str(error)) from error


def size_of(files: Any, path: str) -> int | None:
    """Return the bytes of an object, or None if there is no such object."""
    size: int | None = files.get_file_info(path).size
    return size


def sizes(files: Any, path: str) -> dict[str, int]:
    """Return the bytes of all objects below `path`, by the rest of their names. Raises OSError for a list of other objects."""
    import pyarrow.fs

    selector = pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=True)
    found = {info.path: info.size for info in files.get_file_info(selector) if info.type == pyarrow.fs.FileType.File}
    if len(found) > MAX_NAMES:
        raise OSError(f"expected at most {MAX_NAMES:,} objects, got {len(found):,}")
    if other := next((name for name in found if not name.startswith(f"{path}/")), None):
        raise OSError(f"expected a list of objects below {path}, got {other[:200]!r} in it")
    return {name[len(path) + 1 :]: size for name, size in found.items()}


def remove(files: Any, path: str) -> None:
    """Remove an object."""
    files.delete_file(path)


def _answer(line: bytes, files: Any, root: str, source: IO[bytes], target: IO[bytes]) -> None:
    request = json.loads(line)
    path = f"{root}/{request['name']}".rstrip("/")
    signal.alarm(ALARM_SECONDS)
    result = None
    if request["operation"] == "read":
        for block in read(files, path):
            write_block(target, block)
            target.flush()
            signal.alarm(ALARM_SECONDS)
    elif request["operation"] == "write":
        write(files, path, read_blocks(source))
    else:
        result = {"size": size_of, "sizes": sizes, "remove": remove}[request["operation"]](files, path)
    _end(target, {"result": result})
    signal.alarm(0)


def _end(target: IO[bytes], answer: dict[str, Any]) -> None:
    write_block(target, b"")
    target.write(json.dumps(answer).encode() + b"\n")
    target.flush()


def main() -> None:
    """Answer requests until there are no more, one is refused, or none comes for a while."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve more than they use
    import pyarrow
    import pyarrow.fs

    pyarrow.set_io_thread_count(2)  # parts of an upload at the same time
    files, root = None, ""
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize() if os.path.exists("/proc") else 0
    for limit, most in {resource.RLIMIT_DATA: used + MEMORY_BYTES, resource.RLIMIT_CORE: 0}.items():
        resource.setrlimit(limit, (most, most))
    target.write(READY)
    target.flush()
    while select.select([source], [], [], IDLE_SECONDS)[0] and (line := source.readline()):
        try:
            if files is None:
                files, root = pyarrow.fs.FileSystem.from_uri(sys.argv[1])
            _answer(line, files, root.rstrip("/"), source, target)
        except FileNotFoundError:
            _end(target, {"missing": True})
        except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
            _end(target, {"problem": str(error)[:2000] or type(error).__name__, "errno": getattr(error, "errno", None)})
            return


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # not after threads that still wait for the storage
