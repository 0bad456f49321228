"""Systems that lie elsewhere: on a web server, on object storage, on the Hugging Face Hub or in the folder of its downloads.

The files that `system.json` describes are copied into a folder of this machine and compared with their sizes and checksums; other
files are not read, and no code of them is run. Copies are named by the digest of their description, so that they are made once.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from fewstep.access import FULL
from fewstep.answers import limited
from fewstep.object_storage import ObjectStorage
from fewstep.patience import MIN_JSON_RATE, MIN_RATE, WAIT_SECONDS, GivenUpError, Patience, flowing, waited_for
from fewstep.system.description import SYSTEM_FORMAT, SYSTEM_KEYS, read_versioned
from fewstep.system.format import MAX_JSON_BYTES, BundleError
from fewstep.system.integrity import CHECKSUM, SEAL

CACHE = "FEWSTEP_CACHE"
"""Environment variable with the folder of copies; without it, `fewstep` in `XDG_CACHE_HOME` or in `~/.cache`."""
ENDPOINT = "https://huggingface.co"
TRIES, PAUSE_SECONDS = 3, 0.5
"""Tries, and the pause before the second one; the next is four times as long."""
TRANSIENT_ANSWERS = (408, 425, 429, 500, 502, 503, 504)
BLOCK = 1 << 20
DESCRIPTION = "system.json"

_HUB = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.-]+))?(?:/(?P<folder>.+))?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_STORAGE = ("s3://", "gs://")
_WEB = ("https://", "http://")

Open = Callable[[str], AbstractContextManager[Callable[[int], bytes]]]
"""A function that opens a file by its name in a directory, and yields a function that reads at most a number of bytes."""
T = TypeVar("T")


def is_remote(location: str | os.PathLike[str]) -> bool:
    """Return whether a location is a URL or a name on the Hub."""
    return isinstance(location, str) and location.startswith((*_WEB, *_STORAGE, "hf:"))


def local_directory(location: str | os.PathLike[str]) -> Path:
    """Return the directory of a system on this machine: `location` itself if it is a path, else a copy.

    Locations are paths, URLs of directories (`https`, `http`, `s3`, `gs`), `hf:ORG/NAME@REVISION/FOLDER` for a repository of models
    on the Hugging Face Hub (REVISION: `main`, FOLDER: none), and folders `snapshots/COMMIT` of the Hub's own downloads, whose files
    are links. Credentials come from the environment (`HF_TOKEN`, `AWS_*`, `GOOGLE_APPLICATION_CREDENTIALS`).

    Raises BundleError if there is no system of this format or a file differs from its description, OSError if the server cannot be
    reached or the disk is full.
    """
    if is_remote(location):
        return _copy(str(location), _opener(str(location)))
    path = Path(location)
    if path.parent.name == "snapshots" and (path / DESCRIPTION).is_symlink():
        return _copy(str(path), _of_snapshot(path))
    return path


def _copy(location: str, opened: Open) -> Path:
    """Return the copy of a system, after copying the files that are not there yet. The description is the last one."""
    systems = _cache() / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=systems, prefix=".new.") as folder:
        fresh = Path(folder) / DESCRIPTION
        fresh.write_bytes(_retried(location, lambda: _description(location, opened)))
        try:
            description = read_versioned(fresh, "a system", SYSTEM_FORMAT, SYSTEM_KEYS, verify=True)
        except BundleError as error:
            raise BundleError(f"{location}: {str(error).replace(f'{folder}/', '').replace(folder, location)}") from error
        if not _DIGEST.fullmatch(str(description.get(SEAL))):
            raise BundleError(f"{location}/{DESCRIPTION}: expected a digest as {SEAL}, got {description.get(SEAL)!r:.80}")
        directory = systems / str(description[SEAL])
        missing = [name for name, part in description["parts"].items() if not _has(directory / name, part["bytes"])]
        _require_space(location, systems, sum(description["parts"][name]["bytes"] for name in missing))
        for name in missing:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            _retried(location, partial(_copy_part, location, opened, name, description["parts"][name], directory))
        if not (directory / DESCRIPTION).is_file():
            os.replace(fresh, directory / DESCRIPTION)
    return directory


def _cache() -> Path:
    if stated := os.environ.get(CACHE):
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewstep"


def _has(path: Path, size: int) -> bool:
    """Return whether a part was copied. Its checksum was compared then, and is compared again when the system is loaded."""
    return path.is_file() and path.stat().st_size == size


def _description(location: str, opened: Open) -> bytes:
    return b"".join(_blocks(f"{location}/{DESCRIPTION}", _read(opened, DESCRIPTION), MAX_JSON_BYTES, MIN_JSON_RATE))


def _copy_part(location: str, opened: Open, name: str, part: Mapping[str, Any], directory: Path) -> None:
    """Copy one file. It gets its name when its size and its checksum are those of the description."""
    place = f"{location}/{name}"
    size = 0
    value = 0
    number, temporary = tempfile.mkstemp(dir=(directory / name).parent, prefix=".new.")
    try:
        with os.fdopen(number, "wb") as file:
            for block in _blocks(place, _read(opened, name), part["bytes"], MIN_RATE):
                file.write(block)
                size += len(block)
                value = zlib.crc32(block, value)
        if size < part["bytes"]:
            raise OSError(f"{place}: expected {part['bytes']} bytes, got {size}: the connection broke off")
        if f"{value:08x}" != part[CHECKSUM]:
            raise BundleError(
                f"{place}: expected {CHECKSUM} {part[CHECKSUM]}, got {value:08x}; the file is not the one that {DESCRIPTION} "
                "describes, and was discarded: publish the directory again"
            )
        os.replace(temporary, directory / name)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _read(opened: Open, name: str) -> Generator[bytes, None, None]:
    with opened(name) as read:
        while block := read(BLOCK):
            yield block


def _blocks(place: str, blocks: Generator[bytes, None, None], most: int, rate: int) -> Iterator[bytes]:
    """Yield the same blocks. Raises BundleError beyond `most` bytes, SlowError for a server that is slower than `rate`."""
    size = 0
    patience = Patience(WAIT_SECONDS)
    with closing(waited_for(blocks, patience)) as items:
        for block in flowing(items, patience, rate):
            size += len(block)
            if size > most:
                raise BundleError(f"{place}: expected at most {most} bytes, got more; publish the directory again")
            yield block


def _require_space(location: str, folder: Path, size: int) -> None:
    if size > (free := shutil.disk_usage(folder).free):
        raise OSError(f"{location}: expected {size:,} bytes of free space in {folder}, got {free:,}; free some, or set {CACHE}")


def _retried(location: str, action: Callable[[], T]) -> T:
    """Return the result of `action`, which is repeated after an OSError other than that of a full disk or a slow server."""
    for number in range(1, TRIES + 1):
        try:
            return action()
        except (OSError, http.client.HTTPException) as error:
            if number == TRIES or isinstance(error, GivenUpError) or getattr(error, "errno", None) in FULL:
                reason = " ".join(str(error).split()) or type(error).__name__
                place = "" if reason.startswith(location) else f"{location}: could not be read: "
                raise OSError(f"{place}{reason:.500}; check the network, and repeat the command") from error
            time.sleep(PAUSE_SECONDS * 4 ** (number - 1))
    raise AssertionError("the last try returns or raises")


def _opener(location: str) -> Open:
    """Return the function that opens files of a location. Raises BundleError for one that is not valid."""
    if location.startswith(_STORAGE):
        return _of_storage(location)
    if location.startswith(_WEB):
        _check_url(location)
        return lambda name: _answer(f"{location.rstrip('/')}/{quote(name)}", {})
    found = _HUB.fullmatch(location)
    folder = ((found and found["folder"]) or "").strip("/")
    if found is None or ".." in (*folder.split("/"), *found["repository"].split("/"), found["revision"]):
        raise BundleError(f"{location}: expected hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME@REVISION/FOLDER")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
    base = f"{endpoint}/{found['repository']}/resolve/{quote(found['revision'] or 'main', safe='')}"
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return lambda name: _answer(f"{base}/{quote(f'{folder}/{name}'.lstrip('/'))}", headers)


def _check_url(location: str) -> None:
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise BundleError(f"expected the URL of a directory, got {location!r:.200}: {error}") from error
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise BundleError(
            f"expected the URL of a directory without user, password, ? and #, got one of {parts.scheme}://"
            f"{parts.hostname or ''}; credentials of web servers are not supported"
        )


class _Redirections(HTTPRedirectHandler):
    """Redirections to web servers alone, whose content is not read. A token stays with the server that it is for."""

    def http_error_302(  # the name by which `urllib` finds it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        fp.close()  # `urllib` would read all of it into memory
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:
            location = headers.get("Location", "")
            raise BundleError(f"{req.full_url}: expected a redirection to a URL, got one to {location!r:.200}: {error}") from error

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        if not urljoin(req.full_url, newurl).startswith(_WEB):
            raise BundleError(f"{req.full_url}: expected a redirection to a web server, got one to {newurl!r:.200}")
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(made.full_url)[:2] != urlsplit(req.full_url)[:2]:
            made.remove_header("Authorization")
        return made


class _Http(HTTPHandler):
    def do_open(self, http_class: Callable[..., http.client.HTTPConnection], *args: Any, **options: Any) -> Any:
        return super().do_open(limited(http_class), *args, **options)


class _Https(HTTPSHandler):
    def do_open(self, http_class: Callable[..., http.client.HTTPConnection], *args: Any, **options: Any) -> Any:
        return super().do_open(limited(http_class), *args, **options)


def _director() -> OpenerDirector:
    """Return an opener of web pages, without the schemes of files and others that `build_opener` has."""
    director = OpenerDirector()
    for handler in (ProxyHandler, UnknownHandler, _Http, _Https, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        director.add_handler(handler())
    director.add_handler(_Redirections())
    return director


@contextmanager
def _answer(url: str, headers: Mapping[str, str]) -> Iterator[Callable[[int], bytes]]:
    request = Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "fewstep", **headers})
    try:
        with _director().open(request, timeout=WAIT_SECONDS) as answer:
            yield answer.read1
            if answer.length:
                raise OSError(f"{answer.length} bytes are missing: the connection broke off")
    except UnicodeError as error:
        raise BundleError(f"{url:.200}: expected the name of a web server, got another one: {error}") from error
    except HTTPError as error:
        error.close()
        if error.code in TRANSIENT_ANSWERS:
            raise OSError(f"the server answered {error.code} {error.reason}") from error
        remedy = "; set HF_TOKEN for a private repository" if error.code in (401, 403) else ""
        raise BundleError(
            f"{url}: expected a file of a system, got the answer {error.code} {error.reason:.100}; check the location{remedy}"
        ) from error


def _of_storage(location: str) -> Open:
    if find_spec("pyarrow") is None:
        raise BundleError(f"{location}: expected the package pyarrow, which reads object storage: pip install pyarrow")
    storage = ObjectStorage(location)

    @contextmanager
    def opened(name: str) -> Iterator[Callable[[int], bytes]]:
        try:
            with closing(storage.read(name)) as blocks:
                yield lambda _: next(blocks, b"")
        except FileNotFoundError as error:
            raise BundleError(
                f"{location.partition('?')[0]}/{name}: expected a file of a system, got none; check the location"
            ) from error

    return opened


def _of_snapshot(directory: Path) -> Open:
    """Return the function that opens files of `snapshots/COMMIT`, which are links into the folder `blobs` beside `snapshots`."""
    blobs = Path(os.path.realpath(directory.parent.parent / "blobs"))

    @contextmanager
    def opened(name: str) -> Iterator[Callable[[int], bytes]]:
        target = Path(os.path.realpath(directory / name))  # `Path.resolve` raises RuntimeError for links in a circle
        if not target.is_relative_to(blobs) or not target.is_file():
            raise BundleError(f"{directory / name}: expected a link to a file in {blobs}, got {target}; download it again")
        with target.open("rb") as file:
            yield file.read

    return opened
