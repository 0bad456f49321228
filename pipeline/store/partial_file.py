"""The incomplete file of a download, with a record of its intact bytes, so that a later attempt continues it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.store.files import read_json, write_atomically
from pipeline.store.streams import read_blocks

RECORD_BYTES = 64 << 20
"""Bytes after which the record is written again. A killed process loses at most as many."""


class PartialFile:
    """The first bytes of the file at a URL, as the server gave them under one validator (ETag or Last-Modified).

    A record beside the file holds {url, validator, bytes, sha256}. Bytes behind the record, or that differ from it, are not used.
    """

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.validator = ""
        self._url = url
        self._hash = hashlib.sha256()
        self._bytes = self._recorded = 0
        self._continue()

    @property
    def entry(self) -> dict[str, Any]:
        """{bytes, sha256} of the bytes so far, as in manifests."""
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    @property
    def offset(self) -> int:
        """Number of bytes that are there."""
        return self._bytes

    def restart(self, validator: str) -> None:
        """Forget all bytes. `validator` identifies the version of the file on the server; empty: it cannot be continued."""
        self.discard()
        self.validator = validator
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._recorded = 0

    def append(self, blocks: Iterator[bytes]) -> None:
        """Write blocks behind the bytes that are there. The record covers them also when `blocks` raises."""
        with self.path.open("r+b" if self._bytes else "wb") as file:
            file.seek(self._bytes)
            file.truncate()
            try:
                for block in blocks:
                    file.write(block)
                    self._hash.update(block)
                    self._bytes += len(block)
                    if self._bytes - self._recorded >= RECORD_BYTES:
                        self._record(file.fileno())
            finally:
                file.flush()
                self._record(file.fileno())

    def discard(self) -> None:
        """Remove the file and its record."""
        self.path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Remove the record."""
        self._record_path.unlink(missing_ok=True)

    @property
    def _record_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def _record(self, descriptor: int) -> None:
        if not self.validator:
            return
        os.fsync(descriptor)  # the record must not outlast the bytes
        record = {"url": self._url, "validator": self.validator, **self.entry}
        write_atomically(self._record_path, json.dumps(record) + "\n")
        self._recorded = self._bytes

    def _continue(self) -> None:
        """Take over the bytes that an earlier attempt recorded, if they are intact; otherwise begin from nothing."""
        record = read_json(self._record_path)
        size = record.get("bytes")
        if record.get("url") != self._url or not record.get("validator") or not isinstance(size, int) or not self.path.is_file():
            return
        if self.path.stat().st_size < size:
            return
        found = hashlib.sha256()
        left = size
        # Bytes behind the record may have been written in part when a process was killed: only recorded ones count.
        for block in read_blocks(self.path):
            found.update(block[:left])
            left -= min(left, len(block))
            if not left:
                break
        if found.hexdigest() == record.get("sha256"):
            self.validator = str(record["validator"])
            self._hash = found
            self._bytes = size
            self._recorded = size
