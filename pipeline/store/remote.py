"""Object storage and web servers: which URLs a config may name, and how their bytes are read and written.

Credentials come from the environment alone (AWS_*, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc): a URL that carries any is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from kernels import durable
from pipeline.tracking.publication import SECRET, masked
from stages.errors import FULL, DataError, StageError, unwritable

if TYPE_CHECKING:
    import requests

MIRRORS = ("s3", "gs", "file")
TEXTS = ("https", "http", "s3", "gs")
OPTIONS = ("region", "scheme", "endpoint_override")
"""What the query of an object storage's URL may say."""
BLOCK_BYTES = 1 << 20
TRIES = 3
PAUSE_SECONDS = 0.5
"""Before the second try; each further pause is four times as long."""
TIMEOUT_SECONDS = 60.0
"""Without a byte from a web server."""
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Answers of a web server that are worth another try."""

T = TypeVar("T")


def wrong_url(url: str, schemes: tuple[str, ...]) -> str | None:
    """What was expected of `url`, or None where it can be used. The text holds nothing of the URL itself."""
    try:
        parts = urlsplit(url)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        place = parts.path if parts.scheme == "file" else parts.hostname
    except ValueError:
        return "a URL"
    if parts.scheme not in schemes or not place:
        return f"a URL of the form {', '.join(f'{scheme}://...' for scheme in schemes)}"
    if "@" in parts.netloc or any(re.search(SECRET, name, re.IGNORECASE) for name in names):
        return "a URL without user, password, token or signature (credentials come from the environment)"
    if parts.fragment:
        return "a URL without #"
    if parts.scheme in ("s3", "gs", "file") and not set(names) <= set(OPTIONS):
        return f"a URL with no other options than {', '.join(OPTIONS)}"
    return None


class DamagedError(OSError):
    """What was read is not what was written."""


class Folder:
    """A folder on object storage, or on a disk (`file://`). Names are relative to it. Passing failures are tried again.

    All methods raise StageError when the storage cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0].rstrip("/")
        with self._explained(""):
            import pyarrow.fs

            self._files, path = pyarrow.fs.FileSystem.from_uri(url)
        self._root = path.rstrip("/")
        self._local = self._files.type_name == "local"

    def address(self, name: str) -> str:
        """URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def read(self, name: str) -> bytes | None:
        """A small object, or None where there is none."""

        def read() -> bytes | None:
            try:
                with self._files.open_input_stream(self._path(name)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

        with self._explained(name):
            return retried(read)

    def write(self, name: str, data: bytes) -> None:
        """A small object, there whole or not at all."""
        with self._explained(name):
            retried(lambda: self._write(name, iter([data])))

    def upload(self, name: str, path: Path) -> dict[str, Any]:
        """Copy a file there; {bytes, sha256} of what was sent. Raises FileNotFoundError when the file is not there (any more)."""

        def upload() -> dict[str, Any]:
            seen = Digest()
            self._write(name, seen.over(_blocks(path)))
            return seen.entry

        path.stat()
        with self._explained(name):
            return retried(upload)

    def download(self, name: str, path: Path, expected: dict[str, Any]) -> None:
        """Copy an object to a file and compare it with its {bytes, sha256}.

        Raises DamagedError where it differs or is not there.
        """

        def download() -> None:
            seen = Digest()
            try:
                stream = self._files.open_input_stream(self._path(name))
            except FileNotFoundError as error:
                raise DamagedError(f"expected {_shown(expected)}, got nothing") from error
            with stream:
                write_blocks(path, seen.over(iter(lambda: stream.read(BLOCK_BYTES), b"")))
            if seen.entry != expected:
                raise DamagedError(f"expected {_shown(expected)}, got {_shown(seen.entry)}")

        with self._explained(name, path):
            retried(download)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of every object below `prefix`, by name."""
        import pyarrow.fs

        def sizes() -> dict[str, int]:
            selector = pyarrow.fs.FileSelector(self._path(prefix), allow_not_found=True, recursive=True)
            found = [info for info in self._files.get_file_info(selector) if info.type == pyarrow.fs.FileType.File]
            return {info.path[len(self._root) + 1 :]: info.size for info in found}

        with self._explained(prefix):
            return retried(sizes)

    def remove(self, names: Iterable[str]) -> None:
        """Drop objects; one that is not there is passed over."""
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
        if not self._local:  # an object gets its name when it is whole
            with self._files.open_output_stream(path) as stream:
                for block in blocks:
                    stream.write(block)
            return
        target = Path(path)
        durable.write_whole(target, lambda temporary: write_blocks(temporary, blocks))

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
                f"{self.address(name)}: could not be reached: {_brief(error)}; check the network and the credentials in "
                "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS)"
            ) from error


class Digest:
    """Size and sha256 of the blocks that pass by."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0

    def over(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The same blocks."""
        for block in blocks:
            self._hash.update(block)
            self._bytes += len(block)
            yield block

    @property
    def entry(self) -> dict[str, Any]:
        """{bytes, sha256}, as in manifests."""
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}


def copy_of(url: str, path: Path) -> dict[str, Any]:
    """Bring the file at a URL to `path`, whole; its {bytes, sha256}.

    Raises DataError when it is not there or the server tells no length, StageError when it cannot be reached or the disk is full.
    """
    try:
        return retried(lambda: _web_copy(url, path) if url.startswith("http") else _object_copy(url, path))
    except OSError as error:  # also what `requests` raises
        if error.errno in FULL:
            raise unwritable(path, error) from error
        raise StageError(
            f"{url}: could not be downloaded: {_brief(error)}; nothing was kept of it: check the network and repeat"
        ) from error


def _web_copy(url: str, path: Path) -> dict[str, Any]:
    import requests
    from urllib3.exceptions import HTTPError

    with requests.get(url, stream=True, timeout=TIMEOUT_SECONDS, headers={"Accept-Encoding": "identity"}) as answer:
        if answer.status_code in PASSING:
            raise OSError(f"the server answered {answer.status_code} {answer.reason}")
        if answer.status_code != requests.codes.ok:
            raise DataError(
                f"{url}: expected a file, got the answer {answer.status_code} {answer.reason}; check the URL in the config"
            )
        seen = Digest()
        try:
            write_blocks(path, seen.over(answer.raw.stream(BLOCK_BYTES, decode_content=False)))
        except HTTPError as error:  # `requests` translates only what passes through its own iterators
            raise DamagedError(f"the connection broke off: {error}") from error
    _require_whole(url, answer, seen.entry["bytes"])
    return seen.entry


def _require_whole(url: str, answer: requests.Response, got: int) -> None:
    length = answer.headers.get("Content-Length")
    if length is not None and int(length) != got:
        raise DamagedError(f"expected {length} bytes, got {got}: the connection broke off")
    if length is None and answer.headers.get("Transfer-Encoding") != "chunked":
        raise DataError(
            f"{url}: expected a server that says how long the file is, got no Content-Length, so that a part could pass for the "
            "whole; download the file by other means and name its path"
        )


def _object_copy(url: str, path: Path) -> dict[str, Any]:
    import pyarrow
    import pyarrow.fs

    try:
        files, place = pyarrow.fs.FileSystem.from_uri(url)
        seen, size = Digest(), files.get_file_info(place).size
        with files.open_input_stream(place) as stream:
            write_blocks(path, seen.over(iter(lambda: stream.read(BLOCK_BYTES), b"")))
    except FileNotFoundError as error:
        raise DataError(f"{url}: expected a file, got none; check the URL in the config") from error
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
    if size != seen.entry["bytes"]:
        raise DamagedError(f"expected {size} bytes, got {seen.entry['bytes']}: the connection broke off")
    return seen.entry


def retried(action: Callable[[], T]) -> T:
    """What `action` returns. An OSError is worth another try, unless the disk is full or a file is missing."""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS * 4 ** (number - 1))
        try:
            return action()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in FULL or number == TRIES - 1:
                raise
    raise AssertionError("a last try returns or raises")


def write_blocks(path: Path, blocks: Iterator[bytes]) -> None:
    """Write a file from its first byte. It is synced when it gets its final name (`kernels.durable`)."""
    durable.make_directory(path.parent)
    with path.open("wb") as file:
        for block in blocks:
            file.write(block)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _brief(error: BaseException) -> str:
    """One line of an error, without the values of credentials."""
    text = (str(error) or type(error).__name__).splitlines()[0][:500]
    for name in CREDENTIALS:
        text = text.replace(os.environ.get(name) or "\0", "***")
    return masked(text)


def _shown(entry: dict[str, Any]) -> str:
    return f"{entry['bytes']} bytes of sha256 {entry['sha256']}"
