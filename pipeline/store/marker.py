"""The file that makes a directory a store, and what is recognised as written by fewstep."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from pathlib import Path

from pipeline.plan.wiring import STAGES
from pipeline.run.records import read_json
from pipeline.store.artifacts import Store, write_atomically
from stages.artifacts import MANIFEST
from stages.errors import ArtifactError, DataError

MARKER = "fewstep-store.json"
"""Written before anything else into a new store. Without it nothing in a directory is ever removed."""
FORMAT = 1
FOLDERS = tuple(stage.name for stage in STAGES)
"""Folders of a store that hold artifacts."""
NO_CONTENT = ("lost+found",)
"""Entries of an empty directory, as new file systems come with them; so are names that begin with a dot."""


def open_store(root: Path) -> Store:
    """Return the store at `root`. A directory that is new, empty or a store of an earlier version is marked as a store.

    Raises DataError when it holds other files, ArtifactError when its marker has another format, StageError when the disk is full.
    """
    store = Store(root)
    content = _content(store.root)  # listed first: whoever makes a store at the same moment begins with the marker
    if not is_marked(store):
        if content and not _is_unmarked_store(store):
            raise DataError(
                f"store.path: expected a store (a directory with {MARKER}), an empty directory or a new one, got {store.root}, "
                f"which holds {', '.join(content[:3])}{', ...' if len(content) > 3 else ''}; name another directory"
            )
        _mark(store)
    return store


def is_marked(store: Store) -> bool:
    """Whether the directory is a store. Raises ArtifactError when its marker has another format."""
    path = store.root / MARKER
    if not path.is_file():
        return False
    found = read_json(path).get("format")
    if found != FORMAT:
        raise ArtifactError(
            f"{path}: expected format {FORMAT}, got {found!r}: the store was made by another version of fewstep; "
            "use that version, or name another directory"
        )
    return True


def require_marker(store: Store) -> None:
    """Raises DataError when the directory is not a store, and ArtifactError as `is_marked` does."""
    if not is_marked(store):
        raise DataError(
            f"{store.root}: expected a store (a directory with {MARKER}), got a directory without that file; nothing was removed: "
            "name a store with --store. A store made by an earlier version gets the file from `fewstep plan` or `fewstep run`"
        )


def is_own_artifact(directory: Path) -> bool:
    """Whether a directory holds the manifest of this very artifact, of any schema."""
    manifest = read_json(directory / MANIFEST)
    return (manifest.get("stage"), manifest.get("fingerprint")) == (directory.parent.name, directory.name)


def is_own_digest(path: Path) -> bool:
    """Whether a file is a remembered digest, which `Store.digest` names by the path of the digested file."""
    stamp = read_json(path).get("stamp")
    return isinstance(stamp, list) and bool(stamp) and hashlib.sha256(str(stamp[0]).encode()).hexdigest() == path.name


def _content(root: Path) -> list[str]:
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise DataError(f"store.path: expected a directory, got {root}, which is a file; name another path") from error
    return [name for name in names if not name.startswith((".", MARKER)) and name not in NO_CONTENT]


def _is_unmarked_store(store: Store) -> bool:
    """Whether there are runs, artifacts or digests of ours in a directory without a marker."""
    return (
        any(_is_own_run(path) for path in store.runs.glob("*/run.json"))
        or any(is_own_artifact(path.parent) for name in FOLDERS for path in (store.root / name).glob(f"*/{MANIFEST}"))
        or any(is_own_digest(path) for path in (store.root / "digests").glob("*"))
    )


def _is_own_run(path: Path) -> bool:
    spec = read_json(path)
    return spec.get("run_id") == path.parent.name and isinstance(spec.get("plan"), list)


def _mark(store: Store) -> None:
    try:
        write_atomically(store.root / MARKER, json.dumps({"format": FORMAT}) + "\n", secrets.token_hex(4))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # a store that cannot be written to can still be planned
            raise
