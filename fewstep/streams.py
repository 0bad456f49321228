"""Translation from one file or stream to another, line by line, in order, as lines arrive."""

from __future__ import annotations

import json
import logging
import math
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fewstep.access import STANDARD_OUTPUT, OutputError, access_problem, open_input, read_input
from fewstep.text.format import TextFormatError, check_text
from fewstep.translation import SourceTooLongError

log = logging.getLogger("fewstep")

S = TypeVar("S")
Translate = Callable[[list[str], int], Sequence[str]]
"""A function that returns a line of output for each line of input; the number is that of the first line, for warnings."""

STDIN, STDOUT = 0, 1
PART = ".part"
"""Suffix of an output until it is whole."""
CHUNK = 1 << 16
MAX_LINE_BYTES = 1 << 20
"""Bytes of one line, the line feed included. A longer one is refused before it fills the memory."""
MAX_DOCUMENT_BYTES = 256 << 20
"""Bytes of a document that is translated in place."""


class StreamError(ValueError):
    """An input or an output that cannot be used."""


def plain_text(output: str) -> str:
    """Return a translation as one line."""
    return " ".join(output.splitlines())


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


def stream(translate: Translate, read: int, write: int, *, batch: int = 64) -> None:
    """Translate lines from one file descriptor to another, at most `batch` at a time.

    Writes one line for each line read. Stray bytes that are not UTF-8 are replaced, with a warning that names the line.

    Raises StreamError for an input that cannot be read, that is no plain text or in another encoding, for a line that is too long,
    and for one that `translate` refuses with SourceTooLongError, each after the translations of the lines before it;
    BrokenPipeError when the reader of the output has closed it.
    """
    first = 1
    decoder = LineDecoder()
    for chunk in _chunks(read, batch):
        lines, problem = _decoded(chunk, first, decoder)
        if lines:
            outputs, too_long = _translated(translate, lines, first)
            write_all(write, "".join(f"{line}\n" for line in outputs).encode("utf-8"))
            problem = too_long or problem
        if problem:
            raise problem
        first += len(chunk)


def _translated(translate: Translate, lines: list[str], first: int) -> tuple[Sequence[str], StreamError | None]:
    """Return the output for lines up to one that is refused for its length, and the error for that line."""
    try:
        return translate(lines, first), None
    except SourceTooLongError as error:
        before = lines[: error.line - first]
        return translate(before, first) if before else [], StreamError(f"input, {error}")


def _decoded(chunk: list[bytes], first: int, decoder: LineDecoder) -> tuple[list[str], StreamError | None]:
    """Return the lines up to one that shows another encoding, and the error for that line."""
    lines = list[str]()
    for number, line in enumerate(chunk, first):
        try:
            lines.append(decoder.decode(line, number))
        except StreamError as error:
            return lines, error
    return lines, None


def _chunks(read: int, max_lines: int) -> Iterator[list[bytes]]:
    """Yield lines as they arrive: wait for one, then take all that are ready."""
    more = select.poll()
    more.register(read, select.POLLIN)
    ready: list[bytes] = []
    block = b"-"
    rest = b""
    number = 1
    while block:
        try:
            block = os.read(read, CHUNK)
            if number == 1 and not rest:
                check_text(block, "input")
        except OSError as error:
            yield from _parts(ready, max_lines)
            raise StreamError(f"input: expected readable text, got: {error.strerror}") from error
        except TextFormatError as error:
            raise StreamError(str(error)) from error
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


class LineDecoder:
    """Decode the lines of a text from UTF-8.

    A text in another encoding has more invalid than valid characters outside of ASCII; damage leaves few invalid ones.
    """

    def __init__(self) -> None:
        self._valid = self._invalid = 0

    def decode(self, line: bytes, number: int) -> str:
        """Return a line, in which stray bytes are replaced, with a warning. Raises StreamError for a text in another encoding."""
        text = line.decode("utf-8", "replace")
        if text.isascii():
            return text
        invalid = text.count("\N{REPLACEMENT CHARACTER}")
        self._invalid += invalid
        self._valid += len(text) - len(text.encode("ascii", "ignore")) - invalid
        if not invalid:
            return text
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            if self._invalid > self._valid:
                raise StreamError(
                    f"input, line {number}: expected UTF-8, got the byte 0x{line[error.start]:02x} at byte {error.start + 1}, and "
                    f"{self._invalid} invalid of {self._invalid + self._valid} characters outside of ASCII so far; convert the "
                    "text first (iconv -f ENCODING -t UTF-8 FILE)"
                ) from error
            log.warning("line %d: not UTF-8 at byte %d; the invalid bytes are replaced", number, error.start + 1)
        return text


def write_all(write: int, data: bytes) -> None:
    """Write all bytes to a file descriptor. Raises OutputError, which names the output, or BrokenPipeError."""
    while data:
        try:
            data = data[os.write(write, data) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(write, error) from error


def _unwritable(write: int, error: OSError) -> OutputError:
    """Return the error of an output, which says where the lines so far are."""
    if write == STDOUT:
        return OutputError(access_problem(STANDARD_OUTPUT, error, write=True))
    name = os.readlink(f"/proc/self/fd/{write}") if os.path.isdir("/proc/self/fd") else "the output"
    kept = f"; the output so far is in {name}" if name.endswith(PART) else ""
    return OutputError(access_problem(name.removesuffix(PART), error, write=True) + kept)


@contextmanager
def open_streams(source: Path | None, output: Path | None, load: Callable[[], S]) -> Iterator[tuple[S, int, int]]:
    """Yield what `load` returns, and the file descriptors of a source and an output (None: standard input and output).

    The output is not touched before `load` has returned. A file has the suffix `PART` until it is whole: after an error, the lines
    so far are there. Raises StreamError for a file that cannot be opened, and for an output that is the input; OutputError for an
    output that cannot be written to its end.
    """
    with ExitStack() as stack:
        read = STDIN if source is None else _opened(source, stack)
        _check_apart(read, output)
        loaded = load()
        with _writing(output) as write:
            yield loaded, read, write


@contextmanager
def _writing(output: Path | None) -> Iterator[int]:
    """Yield the descriptor of an output, which has the suffix `PART` until this ends without an error."""
    if output is None:
        yield STDOUT
        return
    part = _part(output)
    with ExitStack() as stack:
        write = _created(part or output, stack)
        try:
            yield write
        except StreamError as error:
            if part is None or part.stat().st_size == 0:
                raise
            raise StreamError(f"{error}; the output so far is in {part}") from error
        finally:
            if part is not None and part.stat().st_size == 0 and sys.exc_info()[0]:
                part.unlink()
        if part is not None:
            _finish(part, write, output)


def _part(output: Path) -> Path | None:
    """Return the name of a file until it is whole; None for what is written in place.

    That is a device or a pipe, and a file in a folder in which this user cannot create others.
    """
    target = Path(os.path.realpath(output))
    try:
        if not stat.S_ISREG(target.stat().st_mode) or not os.access(target.parent, os.W_OK | os.X_OK):
            return None
    except OSError:  # it does not exist, or cannot be created, which opening it explains
        if not target.parent.is_dir():
            return None
    return target.with_name(target.name + PART)


def _finish(part: Path, write: int, output: Path) -> None:
    """Give a whole file its name. It has the mode of the file that it replaces."""
    target = Path(os.path.realpath(output))
    try:
        with suppress(FileNotFoundError):
            os.fchmod(write, stat.S_IMODE(target.stat().st_mode))
        os.fsync(write)  # some file systems report a full disk only here
        part.replace(target)
    except OSError as error:
        raise OutputError(access_problem(output, error, write=True)) from error


def rewrite(source: Path | None, output: Path | None, convert: Callable[[bytes], bytes]) -> None:
    """Write what `convert` returns for the whole content of a source to an output (None: standard input and output).

    The output is not touched before. Raises StreamError as `open_streams` does, and for a source of more than
    `MAX_DOCUMENT_BYTES`.
    """
    with ExitStack() as stack:
        read = STDIN if source is None else _opened(source, stack)
        _check_apart(read, output)
        converted = convert(_content(read, source))
        with _writing(output) as write:
            write_all(write, converted)


def _content(read: int, source: Path | None) -> bytes:
    try:
        content = read_input(read, MAX_DOCUMENT_BYTES, source)
    except OSError as error:
        raise StreamError(f"input: expected readable text, got: {error.strerror}") from error
    if len(content) > MAX_DOCUMENT_BYTES:
        raise StreamError(f"input: expected a document of at most {MAX_DOCUMENT_BYTES:,} bytes, got a longer one; split it")
    return content


def _opened(path: Path, stack: ExitStack) -> int:
    try:
        descriptor = open_input(path)
    except OSError as error:
        raise StreamError(access_problem(path, error)) from error
    stack.callback(os.close, descriptor)
    return descriptor


def _created(path: Path, stack: ExitStack) -> int:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise StreamError(access_problem(str(path).removesuffix(PART), error, write=True)) from error
    stack.callback(os.close, descriptor)
    return descriptor


def _check_apart(read: int, output: Path | None) -> None:
    """Raise StreamError when the output is the input file."""
    try:
        source = os.fstat(read)
        target = os.fstat(STDOUT) if output is None else output.stat()
    except OSError:
        return
    if stat.S_ISREG(target.st_mode) and os.path.samestat(source, target):
        raise StreamError(
            f"{output or 'standard output'}: expected an output other than the input, got the same file; "
            "write to a new file and rename it afterwards"
        )
