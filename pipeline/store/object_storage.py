"""Folders on object storage.

Credentials come from the environment alone (AWS_*, GOOGLE_APPLICATION_CREDENTIALS).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import durable
from fewstep.object_storage import ObjectStorage
from pipeline.store.streams import DamagedError, Digest, at_most, brief_reason, read_blocks, retried, write_blocks
from stages.errors import FULL, StageError, unwritable

MAX_READ_BYTES = 256 << 20
"""Bytes of an object that is held in memory: manifests and indices, of about 150 bytes a file."""


class _Disk:
    """A folder on a disk, with the methods of `ObjectStorage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Generator[bytes, None, None]:
        yield from read_blocks(self._folder / name)

    def write(self, name: str, blocks: Iterator[bytes]) -> None:
        durable.write_whole(self._folder / name, lambda temporary: write_blocks(temporary, blocks))

    def sizes(self, name: str) -> dict[str, int]:
        files = (path for path in (self._folder / name).rglob("*") if path.is_file())
        return {str(path.relative_to(self._folder / name)): path.stat().st_size for path in files}

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()


class Folder:
    """A folder on object storage or on a disk (`file://`). Names are relative to it. Transient failures are retried.

    All methods raise StageError if the storage cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0].rstrip("/")
        disk = _Disk(Path(url2pathname(urlsplit(url).path))) if url.startswith("file:") else None
        self._files: _Disk | ObjectStorage = disk or ObjectStorage(url)

    def address(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object, or None if it does not exist."""

        def read() -> bytes | None:
            try:
                with closing(self._files.read(name)) as blocks:
                    return b"".join(at_most(MAX_READ_BYTES, blocks))
            except FileNotFoundError:
                return None

        with self._explained(name):
            return retried(read)

    def write(self, name: str, data: bytes) -> None:
        """Write a small object as a whole or not at all."""
        with self._explained(name):
            retried(lambda: self._files.write(name, iter([data])))

    def upload(self, name: str, path: Path) -> dict[str, Any]:
        """Copy a file to the folder and return the {bytes, sha256} that were sent. Raises FileNotFoundError for a missing file."""

        def upload() -> dict[str, Any]:
            digest = Digest()
            self._files.write(name, digest.over(read_blocks(path)))
            return digest.entry

        path.stat()
        with self._explained(name):
            return retried(upload)

    def download(self, name: str, path: Path, expected: dict[str, Any]) -> None:
        """Copy an object to a file and compare it with the {bytes, sha256} that are expected.

        Raises DamagedError if it differs or does not exist.
        """

        def download() -> None:
            digest = Digest()
            with closing(self._files.read(name)) as blocks:
                try:
                    first = next(blocks, b"")
                except FileNotFoundError as error:
                    raise DamagedError(f"expected {_shown(expected)}, got nothing") from error
                write_blocks(path, digest.over(at_most(expected["bytes"], chain([first], blocks))))
            if digest.entry != expected:
                raise DamagedError(f"expected {_shown(expected)}, got {_shown(digest.entry)}")

        with self._explained(name, path):
            retried(download)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of all objects below `prefix`, by name."""
        with self._explained(prefix):
            return {f"{prefix}/{name}": size for name, size in retried(lambda: self._files.sizes(prefix)).items()}

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Missing ones are skipped."""
        for name in names:
            with self._explained(name):
                try:
                    self._files.remove(name)
                except FileNotFoundError:
                    continue

    @contextmanager
    def _explained(self, name: str, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except DamagedError:
            raise
        except OSError as error:
            if error.errno in FULL:
                raise unwritable(path or Path(self.address(name)), error) from error
            raise StageError(
                f"{self.address(name)}: could not be reached: {brief_reason(error)}; check the network and the credentials "
                "in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL; "
                "GOOGLE_APPLICATION_CREDENTIALS)"
            ) from error


def _shown(entry: dict[str, Any]) -> str:
    return f"{entry['bytes']} bytes of sha256 {entry['sha256']}"
