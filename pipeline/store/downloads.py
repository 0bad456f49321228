"""Input text that a config names by URL. It is downloaded into the store once and kept under its digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import durable
from fewstep.text.escape import escaped
from pipeline.store.artifacts import Store
from pipeline.store.files import file_digest, read_json, text_digest, write_atomically
from pipeline.store.locks import locked
from pipeline.store.streams import read_blocks
from pipeline.store.url_copy import copy_from_url
from pipeline.urls import sha256_digits
from stages.artifacts import ExternalFile
from stages.errors import DataError

URLS = "urls"
PARTIAL = ".part"
LOCK = ".lock"
"""Suffixes of an incomplete download and of the file by which processes wait for each other."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file on a web server or on object storage. It is downloaded once, and kept in the store under its digest."""

    url: str
    """Its address: https, http, s3 or gs. Credentials come from the environment."""
    sha256: str = ""
    """Its digest, 64 hex digits. A file with another digest is refused. Empty: the first download is kept and used from then on."""
    git_blob: str = ""
    """The id of its content in git, 40 hex digits, for files in repositories of which nobody has published a SHA-256: `git ls-tree
    COMMIT FILE` prints it. A file with another id is refused. Empty: not compared."""
    member: str = ""
    """File inside this archive (zip, tar, tar.gz, tgz) that is read. Nothing is extracted. Empty: the file is no archive."""
    columns: tuple[str | int, ...] = ()
    """The columns of source and target: names for Parquet (`translation.de` for a field of a struct), numbers from 1 for tsv."""
    licence: str = ""
    """Its licence, such as CC-BY-4.0, which manifests and the report state. Empty: that of the data set's card on the Hugging Face
    Hub, else unknown."""


def downloads_folder(store: Store) -> Path:
    """Return the folder of downloads: `<sha256>/<name>`, and their records in `urls/<sha256 of the URL>.json`."""
    return store.root / "downloads"


def download(remote: RemoteFile, store: Store, *, offline: bool = False) -> ExternalFile:
    """Return the file in the store, after downloading it unless the store holds it intact.

    Raises DataError if there is no such file, its digest is not the pinned one, or the store lacks it and `offline` is true;
    StageError if it cannot be reached or the disk is full.
    """
    if stored := _stored(remote, store):
        return stored
    if offline:
        raise DataError(
            f"{remote.url}: not in the store and store.offline: true; run fewstep data fetch CONFIG with network access"
        )
    return _download(remote, store)


def download_record(store: Store, url: str) -> dict[str, object]:
    """Return the record of a download: {url, sha256, bytes, time}; empty if the URL was not downloaded."""
    return read_json(record_file(store, url))


def record_file(store: Store, url: str) -> Path:
    """Return the file that holds the record of a download."""
    return downloads_folder(store) / URLS / f"{text_digest(url)}.json"


def keep_file(path: Path, name: str, store: Store) -> ExternalFile:
    """Copy a file that was made from downloads into their folder, under its digest and `name`, and return it."""
    digest = file_digest(path)
    kept = downloads_folder(store) / digest / _plain(name)
    durable.make_directory(kept.parent)
    durable.write_whole(kept, lambda temporary: shutil.copyfile(path, temporary))
    return ExternalFile(kept, digest)


def kept_file(digest: str, store: Store) -> Path | None:
    """Return a file that `keep_file` kept, unless it is missing or was altered."""
    for path in (downloads_folder(store) / digest).glob("*"):
        if path.suffix != ".tmp" and path.is_file() and store.digest(path) == digest:
            os.utime(path.parent)
            return path
    return None


def discard_download(remote: RemoteFile, file: ExternalFile, store: Store) -> None:
    """Remove a downloaded file and its record."""
    record_file(store, remote.url).unlink(missing_ok=True)
    file.path.unlink(missing_ok=True)


def _stored(remote: RemoteFile, store: Store) -> ExternalFile | None:
    """Return the file if the store holds it intact."""
    record = download_record(store, remote.url)
    digest = sha256_digits(remote.sha256) or str(record.get("sha256", ""))
    path = _path(store, digest, remote.url)
    if not digest or not path.is_file() or store.digest(path) != digest:
        return None
    if remote.git_blob and record.get("git_blob") != remote.git_blob:  # an earlier download did not compare it
        if git_blob_id(path) != remote.git_blob:
            return None
        record = {}
    if not record:
        _write_record(remote, store, digest, path)
    os.utime(path.parent)  # `gc` keeps what was used lately
    return ExternalFile(path, digest, origin=remote.url, licence=remote.licence)


def _download(remote: RemoteFile, store: Store) -> ExternalFile:
    """Download a file. Only one process does so at a time; the others wait and use its file."""
    url = remote.url
    partial = downloads_folder(store) / f"{text_digest(url)[:32]}{PARTIAL}"
    durable.make_directory(partial.parent)
    with locked(partial.with_suffix(LOCK), store.host):
        # Another process may have downloaded it while this one waited for the lock.
        if stored := _stored(remote, store):
            return stored
        print(escaped(f"downloading {url}"), file=sys.stderr, flush=True)
        entry = copy_from_url(url, partial)
        if problem := _difference(remote, entry["sha256"], partial):
            partial.unlink()
            raise DataError(
                f"{url}: {problem} ({entry['bytes']} bytes); the download was discarded: correct the URL, pin the new digest, or, "
                f"for a data set by name, remove its record in {downloads_folder(store) / 'names'}"
            )
        path = _path(store, entry["sha256"], url)
        durable.make_directory(path.parent)
        durable.rename(partial, path)
        _write_record(remote, store, entry["sha256"], path)
    return ExternalFile(path, entry["sha256"], origin=url, licence=remote.licence)


def _difference(remote: RemoteFile, sha256: str, path: Path) -> str:
    """Return how a downloaded file with this digest differs from the pinned one; empty if it does not."""
    if (pinned := sha256_digits(remote.sha256)) and sha256 != pinned:
        return f"expected sha256 {pinned}, which is pinned, got {sha256}"
    if remote.git_blob and (found := git_blob_id(path)) != remote.git_blob:
        return f"expected git_blob {remote.git_blob}, which is pinned, got {found}"
    return ""


def git_blob_id(path: Path) -> str:
    """Return the id that git gives to the content of a file: the SHA-1 of `blob`, its size and its bytes."""
    found = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    for block in read_blocks(path):
        found.update(block)
    return found.hexdigest()


def _write_record(remote: RemoteFile, store: Store, digest: str, path: Path) -> None:
    record = {"url": remote.url, "sha256": digest, "bytes": path.stat().st_size, "time": time.time()}
    record |= {"git_blob": remote.git_blob} if remote.git_blob else {}
    write_atomically(record_file(store, remote.url), json.dumps(record, indent=1) + "\n")


def _path(store: Store, digest: str, url: str) -> Path:
    """Return the path of a download. Its name keeps the suffix of the URL, by which readers recognise compression."""
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    return downloads_folder(store) / digest / _plain(name)


def _plain(name: str) -> str:
    """Return a name of at most 100 letters, digits, `_`, `-` and `.`, which does not begin with a point."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[-100:] or "text"
