"""Copies of files on web servers and object storage.

Credentials come from the environment alone (AWS_*, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import durable
from fewstep.answers import limit_answers
from fewstep.bounded_files import json_value
from fewstep.object_storage import ObjectStorage
from fewstep.patience import MIN_JSON_RATE, WAIT_SECONDS, Patience, SlowError, flowing, waited_for
from pipeline.store.partial_file import PartialFile
from pipeline.store.streams import (
    BLOCK_BYTES,
    DamagedError,
    Digest,
    at_most,
    brief_reason,
    retried,
    write_blocks,
)
from stages.errors import FULL, DataError, StageError, unwritable

if TYPE_CHECKING:
    import requests

TIMEOUT_SECONDS = 60.0
"""Time without a byte from a web server after which a download fails."""
WEB_BLOCK_BYTES = 1 << 16
MAX_UNSTATED_BYTES = 16 << 30
"""Bytes of a download whose server sends it in chunks and states no length, so that it might never end."""
TRANSIENT_ANSWERS = (408, 425, 429, 500, 502, 503, 504)
"""Status codes of a web server after which a download is tried again."""

MAX_REDIRECTIONS = 10
MAX_JSON_BYTES = 32 << 20
"""Bytes of JSON that are held in memory for one name."""
MAX_PAGES = 1000
"""Pages of JSON for one name."""
OK = 200

OTHER_RANGE = (206, 416)
"""Status codes for another part of a file than the one that was asked for, and for one that does not exist."""


def copy_from_url(url: str, path: Path) -> dict[str, Any]:
    """Copy the whole file at a URL to `path` and return its {bytes, sha256}.

    An earlier attempt that broke off is continued, if the server identifies the version of the file (ETag or Last-Modified), still
    has that version, and serves parts of files.

    Raises DataError if there is no such file, the server states no length or the file does not end; then nothing is left. Raises
    StageError if the server cannot be reached or the disk is full; in the first case the bytes so far are left for a later attempt.
    """
    durable.make_directory(path.parent)
    partial = PartialFile(path, url)
    try:
        entry = retried(lambda: _copy_from_web(url, partial) if url.startswith("http") else _copy_from_storage(url, path))
    except OSError as error:  # `requests` raises it too
        if error.errno in FULL:
            partial.discard()
            raise unwritable(path, error) from error
        raise StageError(f"{url}: could not be downloaded: {brief_reason(error)}; {_kept(partial)}") from error
    except DataError:
        partial.discard()
        raise
    partial.forget()
    return entry


def _kept(partial: PartialFile) -> str:
    """Return what remains of a download that broke off, and what to do."""
    if partial.validator and partial.offset:
        return f"the {partial.offset:,} bytes so far were kept: check the network and repeat the command to continue"
    partial.discard()
    return "the incomplete file was discarded: check the network and repeat the command"


def _copy_from_web(url: str, partial: PartialFile) -> dict[str, Any]:
    headers = dict[str, str]()
    if partial.offset:
        # With `If-Range` a server whose file has changed sends the whole new one (RFC 9110, section 13.1.5).
        headers |= {"Range": f"bytes={partial.offset}-", "If-Range": partial.validator}
    patience = Patience(WAIT_SECONDS)
    begun = partial.offset
    with closing(waited_for(_answer_and_blocks(url, headers), patience)) as items:
        answer = _head(items)
        if answer.status_code in TRANSIENT_ANSWERS:
            raise OSError(f"the server answered {_status(answer)}")
        if partial.offset and answer.status_code in OTHER_RANGE and not _continues(answer, partial):
            partial.restart("")
            raise OSError("the server no longer has the file whose first bytes were kept")
        if not _continues(answer, partial):
            if answer.status_code != OK:
                raise DataError(f"{url}: expected a file, got the answer {_status(answer)}; check the URL in the config")
            partial.restart(_validator(answer))
        length = _stated_length(url, answer)
        total = None if length is None else partial.offset + length
        _require_space(url, partial.path, length or 0)
        blocks = flowing(items, patience)
        unstated = "from a server that states no length"
        try:
            partial.append(blocks if length is not None else _bounded(url, blocks, MAX_UNSTATED_BYTES, unstated))
        except SlowError as error:
            if partial.offset - begun < BLOCK_BYTES:
                raise
            raise DamagedError(str(error)) from error  # the next try goes on from here
    if total is not None and total != partial.offset:
        raise DamagedError(f"expected {total} bytes, got {partial.offset}: the connection broke off")
    return partial.entry


def _answer_and_blocks(url: str, headers: Mapping[str, str]) -> Generator[Any, None, None]:
    """Yield the answer of a web server, and the blocks of its content."""
    from urllib3.exceptions import HTTPError

    with answer_of(url, headers) as answer:
        yield answer
        try:
            # Whatever has arrived; `stream` waits for a whole block.
            while block := answer.raw.read1(WEB_BLOCK_BYTES, decode_content=False):
                yield block
        except HTTPError as error:  # `requests` translates the errors of its own iterators only
            raise DamagedError(f"the connection broke off: {error}") from error


def _head(items: Iterator[Any]) -> requests.Response:
    try:
        answer: requests.Response = next(items)
    except SlowError as error:
        raise SlowError(f"expected the head of an answer within {WAIT_SECONDS:g} s, got none") from error
    return answer


def _continues(answer: requests.Response, partial: PartialFile) -> bool:
    """Return whether an answer holds the bytes that follow those that are there."""
    return (
        bool(partial.offset) and answer.status_code == 206 and f"bytes {partial.offset}-" in answer.headers.get("Content-Range", "")
    )


def _validator(answer: requests.Response) -> str:
    """Return the strong ETag of an answer, else the date of its file; empty if it has neither (RFC 9110, section 13.1.5)."""
    etag = answer.headers.get("ETag", "")
    return etag if etag.startswith('"') else answer.headers.get("Last-Modified", "")


@contextmanager
def answer_of(url: str, headers: Mapping[str, str]) -> Iterator[requests.Response]:
    """Yield the answer of a web server, none of whose content was read yet. Redirections lead to web servers alone.

    (`Session.get` reads the whole content of a redirection into memory, also if it does not follow it.) Raises OSError.
    """
    import requests

    # Digests and lengths are those of the file, not of a compressed transfer.
    headers = {"Accept-Encoding": "identity", **headers}
    adapter = requests.adapters.HTTPAdapter()
    limit_answers(adapter)
    with requests.Session() as session, closing(adapter):
        for _ in range(MAX_REDIRECTIONS):
            with _named(url):
                asked = session.prepare_request(requests.Request("GET", url, headers=headers))
                # `Session.send` and adapters take neither proxies nor certificates from the environment by themselves.
                settings = session.merge_environment_settings(url, {}, True, None, None)
                answer = adapter.send(asked, timeout=TIMEOUT_SECONDS, **settings)
            with answer:
                with _named(answer.headers.get("Location", url)):
                    target = session.get_redirect_target(answer)
                    url = urljoin(url, target or "")
                if target is None:
                    yield answer
                    return
                if not url.startswith(("https://", "http://")):
                    raise OSError(f"expected a redirection to a web server, got one to {url[:200]!r}")
    raise OSError(f"expected at most {MAX_REDIRECTIONS} redirections, got more")


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Turn the errors of a URL that is not valid, of which `requests` translates a few alone, into an OSError that names it."""
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (ValueError, HTTPError, HTTPException) as error:
        if isinstance(error, OSError):
            raise
        raise OSError(f"expected the URL of a web server, got {url[:200]!r}: {str(error)[:200]}") from error


def _status(answer: requests.Response) -> str:
    return f"{answer.status_code} {(answer.reason or '')[:100]}"


def read_json_pages(url: str) -> list[Any]:
    """Return the JSON at a URL, followed by that of further pages to which its answers link.

    Raises DataError if the server refuses or answers with something else, more than MAX_PAGES pages or MAX_JSON_BYTES bytes;
    StageError if it cannot be reached, or lets this process wait for more than WAIT_SECONDS in all beside a second for each
    MIN_JSON_RATE bytes.
    """
    pages = list[Any]()
    following: str | None = url
    size = 0
    started = time.monotonic()
    while following:
        if len(pages) == MAX_PAGES:
            raise DataError(
                f"{url}: expected at most {MAX_PAGES:,} pages of JSON, got a link to another; check the name in the config"
            )
        patience = Patience(WAIT_SECONDS + size / MIN_JSON_RATE - (time.monotonic() - started))
        content, links = _read_page(following, MAX_JSON_BYTES - size, patience)
        size += len(content)
        try:
            pages.append(json_value(content))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{following}: expected JSON, got something else: {content[:100]!r}") from error
        following = links.get("next", {}).get("url")
        if following and not _same_server(following, url):
            raise DataError(f"{url}: expected links to further pages of this server, got one to {following[:200]!r}")
    return pages


def _same_server(url: str, other: str) -> bool:
    try:
        return urlsplit(url)[:2] == urlsplit(other)[:2]
    except ValueError:
        return False


def _read_page(url: str, limit: int, patience: Patience) -> tuple[bytes, dict[str, Any]]:
    """Return the content of a page and its links."""

    def read() -> tuple[bytes, dict[str, Any]]:
        with closing(waited_for(_answer_and_blocks(url, {}), patience)) as items:
            answer: requests.Response = next(items)
            if answer.status_code in TRANSIENT_ANSWERS:
                raise OSError(f"the server answered {_status(answer)}")
            if answer.status_code != OK:
                raise DataError(f"{url}: expected JSON, got the answer {_status(answer)}; check the name in the config")
            if (coding := answer.headers.get("Content-Encoding", "identity")) != "identity":
                raise DataError(f"{url}: expected JSON that is not compressed, as it was asked for, got {coding[:100]!r}")
            content = b"".join(flowing(_bounded(url, items, limit, "of JSON"), patience, MIN_JSON_RATE))
            return content, answer.links

    try:
        return retried(read)
    except SlowError as error:
        raise StageError(
            f"{url}: expected JSON within {WAIT_SECONDS:g} s and a second more for each {MIN_JSON_RATE:,} bytes, got an answer "
            "that takes longer; repeat the command"
        ) from error
    except OSError as error:
        raise StageError(f"{url}: could not be read: {brief_reason(error)}; check the network and repeat the command") from error


def _stated_length(url: str, answer: requests.Response) -> int | None:
    """Return the length of an answer, or None for one in chunks, whose end is marked. Raises DataError if neither is given."""
    length = answer.headers.get("Content-Length", "")
    if answer.headers.get("Transfer-Encoding") == "chunked":
        return None
    if not (length.isascii() and length.isdigit()):
        raise DataError(
            f"{url}: expected a server that states the length of the file, got no Content-Length, so that an incomplete download "
            "would go unnoticed; download the file by other means and name its path"
        )
    return int(length)


def _bounded(url: str, blocks: Iterator[bytes], limit: int, source: str) -> Iterator[bytes]:
    size = 0
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DataError(
                f"{url}: expected at most {limit:,} bytes {source}, got more; the download was discarded: download the file by "
                "other means and name its path"
            )
        yield block


def _require_space(url: str, path: Path, size: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise StageError(f"{url}: expected {size:,} bytes of free space in {path.parent}, got {free:,}; free some space")


def _copy_from_storage(url: str, path: Path) -> dict[str, Any]:
    storage = ObjectStorage(url)
    digest = Digest()
    try:
        size = storage.size("")
        _require_space(url, path, size or 0)
        write_blocks(path, digest.over(at_most(size or 0, storage.read(""))))
    except FileNotFoundError as error:
        raise DataError(f"{url}: expected a file, got none; check the URL in the config") from error
    if size != digest.entry["bytes"]:
        raise DamagedError(f"expected {size} bytes, got {digest.entry['bytes']}: the connection broke off")
    return digest.entry
