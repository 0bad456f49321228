"""Copies of files on web servers and object storage.

Credentials come from the environment alone (AWS_*, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.store.streams import BLOCK_BYTES, DamagedError, Digest, brief_reason, retried, write_blocks
from stages.errors import FULL, DataError, StageError, unwritable

if TYPE_CHECKING:
    import requests

TIMEOUT_SECONDS = 60.0
"""Time without a byte from a web server after which a download fails."""
TRANSIENT_ANSWERS = (408, 425, 429, 500, 502, 503, 504)
"""Status codes of a web server after which a download is tried again."""


def copy_from_url(url: str, path: Path) -> dict[str, Any]:
    """Copy the whole file at a URL to `path` and return its {bytes, sha256}.

    Raises DataError if there is no such file or the server states no length, StageError if the server cannot be reached or the
    disk is full.
    """
    try:
        return retried(lambda: _copy_from_web(url, path) if url.startswith("http") else _copy_from_storage(url, path))
    except OSError as error:  # `requests` raises it too
        if error.errno in FULL:
            raise unwritable(path, error) from error
        raise StageError(
            f"{url}: could not be downloaded: {brief_reason(error)}; the incomplete file was discarded: check the network and "
            "repeat the command"
        ) from error


def _copy_from_web(url: str, path: Path) -> dict[str, Any]:
    import requests
    from urllib3.exceptions import HTTPError

    with requests.get(url, stream=True, timeout=TIMEOUT_SECONDS, headers={"Accept-Encoding": "identity"}) as answer:
        if answer.status_code in TRANSIENT_ANSWERS:
            raise OSError(f"the server answered {answer.status_code} {answer.reason}")
        if answer.status_code != requests.codes.ok:
            raise DataError(
                f"{url}: expected a file, got the answer {answer.status_code} {answer.reason}; check the URL in the config"
            )
        digest = Digest()
        try:
            write_blocks(path, digest.over(answer.raw.stream(BLOCK_BYTES, decode_content=False)))
        except HTTPError as error:  # `requests` translates the errors of its own iterators only
            raise DamagedError(f"the connection broke off: {error}") from error
    _check_length(url, answer, digest.entry["bytes"])
    return digest.entry


def _check_length(url: str, answer: requests.Response, got: int) -> None:
    length = answer.headers.get("Content-Length")
    if length is not None and int(length) != got:
        raise DamagedError(f"expected {length} bytes, got {got}: the connection broke off")
    if length is None and answer.headers.get("Transfer-Encoding") != "chunked":
        raise DataError(
            f"{url}: expected a server that states the length of the file, got no Content-Length, so that an incomplete download "
            "would go unnoticed; download the file by other means and name its path"
        )


def _copy_from_storage(url: str, path: Path) -> dict[str, Any]:
    import pyarrow
    import pyarrow.fs

    try:
        files, place = pyarrow.fs.FileSystem.from_uri(url)
        digest, size = Digest(), files.get_file_info(place).size
        with files.open_input_stream(place) as stream:
            write_blocks(path, digest.over(iter(lambda: stream.read(BLOCK_BYTES), b"")))
    except FileNotFoundError as error:
        raise DataError(f"{url}: expected a file, got none; check the URL in the config") from error
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
    if size != digest.entry["bytes"]:
        raise DamagedError(f"expected {size} bytes, got {digest.entry['bytes']}: the connection broke off")
    return digest.entry
