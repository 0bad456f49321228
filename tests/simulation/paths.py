"""Paths with the methods of `pathlib.Path` that the pipeline uses. Each simulated process has a class of paths of its own."""

from __future__ import annotations

import errno
import io
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tests.simulation.disk import File, Folder, Node, error

if TYPE_CHECKING:
    from tests.simulation.machine import Machine


class Status(NamedTuple):
    """The status of a file."""

    st_size: int
    st_mtime: float
    st_mtime_ns: int
    st_ctime_ns: int
    st_mode: int = stat.S_IFREG


class SimulatedPath(PurePosixPath):
    """A path on the simulated file system, as one process sees it."""

    machine: ClassVar[Machine]

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: a simulated path was given to the real file system")

    def _node(self) -> Node | None:
        self.machine.read()
        return self.machine.disk_state.find(self._parts[1:])

    def _existing(self) -> Node:
        node = self._node()
        if node is None:
            raise error(errno.ENOENT, self)
        return node

    def absolute(self) -> Self:
        return self

    def exists(self) -> bool:
        return self._node() is not None

    def is_dir(self) -> bool:
        return isinstance(self._node(), Folder)

    def is_file(self) -> bool:
        return isinstance(self._node(), File)

    def is_symlink(self) -> bool:
        return False

    def stat(self) -> Status:
        node = self._existing()
        time = int(node.changed * 1e9)
        return Status(len(node.data) if isinstance(node, File) else 0, node.changed, time, time)

    lstat = stat

    def iterdir(self) -> Iterator[Self]:
        self.machine.read()
        return iter([self / name for name in self.machine.names(self.machine.disk_state.folder(self.parts[1:]))])

    def glob(self, pattern: str) -> Iterator[Self]:
        head, _, rest = pattern.partition("/")
        try:
            found = [path for path in self.iterdir() if fnmatchcase(path.name, head)]
        except OSError:
            return
        for path in found:
            if rest:
                yield from path.glob(rest)
            else:
                yield path

    def rglob(self, pattern: str) -> Iterator[Self]:
        for path in sorted(self.glob("*")):
            if fnmatchcase(path.name, pattern):
                yield path
            if path.is_dir():
                yield from path.rglob(pattern)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True, exist_ok=True)
        self.machine.write("mkdir")
        folder = self.machine.disk_state.folder(self.parts[1:-1])
        if self.name in folder.entries:
            if exist_ok and isinstance(folder.entries[self.name], Folder):
                return
            raise error(errno.EEXIST, self)
        self.machine.change([(folder, self.name, Folder())])

    def unlink(self, missing_ok: bool = False) -> None:
        self.machine.write("unlink")
        try:
            folder = self.machine.disk_state.folder(self.parts[1:-1])
            if self.name not in folder.entries:
                raise error(errno.ENOENT, self)
        except FileNotFoundError:
            if missing_ok:
                return
            raise
        self.machine.change([(folder, self.name, None)])

    def rmdir(self) -> None:
        self.machine.write("rmdir")
        folder = self.machine.disk_state.folder(self.parts[1:-1])
        if self.machine.disk_state.folder(self.parts[1:]).entries:
            raise error(errno.ENOTEMPTY, self)
        self.machine.change([(folder, self.name, None)])

    def rename(self, target: Self) -> None:
        self.machine.write("rename")
        disk = self.machine.disk_state
        source, into = disk.folder(self.parts[1:-1]), disk.folder(target.parts[1:-1])
        node, other = source.entries.get(self.name), into.entries.get(target.name)
        if node is None:
            raise error(errno.ENOENT, self)
        if isinstance(other, Folder) and (isinstance(node, File) or other.entries):
            raise error(errno.ENOTEMPTY if isinstance(node, Folder) else errno.EISDIR, target)
        if isinstance(other, File) and isinstance(node, Folder):
            raise error(errno.ENOTDIR, target)
        self.machine.change([(source, self.name, None), (into, target.name, node)])
        self.machine.renamed(self, target)

    replace = rename

    def touch(self) -> None:
        self.machine.write("touch")
        folder = self.machine.disk_state.folder(self.parts[1:-1])
        if self.name not in folder.entries:
            self.machine.change([(folder, self.name, File(creator=self.machine.runner.name))])
        folder.entries[self.name].changed = self.machine.scheduler.now

    def read_bytes(self) -> bytes:
        node = self._existing()
        if isinstance(node, Folder):
            raise error(errno.EISDIR, self)
        return node.data

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        with self.open("wb") as file:
            file.write(data)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def open(self, mode: str = "rb") -> Any:
        if mode == "rb":
            return io.BytesIO(self.read_bytes())
        if mode == "r+b":
            node = self._existing()
            assert isinstance(node, File)
            return Writer(self.machine, node)
        self.machine.write("create")
        folder = self.machine.disk_state.folder(self.parts[1:-1])
        node = folder.entries.get(self.name)
        if node is not None and mode == "xb":
            raise error(errno.EEXIST, self)
        if isinstance(node, Folder):
            raise error(errno.EISDIR, self)
        if node is None:
            node = File(creator=self.machine.runner.name, changed=self.machine.scheduler.now)
            self.machine.change([(folder, self.name, node)])
        node.data = b""
        return Writer(self.machine, node)


class Writer:
    """An open file. Its buffer is written when it is flushed or closed, at its own position."""

    def __init__(self, machine: Machine, file: File) -> None:
        self._machine, self._file, self._position, self._buffer = machine, file, 0, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def read(self) -> bytes:
        self._machine.read()
        return self._file.data

    def seek(self, position: int) -> None:
        self._position = position

    def write(self, data: bytes) -> None:
        self._buffer += data

    def flush(self) -> None:
        """Write the buffer in two parts: a fault may come between them."""
        data, self._buffer = self._buffer, b""
        middle = self._machine.scheduler.rng.randrange(len(data) + 1)
        for part in (data[:middle], data[middle:]):
            if part:
                self._machine.write("write")
                self._put(part)

    def _put(self, data: bytes) -> None:
        self._machine.written(self._file)
        old, start = self._file.data, self._position
        self._file.data = old[:start].ljust(start, b"\0") + data + old[start + len(data) :]
        self._file.changed = self._machine.scheduler.now
        self._position += len(data)
