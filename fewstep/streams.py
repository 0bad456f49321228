"""Translation from one file or stream to another, line by line, in order, as lines arrive."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

__all__ = ["MAX_LINE_BYTES", "StreamError", "Translator", "json_text", "open_streams", "plain_text", "stream", "stream_options"]

log = logging.getLogger("fewstep")

S = TypeVar("S")

STDIN, STDOUT = 0, 1
CHUNK = 1 << 16
MAX_LINE_BYTES = 1 << 20
"""Bytes of one line, the line feed included. A longer one is refused before it fills the memory."""


class StreamError(ValueError):
    """An input or an output that cannot be used."""


class Translator(Protocol):
    """The part of a loaded system that is used here (`fewstep.System`)."""

    def translate(self, lines: list[str], search: Any = None, *, first_line: int = 1) -> list[Any]: ...


def plain_text(output: Any) -> str:
    """Return a translation as one line."""
    return " ".join(str(output).splitlines())


def json_text(output: Any) -> str:
    """Return a `fewstep.Translation`, or a list of them, as one line of JSON. Infinite numbers are null."""
    values = [one._asdict() for one in output] if isinstance(output, list) else output._asdict()
    return json.dumps(_finite(values), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def stream_options(*, json: bool = False, n_best: int | None = None, threads: int | None = None) -> dict[str, Any]:
    """Return the arguments of `stream` for these options of a command. `json` and `n_best` write lines of JSON."""
    structured = {"text": json_text, "scores": True} if json or n_best is not None else {}
    given = {"n_best": n_best, "threads": threads}
    return structured | {name: value for name, value in given.items() if value is not None}


def stream(
    system: Translator,
    read: int,
    write: int,
    *,
    batch: int = 64,
    text: Callable[[Any], str] = plain_text,
    **options: Any,
) -> None:
    """Translate lines from one file descriptor to another, at most `batch` at a time.

    Writes one line for each line read: `text` of what `system.translate` returns with these `options`. Bytes that are not UTF-8 are
    replaced, with a warning that names the line. Raises StreamError for an input that cannot be read and for a line that
    is too long, each after the translations of the lines before it, BrokenPipeError when the reader of the output has closed it.
    """
    first = 1
    for chunk in _chunks(read, batch):
        lines = [_decoded(line, number) for number, line in enumerate(chunk, first)]
        outputs = system.translate(lines, first_line=first, **options)
        write_all(write, "".join(text(output) + "\n" for output in outputs).encode("utf-8"))
        first += len(chunk)


def _chunks(read: int, max_lines: int) -> Iterator[list[bytes]]:
    """Yield lines as they arrive: wait for one, then take all that are ready."""
    more = select.poll()
    more.register(read, select.POLLIN)
    ready: list[bytes] = []
    block, rest, number = b"-", b"", 1
    while block:
        try:
            block = os.read(read, CHUNK)
        except OSError as error:
            yield from _parts(ready, max_lines)
            raise StreamError(f"input: expected readable text, got: {error.strerror}") from error
        *lines, rest = (rest + block).split(b"\n")
        if (long := _first_long((*lines, rest))) is not None:
            yield from _parts([*ready, *lines[:long]], max_lines)
            raise StreamError(
                f"input, line {number + long}: expected at most {MAX_LINE_BYTES:,} bytes, got a longer line; split the line"
            )
        number += len(lines)
        ready += lines if block or not rest else [*lines, rest]
        now = len(ready) - len(ready) % max_lines if block and more.poll(0) else len(ready)
        yield from _parts(ready[:now], max_lines)
        ready = ready[now:]


def _first_long(lines: Iterable[bytes]) -> int | None:
    return next((index for index, line in enumerate(lines) if len(line) >= MAX_LINE_BYTES), None)


def _parts(lines: list[bytes], max_lines: int) -> Iterator[list[bytes]]:
    return (lines[start : start + max_lines] for start in range(0, len(lines), max_lines))


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        log.warning("line %d: not UTF-8 at byte %d; the invalid bytes are replaced", number, error.start + 1)
        return line.decode("utf-8", "replace")


def write_all(write: int, data: bytes) -> None:
    """Write all bytes to a file descriptor."""
    while data:
        data = data[os.write(write, data) :]


@contextmanager
def open_streams(source: Path | None, output: Path | None, load: Callable[[], S]) -> Iterator[tuple[S, int, int]]:
    """Yield what `load` returns, and the file descriptors of a source and an output (None: standard input and output).

    The output is not touched before `load` has returned. Raises StreamError for a file that cannot be opened, and for an output
    that is the input.
    """
    with ExitStack() as stack:
        read = STDIN if source is None else _opened(source, os.O_RDONLY, stack)
        _check_apart(read, output)
        loaded = load()
        yield loaded, read, STDOUT if output is None else _opened(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stack)


def _opened(path: Path, flags: int, stack: ExitStack) -> int:
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise StreamError(f"{path}: expected a file that can be opened, got: {error.strerror}") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _check_apart(read: int, output: Path | None) -> None:
    """Raise StreamError when the output is the input file."""
    try:
        source, target = os.fstat(read), os.fstat(STDOUT) if output is None else output.stat()
    except OSError:
        return
    if stat.S_ISREG(target.st_mode) and os.path.samestat(source, target):
        raise StreamError(
            f"{output or 'standard output'}: expected an output other than the input, got the same file; "
            "write to a new file and rename it afterwards"
        )
