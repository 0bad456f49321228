"""Input text that a config names by URL: downloaded once into the store, and kept under its content's digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernels import durable
from pipeline.run.records import read_json
from pipeline.store.artifacts import Store, write_atomically
from pipeline.store.remote import copy_of
from stages.artifacts import ExternalFile
from stages.errors import DataError

URLS = "urls"
FORM = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
"""Of a digest in a config."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file on a web server or on object storage. It is downloaded once, and kept in the store under its digest."""

    url: str
    """Its address: https, http, s3 or gs. Credentials come from the environment."""
    sha256: str = ""
    """Its digest, 64 hex digits: a file with another is refused. Empty: what is downloaded first is kept and used from then on."""


def folder(store: Store) -> Path:
    """Where downloads lie: `<sha256>/<name>`, and `urls/<sha256 of the URL>.json`."""
    return store.root / "downloads"


def fetched(remote: RemoteFile, store: Store) -> ExternalFile:
    """The file here; downloaded if the store does not hold it whole.

    Raises DataError when there is none, or another than the pinned one, StageError when it cannot be reached or the disk is full.
    """
    pinned = digits(remote.sha256)
    known = note(store, remote.url)
    digest = pinned or str(known.get("sha256", ""))
    if digest:
        path = _place(store, digest, remote.url)
        if path.is_file() and store.digest(path) == digest:
            if not known:
                _remember(store, remote.url, digest, path)
            os.utime(path.parent)  # a sign of use
            return ExternalFile(path, digest)
    return _download(remote.url, pinned, store)


def note(store: Store, url: str) -> dict[str, object]:
    """What is remembered of a download: {url, sha256, bytes, time}; empty when there was none."""
    return read_json(note_file(store, url))


def digits(sha256: str) -> str:
    """The hex digits of a digest as configs write it."""
    return sha256.removeprefix("sha256:")


def _download(url: str, pinned: str, store: Store) -> ExternalFile:
    print(f"downloading {url}", file=sys.stderr, flush=True)
    temporary = folder(store) / f"{secrets.token_hex(8)}.tmp"
    try:
        entry = copy_of(url, temporary)
        if pinned and entry["sha256"] != pinned:
            raise DataError(
                f"{url}: expected sha256 {pinned}, as the config pins it, got {entry['sha256']} ({entry['bytes']} bytes): the file "
                "at this address is another one; nothing was kept of it: find the pinned one, or pin the new digest"
            )
        path = _place(store, entry["sha256"], url)
        durable.make_directory(path.parent)
        durable.rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _remember(store, url, entry["sha256"], path)
    return ExternalFile(path, entry["sha256"])


def _remember(store: Store, url: str, digest: str, path: Path) -> None:
    record = {"url": url, "sha256": digest, "bytes": path.stat().st_size, "time": time.time()}
    write_atomically(note_file(store, url), json.dumps(record, indent=1) + "\n", str(os.getpid()))


def note_file(store: Store, url: str) -> Path:
    """Where a download is remembered."""
    return folder(store) / URLS / f"{hashlib.sha256(url.encode()).hexdigest()}.json"


def _place(store: Store, digest: str, url: str) -> Path:
    """The file's name keeps its end, which tells how it is compressed."""
    name = re.sub(r"[^\w.-]", "_", url.partition("?")[0].rstrip("/").rpartition("/")[2], flags=re.ASCII)
    return folder(store) / digest / (name.lstrip(".")[-100:] or "text")
