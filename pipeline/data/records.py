"""Records of names that were resolved, so that a name means the same files ever after, and needs no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.data.access import DataAccess
from pipeline.store.downloads import downloads_folder
from pipeline.store.files import read_json, write_atomically
from stages.errors import DataError, StageError

NAMES = "names"
"""Folder of the records, in that of the downloads."""


def record_of(
    name: str,
    access: DataAccess,
    resolve: Callable[[dict[str, Any]], dict[str, Any]],
    usable: Callable[[dict[str, Any]], bool] = bool,
) -> dict[str, Any]:
    """Return the record of `name`. Without a usable one, call `resolve` and record its result.

    `resolve` is given the earlier record, or an empty one. `name` has to state everything that the result depends on.

    Raises DataError if the name has to be resolved and the access is offline.
    """
    path = record_path(name, access)
    record = read_json(path)
    if record.get("name") != name:
        record = {}
    if record and usable(record):
        return record
    require_network(name, access)
    record = {"name": name, **resolve(record)}
    write_atomically(path, json.dumps(record, indent=1) + "\n")
    return record


def record_path(name: str, access: DataAccess) -> Path:
    """Return the file that holds the record of a name."""
    return downloads_folder(access.store) / NAMES / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def require_network(name: str, access: DataAccess) -> None:
    """Raise DataError if the access is offline."""
    if access.offline:
        raise DataError(f"{name}: not in the store and store.offline: true; run fewstep data fetch CONFIG with network access")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Put the name of a data set before the messages of errors."""
    try:
        yield
    except (DataError, StageError) as error:
        if str(error).startswith(name):
            raise
        raise type(error)(f"{name}: {error}") from error
