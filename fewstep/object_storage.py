"""Files on object storage (`s3://`, `gs://`), each operation in a process that is ended where the storage does not end it.

Credentials come from the environment, and from the files of the cloud's own tools.
"""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from fewstep import patience
from fewstep.object_storage_process import MEMORY_BYTES, READY, read_blocks, write_block
from fewstep.patience import GivenUpError, Patience, SlowError, flowing, waited_for

PROGRAM = Path(__file__).with_name("object_storage_process.py")
MIN_UPLOAD_RATE = 1 << 14
"""Bytes per second of an upload below which it is given up. (Parts of 10 MB and more are sent before a library says so.)"""


TRYING_SECONDS = 2.0
"""Seconds without useful bytes after which a failed operation is not tried again, since the library has done so itself."""


class ObjectStorage:
    """A folder, or a file, on object storage. Names are relative to it; the empty one is that of the file itself.

    All methods raise OSError: FileNotFoundError for a missing object, GivenUpError for a storage that lets this process wait for
    too long or answers without an end. Several threads may use them.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[_Process] = []
        weakref.finalize(self, _end_all, self._idle)

    def read(self, name: str) -> Generator[bytes, None, None]:
        """Yield the blocks of an object."""
        waiting = Patience(patience.WAIT_SECONDS)
        with self._answers("read", name, (), waiting) as answers:
            yield from flowing((answer for answer in answers if isinstance(answer, bytes)), waiting)

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write an object as a whole or not at all."""
        self._result("write", name, blocks)

    def size(self, name: str) -> int | None:
        """Return the bytes of an object, or None if there is no such object."""
        size: int | None = self._result("size", name)
        return size

    def sizes(self, name: str) -> dict[str, int]:
        """Return the bytes of all objects below a name, by the rest of their names."""
        found: dict[str, int] = self._result("sizes", name)
        return found

    def remove(self, name: str) -> None:
        """Remove an object."""
        self._result("remove", name)

    def _result(self, operation: str, name: str, blocks: Iterable[bytes] = ()) -> Any:
        waiting = Patience(patience.WAIT_SECONDS)
        sent, result = 0, None
        try:
            with self._answers(operation, name, blocks, waiting) as answers:
                for answer in answers:
                    if isinstance(answer, int):
                        sent += answer
                        waiting.seconds += answer / MIN_UPLOAD_RATE
                    else:
                        result = answer["result"]
        except SlowError as error:
            more = f" and a second for each {MIN_UPLOAD_RATE:,} of {sent:,} bytes" if sent else ""
            raise SlowError(f"expected an answer within {patience.WAIT_SECONDS:g} s{more}, got none") from error
        return result

    @contextmanager
    def _answers(self, operation: str, name: str, blocks: Iterable[bytes], waiting: Patience) -> Iterator[Iterator[Any]]:
        process = self._taken()
        try:
            exchange = process.exchange({"operation": operation, "name": name}, blocks)
            with closing(waited_for(exchange, waiting)) as answers:
                yield answers
        except _MissingError:
            self._idle.append(process)
            raise
        except BaseException as error:
            process.end()
            if isinstance(error, OSError) and waiting.seconds < patience.WAIT_SECONDS - TRYING_SECONDS:
                raise GivenUpError(str(error)) from error
            raise
        self._idle.append(process)

    def _taken(self) -> _Process:
        with suppress(IndexError):
            while not (process := self._idle.pop()).runs():
                process.end()
            return process
        return _Process(self._url)


class _MissingError(FileNotFoundError):
    """The storage has no such object."""


class _Process:
    """A process that works on object storage. Its start, which takes long on a busy machine, is over when it is made."""

    def __init__(self, url: str) -> None:
        # In a session of its own, an upload is not ended by the Ctrl-C after which a run saves its state.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        cast(IO[bytes], self._process.stdout).read(len(READY))

    def runs(self) -> bool:
        return self._process.poll() is None

    def exchange(self, request: dict[str, Any], blocks: Iterable[bytes]) -> Generator[Any, None, None]:
        """Yield the bytes of each block that was sent, the blocks of the answer, and {result}."""
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        try:
            target.write(json.dumps(request).encode() + b"\n")
            if request["operation"] == "write":
                for block in blocks:
                    write_block(target, block)
                    yield len(block)
                write_block(target, b"")
            target.flush()
        except BrokenPipeError:
            pass  # the answer says why
        try:
            yield from read_blocks(source)
            answer = json.loads(source.readline())
        except (EOFError, ValueError) as error:
            raise GivenUpError(
                f"expected an answer that takes at most {MEMORY_BYTES >> 20} MiB of memory, got one whose reader ended with "
                f"the code {self._process.wait()}"
            ) from error
        if answer.get("missing"):
            raise _MissingError(request["name"])
        if problem := answer.get("problem"):
            raise OSError(answer["errno"], problem) if answer["errno"] else OSError(problem)
        yield answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()


def _end_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().end()
