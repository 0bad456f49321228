"""Files of a store that can be deleted: artifacts that no run refers to, and leftovers of crashed attempts."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped_line
from pipeline.store.artifacts import Store
from pipeline.store.attempts import PARTIAL, is_partial
from pipeline.store.downloads import URLS, download_record, downloads_folder, record_file
from pipeline.store.files import REMOVED, discard, read_json
from pipeline.store.lease import step_lease
from pipeline.store.lease_watch import LEASE, LeaseWatch
from pipeline.store.locks import locked
from pipeline.store.marker import FOLDERS, MARKER, is_own_artifact, is_own_digest, require_marker
from pipeline.store.mirror import FETCHING
from pipeline.store.run_file import LATEST, read_run, run_files
from pipeline.urls import sha256_digits
from stages.artifacts import CHECKPOINTS, MANIFEST

log = logging.getLogger(__name__)

QUIET_SECONDS = 3600.0
"""Age below which a file without a lease may still be in use."""
LOCK = ".gc"
FINGERPRINT = r"\b[0-9a-f]{32}\b"
DIRECTORY = re.compile(rf"([0-9a-f]{{32}})(?:{PARTIAL}(?:-[\w-]+)?)?(?:\.[0-9a-f]{{8}}(?:{REMOVED}|{FETCHING}))?")
"""Names of the directory of an artifact: finished, partial, being removed or being fetched."""
LEASE_FILE = re.compile(rf"([0-9a-f]{{32}}){LEASE}(?:-\d+|\.[\w.-]+\.tmp)?")
DRIVER_LEASE = re.compile(rf"driver{LEASE}(?:-\d+)?")
SHARD = re.compile(r"[0-9a-f]{64}\.(?:arrow|answers)(?:\.[\w.-]+\.tmp)?")
DOWNLOAD = re.compile(rf"[0-9a-f]{{64}}(?:\.[0-9a-f]{{8}}{REMOVED})?|[0-9a-f]{{32}}\.(?:part(?:\.json(?:\.\w+\.tmp)?)?|lock)")
VERIFIED = re.compile(rf"({'|'.join(FOLDERS)})-([0-9a-f]{{32}})\.json")
"""Names in `verified/`."""
RUN_FILE = re.compile(rf"(?:run\.json|mlflow\.json|driver{LEASE})\.[\w.-]+\.tmp")
LATEST_LINK = re.compile(r"latest\.[0-9a-f]+")


@dataclass(frozen=True)
class Garbage:
    """A file or directory that can be deleted."""

    path: Path
    bytes: int
    reason: str


@dataclass
class _References:
    """The artifacts, downloads and drivers that the runs of a store refer to."""

    fingerprints: set[str] = field(default_factory=set)
    """Fingerprints of artifacts."""
    urls: dict[str, str] = field(default_factory=dict)
    """URLs of downloads, with their pinned digests or empty strings."""
    living: dict[Path, str] = field(default_factory=dict)
    """Paths of the leases whose holders live, and the ids of the holders, which the names of their temporary files contain."""


@contextmanager
def in_use(store: Store) -> Iterator[None]:
    """Block the removal of files while a run determines which artifacts it uses."""
    with _locked(store, shared=True):
        yield


def collect(store: Store, *, shards: bool = False, watch: LeaseWatch | None = None) -> list[Garbage]:
    """Return everything that can be deleted. `shards` adds decoded shards, which finished artifacts hold copies of.

    Leases whose holders cannot be seen from here are watched (`watch`) until they are renewed or expire.

    Kept are files that a run refers to or a live process works on, files without a lease that were touched within the last hour,
    decoded shards while a driver is active, and all files that fewstep did not write, judging by name, place and content. Links,
    mount points and stores in the store are left, with everything behind them.

    Raises DataError if the directory is not a store, ArtifactError if a run cannot be read.
    """
    require_marker(store)
    references = _references(store, (watch or LeaseWatch(store)).living())
    found = [*_artifacts(store, references), *_downloads(store, references), *_runs(store, references), *_caches(store)]
    found += _shards(store, references, all_of_them=shards and not references.living)
    tree = _OwnTree(store)
    kept = [(path, reason) for path, reason in found if tree.holds(path)]
    return [Garbage(path, _size(path), reason) for path, reason in [*kept, *_latest(store)]]


def remove(store: Store, *, shards: bool = False) -> list[Garbage]:
    """Delete everything that can be deleted, and return it. Raises DataError if the directory is not a store."""
    require_marker(store)
    watch = LeaseWatch(store)
    watch.living()  # before the lock, since it may take the time of a lease
    with _locked(store):
        return [item for item in collect(store, shards=shards, watch=watch) if _remove(item.path, store, watch)]


def _remove(path: Path, store: Store, watch: LeaseWatch) -> bool:
    """Delete a file or directory. The work of an attempt is deleted under the lease of its step. Return False if that is taken."""
    partial = next((found for found in (path, *path.parents) if is_partial(found)), None)
    lease = watch.lease_of(partial.with_name(partial.name.partition(PARTIAL)[0])) if partial else None
    if lease and not lease.acquire():
        return False
    try:
        if path.is_dir() and not path.is_symlink():
            discard(path, store.host)
        else:
            path.unlink(missing_ok=True)
        return True
    except FileNotFoundError:  # a driver has taken it over
        return False
    finally:
        if lease:
            lease.release()


def _locked(store: Store, *, shared: bool = False) -> AbstractContextManager[None]:
    store.root.mkdir(parents=True, exist_ok=True)
    return locked(store.root / LOCK, store.host, shared=shared)


class _OwnTree:
    """The files of a store that lie in it. What is behind a link, was mounted, or has a marker may belong to another store."""

    def __init__(self, store: Store) -> None:
        self._root = store.root
        self._mounts = store.host.disk.mounts()
        self._real_root = os.path.realpath(store.root) if self._mounts else ""
        self._named: set[Path] = set()

    def holds(self, path: Path) -> bool:
        """Return whether a path with everything in it lies in the store. What leads away is named in a warning."""
        above = [parent for parent in (path, *path.parents) if parent.is_relative_to(self._root) and parent != self._root]
        try:
            for found in chain(reversed(above), path.rglob("*")):
                if reason := self._leads_away(found):
                    if found not in self._named:
                        self._named.add(found)
                        log.warning("%s %s; it is left, with everything behind it", escaped_line(found), reason)
                    return False
        except FileNotFoundError:  # a driver has taken it over
            return False
        return True

    def _leads_away(self, path: Path) -> str | None:
        if path.is_symlink():
            return f"is a link to {os.readlink(path)}"
        if path.is_dir() and (path / MARKER).exists():
            return "is a store of its own"
        if self._mounts and f"{self._real_root}/{path.relative_to(self._root)}" in self._mounts:
            return "is a mount point"
        return None


def _references(store: Store, living: dict[Path, str]) -> _References:
    """Raises ArtifactError if a run cannot be read, because its references are then unknown."""
    references = _References(living=living)
    for path in run_files(store.runs):
        spec = read_run(path)
        for entry in spec["plan"]:
            references.fingerprints.add(entry["fingerprint"])
            inputs = read_json(store.directory(entry["stage"], entry["fingerprint"]) / MANIFEST).get("inputs")
            references.fingerprints.update(str(value) for value in (inputs.values() if isinstance(inputs, dict) else ()))
        _add(references, spec["config"])
    return references


def _add(references: _References, config: Any) -> None:
    """Add the references of a config: pinned artifacts by path, downloads by URL."""
    left = [config]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if isinstance(value.get("url"), str):
                references.urls[value["url"]] = sha256_digits(str(value.get("sha256", "")))
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            references.fingerprints.update(re.findall(FINGERPRINT, value))
            with suppress(OSError, ValueError, RuntimeError):  # not a path
                references.fingerprints.add(Path(value).resolve().name)


def _artifacts(store: Store, references: _References) -> Iterator[tuple[Path, str]]:
    for path in sorted(path for name in FOLDERS for path in (store.root / name).glob("*")):
        found = DIRECTORY.fullmatch(path.name) or LEASE_FILE.fullmatch(path.name)
        if found is None or not _is_own(path):
            continue
        directory = path.parent / found[1]
        named = found[1] in references.fingerprints
        alive = step_lease(directory, "", 0.0).path in references.living
        if path.name.endswith(REMOVED):
            yield path, "its removal was interrupted"
        elif path.name.endswith(FETCHING):
            if _quiet(path, store):
                yield path, "its download was interrupted"
        elif LEASE in path.name:
            if not alive and ((directory / MANIFEST).is_file() or not named):  # else the next attempt counts on from its number
                yield path, "its holder has ended"
        elif not (alive or named):
            yield path, "no run refers to it"
        elif is_partial(path) and not alive:
            yield from _unfinished(path, directory)
        elif path == directory and (directory / CHECKPOINTS).exists():
            yield directory / CHECKPOINTS, "its artifact is finished"


def _is_own(path: Path) -> bool:
    """Return whether an entry of a stage's folder with such a name also has the content that fewstep writes under it."""
    if LEASE in path.name:
        return path.is_file()
    return is_own_artifact(path) if not path.suffix else path.is_dir()


def _unfinished(partial: Path, directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield leftovers in a partial artifact that no driver works on and that a rerun may continue."""
    if (directory / MANIFEST).is_file():
        yield partial, "its artifact is finished"
        return
    with suppress(FileNotFoundError):  # a driver is taking it over
        temporary = [path for path in partial.rglob("*.tmp") if not any(parent.suffix == ".tmp" for parent in path.parents)]
        for path in sorted([*temporary, *(partial / CHECKPOINTS).glob("ray-*")]):
            yield path, "its attempt has ended"


def _shards(store: Store, references: _References, *, all_of_them: bool) -> Iterator[tuple[Path, str]]:
    for path in sorted(path for path in store.shard_cache.glob("*") if SHARD.fullmatch(path.name) and path.is_file()):
        if path.suffix == ".tmp":
            if not any(owner in path.name for owner in references.living.values()):
                yield path, "its attempt has ended"
        elif all_of_them:
            yield path, "finished artifacts hold copies"


def _downloads(store: Store, references: _References) -> Iterator[tuple[Path, str]]:
    named = {*references.fingerprints, *references.urls.values()}  # inputs of artifacts are among the fingerprints
    named |= {str(download_record(store, url).get("sha256")) for url in references.urls}
    for path in sorted(downloads_folder(store).glob("*")):
        if not (DOWNLOAD.fullmatch(path.name) and _is_download(path) and _quiet(path, store)):
            continue
        if path.is_file():
            yield path, "its download was interrupted"
        elif path.name not in named:
            yield path, "no run refers to it"
    for path in sorted((downloads_folder(store) / URLS).glob("*.json")):
        url = str(read_json(path).get("url"))
        if path == record_file(store, url) and url not in references.urls and _quiet(path, store):
            yield path, "no run refers to it"


def _is_download(path: Path) -> bool:
    """Return whether a path is an incomplete download, or a folder that holds downloaded files only."""
    if path.suffix and not path.name.endswith(REMOVED):
        return path.is_file()
    return path.is_dir() and all(file.is_file() for file in path.iterdir())


def _runs(store: Store, references: _References) -> Iterator[tuple[Path, str]]:
    folders = [path for path in store.runs.glob("*") if path.name != LATEST]  # that is a link to one of the others
    for folder in sorted(folders):
        for path in sorted(path for path in folder.glob(f"driver{LEASE}*") if DRIVER_LEASE.fullmatch(path.name)):
            if path.is_file() and folder / f"driver{LEASE}" not in references.living:
                yield path, "its holder has ended"
        for path in sorted(path for path in folder.glob("*.tmp") if RUN_FILE.fullmatch(path.name)):
            if path.is_file() and _quiet(path, store):
                yield path, "its attempt has ended"


def _latest(store: Store) -> Iterator[tuple[Path, str]]:
    """Yield links to the latest run that a killed process did not give their name."""
    if not store.runs.is_symlink():
        for path in sorted(store.runs.glob(f"{LATEST}.*")):
            if LATEST_LINK.fullmatch(path.name) and path.is_symlink() and _quiet(path, store):
                yield path, "its attempt has ended"


def _caches(store: Store) -> Iterator[tuple[Path, str]]:
    """Yield cached digests and verifications of files that no longer exist."""
    for path in sorted((store.root / "digests").glob("*")):
        if is_own_digest(path) and not os.path.exists(str(read_json(path)["stamp"][0])):
            yield path, "its file does not exist"
    for path in sorted((store.root / "verified").glob("*.json")):
        found = VERIFIED.fullmatch(path.name)
        if found and not store.directory(found[1], found[2]).exists():
            yield path, "its artifact does not exist"


def _quiet(path: Path, store: Store) -> bool:
    """Return whether nothing in it was touched lately, by the clock of the file system."""
    try:
        latest = max(found.lstat().st_mtime for found in (path, *path.rglob("*")))
        (store.root / LOCK).touch()
        return (store.root / LOCK).stat().st_mtime - latest > QUIET_SECONDS
    except OSError:  # another process is changing it, or nothing can be deleted in this store
        return False


def _size(path: Path) -> int:
    """Return its size on disk in bytes; 0 if another process moves it meanwhile."""
    try:
        files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
        return sum(file.lstat().st_size for file in files if not file.is_dir() or file.is_symlink())
    except FileNotFoundError:
        return 0
