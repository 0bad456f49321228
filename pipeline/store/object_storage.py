"""Folders on object storage.

Credentials come from the environment alone (AWS_*, GOOGLE_APPLICATION_CREDENTIALS).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import durable
from pipeline.store.streams import BLOCK_BYTES, DamagedError, Digest, at_most, brief_reason, read_blocks, retried, write_blocks
from stages.errors import FULL, StageError, unwritable

MAX_READ_BYTES = 256 << 20
"""Bytes of an object that is held in memory: manifests and indices, of about 150 bytes a file."""


class Folder:
    """A folder on object storage or on a disk (`file://`). Names are relative to it. Transient failures are retried.

    All methods raise StageError if the storage cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0].rstrip("/")
        with self._explained(""):
            import pyarrow.fs

            self._files, path = pyarrow.fs.FileSystem.from_uri(url)
        self._root = path.rstrip("/")
        self._local = self._files.type_name == "local"

    def address(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object, or None if it does not exist."""

        def read() -> bytes | None:
            try:
                with self._files.open_input_stream(self._path(name)) as stream:
                    data = b"".join(at_most(MAX_READ_BYTES, iter(lambda: stream.read(BLOCK_BYTES), b"")))
            except FileNotFoundError:
                return None
            return data

        with self._explained(name):
            return retried(read)

    def write(self, name: str, data: bytes) -> None:
        """Write a small object as a whole or not at all."""
        with self._explained(name):
            retried(lambda: self._write(name, iter([data])))

    def upload(self, name: str, path: Path) -> dict[str, Any]:
        """Copy a file to the folder and return the {bytes, sha256} that were sent. Raises FileNotFoundError for a missing file."""

        def upload() -> dict[str, Any]:
            digest = Digest()
            self._write(name, digest.over(read_blocks(path)))
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
            try:
                stream = self._files.open_input_stream(self._path(name))
            except FileNotFoundError as error:
                raise DamagedError(f"expected {_shown(expected)}, got nothing") from error
            with stream:
                blocks = at_most(expected["bytes"], iter(lambda: stream.read(BLOCK_BYTES), b""))
                write_blocks(path, digest.over(blocks))
            if digest.entry != expected:
                raise DamagedError(f"expected {_shown(expected)}, got {_shown(digest.entry)}")

        with self._explained(name, path):
            retried(download)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of all objects below `prefix`, by name."""
        import pyarrow.fs

        def sizes() -> dict[str, int]:
            selector = pyarrow.fs.FileSelector(self._path(prefix), allow_not_found=True, recursive=True)
            found = [info for info in self._files.get_file_info(selector) if info.type == pyarrow.fs.FileType.File]
            return {info.path[len(self._root) + 1 :]: info.size for info in found}

        with self._explained(prefix):
            return retried(sizes)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. Missing ones are skipped."""
        for name in names:
            with self._explained(name):
                try:
                    self._files.delete_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _write(self, name: str, blocks: Iterator[bytes]) -> None:
        path = self._path(name)
        if not self._local:  # object storage gives an object its name when it is complete
            with self._files.open_output_stream(path) as stream:
                for block in blocks:
                    stream.write(block)
            return
        durable.write_whole(Path(path), lambda temporary: write_blocks(temporary, blocks))

    @contextmanager
    def _explained(self, name: str, path: Path | None = None) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except DamagedError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise unwritable(path or Path(self._path(name)), error) from error
            raise StageError(
                f"{self.address(name)}: could not be reached: {brief_reason(error)}; check the network and the credentials "
                "in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL; "
                "GOOGLE_APPLICATION_CREDENTIALS)"
            ) from error


def _shown(entry: dict[str, Any]) -> str:
    return f"{entry['bytes']} bytes of sha256 {entry['sha256']}"
