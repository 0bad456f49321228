"""Files that cannot be read or written: what was expected, the reason, and what to do, as one line."""

from __future__ import annotations

import errno
import logging
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped_line

log = logging.getLogger("fewstep")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and the limit of file sizes."""
EFFECTIVE = os.access in os.supports_effective_ids
STANDARD_OUTPUT = "standard output"
WAIT_SECONDS = 2.0
"""Seconds after which a warning names the pipe or the device that gives nothing."""


class OutputError(OSError):
    """An output that cannot be written. Its text is a message for the user."""


def access_problem(path: Path | str, error: OSError, *, write: bool = False) -> str:
    """Return why a file of the user cannot be read or written, with a remedy.

    Where the right to a folder above it is missing, the message names the folder.
    """
    reason = error.strerror or str(error)
    shown = escaped_line(path)
    if write:
        return f"{shown}: could not be written: {reason}; {_write_remedy(error)}"
    if isinstance(error, PermissionError):
        problem = permission_problem(Path(path)) or f"{reason}; give this user the right to read and to write there"
        return f"{shown}: {problem}"
    return f"{shown}: expected a file that can be read, got: {reason}; check the path"


def open_input(path: Path) -> int:
    """Return a descriptor of a file to read, once it has bytes or an end. Raises OSError.

    A pipe is waited for until a process writes into it, and a device until it gives something; a warning names either.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _await_bytes(descriptor, path)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_input(descriptor: int, most: int, path: Path | None = None) -> bytes:
    """Return the content behind a descriptor, or its first `most` + 1 bytes if it has more. Raises OSError.

    A warning names `path` each time that it gives nothing for a while, as a pipe may and `/proc/kmsg` does.
    """
    found = bytearray()
    while len(found) <= most:
        if path is not None:
            _await_bytes(descriptor, path)
        block = os.read(descriptor, min(1 << 16, most + 1 - len(found)))
        if not block:
            break
        found += block
    return bytes(found)


def content_of(path: Path, most: int) -> bytes:
    """Return the content of a file, a pipe or a device, as `read_input` does. Raises OSError."""
    descriptor = open_input(path)
    try:
        return read_input(descriptor, most, path)
    finally:
        os.close(descriptor)


def _await_bytes(descriptor: int, path: Path) -> None:
    """Wait until a descriptor has bytes or an end."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(WAIT_SECONDS * 1000):
        log.warning("%s: still waiting for its text; end the command, or write into it", path)
        waiting.poll()


def permission_problem(path: Path) -> str | None:
    """Return why this user may not read a file, list a directory, or enter a directory above it; None if that is permitted."""
    closed = next((one for one in (*reversed(path.absolute().parents), path) if not _is_open(one, one == path)), None)
    if closed is None:
        return None
    entry = os.stat(closed)
    letters = "rx" if closed.is_dir() else "r"
    if closed != path:
        letters = "x"  # a folder on the way has to be entered, not listed
    return (
        f"expected a path that this user may read, but {closed} has mode {stat.S_IMODE(entry.st_mode):04o} and belongs to the user "
        f"{entry.st_uid}; let its owner give permission (chmod a+{letters})"
    )


def _is_open(path: Path, last: bool) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return True  # no such file, or a directory above it is closed and named
    needed = os.X_OK if stat.S_ISDIR(mode) else os.R_OK
    return os.access(path, needed | os.R_OK if last else needed, effective_ids=EFFECTIVE)


def _write_remedy(error: OSError) -> str:
    if error.errno in FULL:
        return "free some space, or name a place on another disk, and repeat the command"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "give this user the right to write there, or name another place"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP):
        return "check the path"
    return "check the disk or the file server, and repeat the command"


def name_problem(path: Path | str) -> str | None:
    """Return why a path cannot be written into files and messages: it is not UTF-8, or has control characters; None for one that
    can."""
    if problem := _encoding_problem(path):
        return problem
    if escaped_line(path) != str(path):
        return "expected a path without control characters; rename the file or folder"
    return None


def _encoding_problem(path: Path | str) -> str | None:
    name = os.fsencode(path)
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{name[error.start]:02x} at byte {error.start + 1}"
        return f"expected a path in UTF-8, got {found}; rename the file or folder"
    return None


@contextmanager
def utf8_name(path: Path) -> Iterator[str]:
    """Yield a name of a file to read for libraries that take names in UTF-8 alone. Raises OSError."""
    if _encoding_problem(path) is None:
        yield str(path)
        return
    with path.open("rb") as file:
        yield f"/proc/self/fd/{file.fileno()}"


def use_utf8() -> None:
    """Start this process again in Python's UTF-8 mode (PEP 540) unless names of files are UTF-8 already.

    Configs and the records of a store are UTF-8, also the names in them, while a locale such as Latin-1 would read and write the
    names of files in its own encoding: one command could not find the files that another one has named.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


@contextmanager
def named_output() -> Iterator[None]:
    """Raise OutputError, with the name of standard output, where writing to it fails in this context."""
    output: Any = sys.stdout

    def named(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            try:
                return write(*values)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(access_problem(STANDARD_OUTPUT, error, write=True)) from error

        return call

    output.write = named(output.write)
    output.flush = named(output.flush)
    try:
        yield
    finally:
        # The methods of the class are found again.
        del output.write, output.flush


def drop_output() -> None:
    """Write what is left of standard output nowhere, so that Python does not complain at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
