"""What lies in a store and is of no use: artifacts that no run names, and what crashed attempts left behind."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.run.lease import Lease
from pipeline.run.records import read_json
from pipeline.store.artifacts import Store
from pipeline.store.downloads import URLS, digits, folder, note, note_file
from pipeline.store.marker import FOLDERS, is_own_artifact, is_own_digest, require_marker
from pipeline.store.mirror import FETCHING
from stages.artifacts import CHECKPOINTS, MANIFEST
from stages.errors import ArtifactError

QUIET_SECONDS = 3600.0
"""What no lease tells of may be somebody's while it was touched within this time."""
REMOVED = ".removed"
"""Suffix of a directory that is being removed: it loses its name before its files."""
LEASE = ".lease"
PARTIAL = ".partial"
FINGERPRINT = r"\b[0-9a-f]{32}\b"
DIRECTORY = re.compile(rf"([0-9a-f]{{32}})(?:{PARTIAL})?(?:\.[0-9a-f]{{8}}(?:{REMOVED}|{FETCHING}))?")
"""Names of an artifact's directory: finished, partial, being removed and being fetched."""
LEASE_FILE = re.compile(rf"([0-9a-f]{{32}}){LEASE}(?:\.[\w.-]+\.tmp)?")
SHARD = re.compile(r"[0-9a-f]{64}\.arrow(?:\.[\w.-]+\.tmp)?")
DOWNLOAD = re.compile(rf"[0-9a-f]{{64}}(?:\.[0-9a-f]{{8}}{REMOVED})?|[0-9a-f]{{16}}\.tmp")
CHECKED = re.compile(rf"({'|'.join(FOLDERS)})-([0-9a-f]{{32}})\.json")
"""Names in `verified/`."""
RUN_FILE = re.compile(rf"(?:run\.json|mlflow\.json|driver{LEASE})\.[\w.-]+\.tmp")
LATEST = re.compile(r"latest\.\d+")


@dataclass(frozen=True)
class Garbage:
    """One thing that can go."""

    path: Path
    bytes: int
    reason: str


@dataclass
class _Names:
    """What the runs of a store name."""

    fingerprints: set[str] = field(default_factory=set)
    """Of artifacts."""
    urls: dict[str, str] = field(default_factory=dict)
    """Of downloads, with the pinned digest or none."""
    owners: set[str] = field(default_factory=set)
    """Ids of living drivers; the names of their temporary files carry them."""


@contextmanager
def in_use(store: Store) -> Iterator[None]:
    """While a run finds out what the store holds, nothing of it is removed."""
    with _locked(store, fcntl.LOCK_SH):
        yield


def collect(store: Store, *, shards: bool = False) -> list[Garbage]:
    """What can go, with the reason. `shards`: decoded pieces too, of which finished artifacts hold copies, while no run is alive.

    Nothing that a run names, a living process works on, or was touched within the last hour without a lease is in it, and nothing
    that does not have the name, place and content of what fewstep writes. Raises DataError when the directory is not a store.
    """
    require_marker(store)
    names = _names(store)
    found = [*_artifacts(store, names), *_downloads(store, names), *_runs(store, names), *_memories(store)]
    found += _shards(store, names, all_of_them=shards and not names.owners)
    return [Garbage(path, _size(path), reason) for path, reason in found]


def remove(store: Store, *, shards: bool = False) -> list[Garbage]:
    """Remove what can go; what was removed. Raises DataError when the directory is not a store."""
    require_marker(store)
    with _locked(store, fcntl.LOCK_EX):
        garbage = collect(store, shards=shards)
        for item in garbage:
            if item.path.suffix == LEASE:
                lease = _lease(item.path)
                if lease.acquire():  # nobody has taken it meanwhile
                    lease.release()
            elif item.path.is_dir() and not item.path.is_symlink():
                doomed = item.path
                if doomed.suffix != REMOVED:  # an artifact is whole or not there, whatever ends us
                    doomed = item.path.with_name(f"{item.path.name}.{secrets.token_hex(4)}{REMOVED}")
                    os.rename(item.path, doomed)
                shutil.rmtree(doomed, ignore_errors=True)
            else:
                item.path.unlink(missing_ok=True)
    return garbage


@contextmanager
def _locked(store: Store, how: int) -> Iterator[None]:
    store.root.mkdir(parents=True, exist_ok=True)
    with (store.root / ".gc").open("a") as file:
        fcntl.flock(file, how)
        yield


def _names(store: Store) -> _Names:
    """Raises ArtifactError when a run cannot be read, and so what it names cannot be told."""
    names = _Names()
    for path in store.runs.glob("*/run.json"):
        if path.parent.is_symlink():
            continue
        spec = read_json(path)
        if not spec:
            raise ArtifactError(f"{path}: expected the JSON of a run, got something else; remove {path.parent} if it is of no use")
        for entry in spec["plan"]:
            names.fingerprints.add(entry["fingerprint"])
            manifest = read_json(store.directory(entry["stage"], entry["fingerprint"]) / MANIFEST)
            names.fingerprints.update(str(value) for value in manifest.get("inputs", {}).values())
        _add(names, spec["config"])
    leases = [*(lease for name in FOLDERS for lease in (store.root / name).glob(f"*{LEASE}")), *store.runs.glob(f"*/*{LEASE}")]
    names.owners.update(str((_lease(path).holder() or {}).get("owner")) for path in leases if _lease(path).living())
    return names


def _add(names: _Names, value: Any) -> None:
    """What a config names: pinned artifacts by a path, downloads by their URL."""
    if isinstance(value, dict):
        if isinstance(value.get("url"), str):
            names.urls[value["url"]] = digits(str(value.get("sha256", "")))
        for item in value.values():
            _add(names, item)
    elif isinstance(value, list):
        for item in value:
            _add(names, item)
    elif isinstance(value, str):
        names.fingerprints.update(re.findall(FINGERPRINT, value))
        with suppress(OSError, ValueError):  # not a path
            names.fingerprints.add(Path(value).resolve().name)


def _artifacts(store: Store, names: _Names) -> Iterator[tuple[Path, str]]:
    for path in sorted(path for name in FOLDERS for path in (store.root / name).glob("*")):
        found = DIRECTORY.fullmatch(path.name) or LEASE_FILE.fullmatch(path.name)
        if found is None or not _is_ours(path):
            continue
        directory, named = path.parent / found[1], found[1] in names.fingerprints
        alive = _lease(_lease_of(directory)).living()
        if path.name.endswith(REMOVED):
            yield path, "its removal was interrupted"
        elif path.name.endswith(FETCHING):
            if _quiet(path):
                yield path, "its download was interrupted"
        elif LEASE in path.name:
            if not alive:
                yield path, "its holder is gone"
        elif not (alive or named):
            yield path, "no run names it"
        elif path.name.endswith(PARTIAL) and not alive:
            yield from _unfinished(path, directory)
        elif path == directory and (directory / CHECKPOINTS).exists():
            yield directory / CHECKPOINTS, "its artifact is finished"


def _is_ours(path: Path) -> bool:
    """Whether an entry of a stage's folder that has one of these names also has the content that fewstep gives it."""
    if LEASE in path.name:
        return path.is_file()
    return is_own_artifact(path) if not path.suffix else path.is_dir()


def _unfinished(partial: Path, directory: Path) -> Iterator[tuple[Path, str]]:
    """Of a partial artifact that nobody works on, and that a rerun may continue."""
    if (directory / MANIFEST).is_file():
        yield partial, "its artifact is finished"
        return
    torn = [path for path in partial.rglob("*.tmp") if not any(parent.suffix == ".tmp" for parent in path.parents)]
    for path in sorted([*torn, *(partial / CHECKPOINTS).glob("ray-*")]):
        yield path, "its attempt is over"


def _shards(store: Store, names: _Names, *, all_of_them: bool) -> Iterator[tuple[Path, str]]:
    for path in sorted(path for path in store.shard_cache.glob("*") if SHARD.fullmatch(path.name) and path.is_file()):
        if path.suffix == ".tmp":
            if not any(owner in path.name for owner in names.owners):
                yield path, "its attempt is over"
        elif all_of_them:
            yield path, "finished artifacts hold copies"


def _downloads(store: Store, names: _Names) -> Iterator[tuple[Path, str]]:
    named = {*names.urls.values(), *(str(note(store, url).get("sha256")) for url in names.urls)}
    for path in sorted(folder(store).glob("*")):
        if not (DOWNLOAD.fullmatch(path.name) and _is_download(path) and _quiet(path)):
            continue
        if path.suffix == ".tmp":
            yield path, "its download was interrupted"
        elif path.name not in named:
            yield path, "no run names it"
    for path in sorted((folder(store) / URLS).glob("*.json")):
        url = str(read_json(path).get("url"))
        if path == note_file(store, url) and url not in names.urls and _quiet(path):
            yield path, "no run names it"


def _is_download(path: Path) -> bool:
    """Whether it is a file that was being downloaded, or a folder of nothing but downloaded files."""
    return path.is_file() if path.suffix == ".tmp" else path.is_dir() and all(file.is_file() for file in path.iterdir())


def _runs(store: Store, names: _Names) -> Iterator[tuple[Path, str]]:
    for path in sorted(store.runs.glob(f"*/driver{LEASE}")):
        if not path.parent.is_symlink() and path.is_file() and not _lease(path).living():
            yield path, "its holder is gone"
    links = [path for path in store.runs.glob("latest.*") if LATEST.fullmatch(path.name) and path.is_symlink()]
    files = [path for path in store.runs.glob("*/*.tmp") if RUN_FILE.fullmatch(path.name) and path.is_file()]
    for path in sorted([*links, *files]):
        if not path.parent.is_symlink() and _quiet(path):
            yield path, "its attempt is over"


def _memories(store: Store) -> Iterator[tuple[Path, str]]:
    """Notes about files that are there no more."""
    for path in sorted((store.root / "digests").glob("*")):
        if is_own_digest(path) and not Path(read_json(path)["stamp"][0]).exists():
            yield path, "its file is gone"
    for path in sorted((store.root / "verified").glob("*.json")):
        found = CHECKED.fullmatch(path.name)
        if found and not store.directory(found[1], found[2]).exists():
            yield path, "its artifact is gone"


def _lease_of(directory: Path) -> Path:
    return directory.with_name(directory.name + LEASE)


def _lease(path: Path) -> Lease:
    return Lease(path, f"gc-{os.getpid()}", QUIET_SECONDS)


def _quiet(path: Path) -> bool:
    """Was nothing of it touched lately?"""
    try:
        latest = max(found.lstat().st_mtime for found in (path, *path.rglob("*")))
    except FileNotFoundError:  # somebody is at work on it
        return False
    return time.time() - latest > QUIET_SECONDS


def _size(path: Path) -> int:
    """Bytes that it takes on the disk."""
    files = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir() or file.is_symlink())
