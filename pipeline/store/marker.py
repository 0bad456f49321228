"""The file that marks a directory as a store, and the recognition of files that fewstep wrote."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path

from fewstep.access import name_problem
from fewstep.text.escape import escaped_line
from pipeline.store.artifacts import Store
from pipeline.store.files import read_json, text_digest, write_atomically
from pipeline.store.host import HOST, Host
from stages.artifacts import MANIFEST
from stages.errors import FULL, ArtifactError, DataError
from stages.table import STAGES

MARKER = "fewstep-store.json"
"""The first file that is written into a new store. Nothing is ever removed from a directory without it."""
FORMAT = 1
FOLDERS = tuple(stage.name for stage in STAGES)
"""Folders of a store that hold artifacts."""
NO_CONTENT = ("lost+found",)
"""Entries that a new file system comes with. They do not count as content, and neither do names that begin with a dot."""


def open_store(root: Path, host: Host = HOST) -> Store:
    """Return the store at `root`. A new or empty directory, or a store of an earlier version, is marked as a store.

    Raises DataError if it holds other files or cannot be a store (a file or a device, or a place that cannot be written to),
    ArtifactError if its marker has another format, StageError if the disk is full.
    """
    store = Store(root, host)
    if problem := name_problem(str(store.root)):
        raise DataError(f"store.path: {problem}: {str(store.root)!a}")
    content = _content(store.root)  # listed first: another process that creates the store writes the marker first
    if not is_marked(store):
        if content and not _is_unmarked_store(store):
            some = ", ".join(map(escaped_line, content[:3]))
            raise DataError(
                f"store.path: expected a store (a directory with {MARKER}), an empty directory or a new one, got {store.root}, "
                f"which holds {some}{', ...' if len(content) > 3 else ''}; name another directory"
            )
        _mark(store, bool(content))
    return store


def is_marked(store: Store) -> bool:
    """Return whether the directory is a store. Raises ArtifactError if its marker has another format."""
    path = store.root / MARKER
    if not path.is_file():
        return False
    found = read_json(path).get("format")
    if found != FORMAT:
        raise ArtifactError(
            f"{path}: expected format {FORMAT}, got {found!r}: another version of fewstep made the store; "
            "use that version, or name another directory"
        )
    return True


def require_marker(store: Store) -> None:
    """Raise DataError if the directory is not a store. Raises ArtifactError as `is_marked` does."""
    if not is_marked(store):
        raise DataError(
            f"{store.root}: expected a store (a directory with {MARKER}), got a directory without that file; nothing was removed: "
            "name a store with --store. In a store of an earlier version, `fewstep plan` and `fewstep run` write that file"
        )


def is_own_artifact(directory: Path) -> bool:
    """Return whether a directory holds a manifest, of any schema, with the directory's own stage and fingerprint."""
    manifest = read_json(directory / MANIFEST)
    return (manifest.get("stage"), manifest.get("fingerprint")) == (directory.parent.name, directory.name)


def is_own_digest(path: Path) -> bool:
    """Return whether a file is a cached digest, which `Store.digest` names by the path of the digested file."""
    stamp = read_json(path).get("stamp")
    return isinstance(stamp, list) and bool(stamp) and text_digest(str(stamp[0])) == path.name


def _content(root: Path) -> list[str]:
    try:
        names = sorted(path.name for path in root.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise DataError(f"store.path: expected a directory, got {root}, which is a file; name another path") from error
    except OSError as error:
        raise _unusable(root, error) from error
    return [name for name in names if not name.startswith((".", MARKER)) and name not in NO_CONTENT]


def _is_unmarked_store(store: Store) -> bool:
    """Return whether a directory without a marker holds runs, artifacts or digests that fewstep wrote."""
    return (
        any(_is_own_run(path) for path in store.runs.glob("*/run.json"))
        or any(is_own_artifact(path.parent) for name in FOLDERS for path in (store.root / name).glob(f"*/{MANIFEST}"))
        or any(is_own_digest(path) for path in (store.root / "digests").glob("*"))
    )


def _is_own_run(path: Path) -> bool:
    spec = read_json(path)
    return spec.get("run_id") == path.parent.name and isinstance(spec.get("plan"), list)


def require_writable(store: Store) -> None:
    """Raise DataError if files cannot be created in the store. A full disk is left to the steps, which keep their work."""
    for folder in (store.root, store.runs):
        try:
            if folder.exists():
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            if error.errno not in FULL:
                raise _unusable(folder, error) from error


def _mark(store: Store, has_content: bool) -> None:
    try:
        write_atomically(store.root / MARKER, json.dumps({"format": FORMAT}) + "\n", store.host)
    except OSError as error:
        # Planning works on an earlier store that cannot be written to.
        if not has_content or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _unusable(store.root, error) from error


def _unusable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"store.path: expected a directory that can be created and written to, got {path}: {error.strerror}; name another path"
    )
