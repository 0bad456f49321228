"""Artifact directories: integrity, atomic commit and pinned inputs. An artifact is finished once it has its `manifest.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from fewstep.relative_names import names_problem
from kernels import durable
from pipeline.store.attempts import discard_attempts, partial_directory
from pipeline.store.files import file_digest, read_json, write_atomically
from pipeline.store.host import HOST, Host
from pipeline.store.lease import Lease
from stages.artifacts import CHECKPOINTS, MANIFEST, RECORDS, STOP, Artifact, ExternalFile
from stages.errors import ArtifactError, DataError, FewstepError
from stages.stage import Stage

SCHEMA = 1

SYNCED = "synced"
"""Key of a stamp file. Stamps without it come from versions that did not sync the files that they verified."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of an artifact: its step and inputs, and the size and sha256 of each result file."""

    schema: int = SCHEMA
    stage: str
    version: int
    step: str
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]
    """Dotted name of each input artifact or file -> its fingerprint."""
    environment: dict[str, Any]
    """Machine, resources and versions with which it was made; not part of the fingerprint."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Relative path -> {bytes, sha256}."""
    records: list[str] = field(default_factory=list)
    """Relative paths of files that are never compared: timings, logs, metrics, figures."""
    code_digest: str
    git_revision: str
    run_id: str
    attempt: str
    seconds: float
    finished: float
    """Unix time of the commit."""


class Store:
    """A POSIX directory of artifacts, shared by every machine of a run."""

    def __init__(self, root: Path, host: Host = HOST) -> None:
        self.root = root.absolute()
        self.host = host

    @property
    def shard_cache(self) -> Path:
        return self.root / "shards"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def directory(self, stage: str, fingerprint: str) -> Path:
        """Return the directory of a finished artifact."""
        return self.root / stage / fingerprint

    def relative(self, path: Path) -> str:
        """Return `path` as run records name it: relative to the store."""
        return str(path.relative_to(self.root))

    def manifest(self, directory: Path) -> Manifest | None:
        """Return the manifest of a finished artifact, or None for an unfinished one. All files must exist with their sizes.

        Raises ArtifactError if a file is missing or has another size, or if the manifest has another schema.
        """
        path = directory / MANIFEST
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RecursionError, ValueError) as error:
            raise ArtifactError(f"{path}: expected a JSON manifest, got {error}; {_remedy(directory)}") from error
        if not isinstance(data, dict):
            raise ArtifactError(f"{path}: expected a JSON object, got {data!r:.80}; {_remedy(directory)}")
        if data.get("schema") != SCHEMA:
            raise ArtifactError(
                f"{path}: expected schema {SCHEMA}, got {data.get('schema')!r}, which another version of fewstep wrote; "
                f"remove {directory} and repeat the run command to make the artifact again"
            )
        if problem := _manifest_problem(directory, data):
            raise ArtifactError(f"{path}: {problem}; {_remedy(directory)}")
        manifest = Manifest(**data)
        for name, entry in manifest.files.items():
            _check_size(directory, name, entry["bytes"])
        return manifest

    def verify(self, directory: Path) -> None:
        """Compare every result file with its sha256. Files that are unchanged since the last verification are not read again.

        Digests of an artifact outside the store are cached by path. Raises ArtifactError that names the first file that differs.
        """
        manifest = self.manifest(directory)
        if manifest is None:
            raise ArtifactError(
                f"{directory}: expected a finished artifact, found no {MANIFEST}; repeat the run command to make it"
            )
        if directory.absolute().parent.parent != self.root:
            _compare(directory, manifest, self.digest)
            return
        stamps = {name: _stamp(directory / name) for name in manifest.files}
        if self._verified_stamps(directory) == stamps:
            return
        _compare(directory, manifest, file_digest)
        # It may have been copied here without a sync. The attempt that has just committed it may still remove what is skipped.
        durable.sync_tree(directory, skip=(RECORDS, CHECKPOINTS, STOP), disk=self.host.disk)
        self._write_verified_stamps(directory, stamps)

    def verify_all(self) -> Iterator[tuple[Path, str | None]]:
        """Hash every finished artifact again; yield its directory and its error message, or None for an intact artifact."""
        for path in sorted(self.root.glob(f"*/*/{MANIFEST}")):
            directory = path.parent
            if directory.suffix:  # it is being made, fetched or removed
                continue
            self._stamp_file(directory).unlink(missing_ok=True)
            try:
                self.verify(directory)
                yield directory, None
            except ArtifactError as error:
                yield directory, str(error)

    def commit(self, directory: Path, manifest: Manifest, lease: Lease | None = None) -> None:
        """Turn the directory of an attempt into the finished `directory`: hash the results, write the manifest, sync, rename.

        A power cut at any moment leaves the artifact finished and whole, or unfinished. Raises LeaseLostError if the attempt lost
        its `lease`, ArtifactError if the directory cannot be renamed.
        """
        partial = partial_directory(directory, manifest.attempt)
        if lease:
            lease.check()
        names = sorted(str(p.relative_to(partial)) for p in partial.rglob("*") if p.is_file())
        for temporary in [name for name in names if name.endswith(".tmp")]:
            (partial / temporary).unlink()
            names.remove(temporary)
        results = [n for n in names if n.split("/")[0] not in (RECORDS, CHECKPOINTS, MANIFEST, STOP)]
        files = {n: {"bytes": (partial / n).stat().st_size, "sha256": file_digest(partial / n)} for n in results}
        records = [n for n in names if n.startswith(RECORDS + "/")]
        data = {**asdict(manifest), "files": files, "records": records}
        (partial / MANIFEST).write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        durable.sync_tree(partial, skip=(CHECKPOINTS,), disk=self.host.disk)
        if lease:
            lease.check()
        try:
            renamed = self._rename(partial, directory)
        except OSError as error:
            raise ArtifactError(
                f"{directory}: could not rename {partial.name} to it: {error}; check the directory and repeat the run command"
            ) from error
        if not renamed:
            self.host.disk.remove_tree(partial)  # another driver finished the same step
            return
        self.host.disk.remove_tree(directory / CHECKPOINTS)
        (directory / STOP).unlink(missing_ok=True)
        discard_attempts(directory, lease, self.host)
        self._write_verified_stamps(directory, {name: _stamp(directory / name) for name in files})

    def adopt(self, temporary: Path, directory: Path) -> None:
        """Move a complete artifact with verified digests into the store, unless the store has it by now. Raises OSError."""
        durable.sync_tree(temporary, disk=self.host.disk)
        if self._rename(temporary, directory) and (manifest := self.manifest(directory)):
            self._write_verified_stamps(directory, {name: _stamp(directory / name) for name in manifest.files})

    def _rename(self, synced: Path, directory: Path) -> bool:
        """Rename a synced directory durably. False if a finished artifact has the name already. Raises OSError."""
        try:
            synced.rename(directory)
        except OSError:
            if self.manifest(directory) is None:
                raise
            return False
        durable.sync(directory.parent, self.host.disk)
        return True

    def pinned(self, stages: Sequence[Stage[Any, Any, Any]], path: Path, key: str) -> tuple[Artifact, Manifest]:
        """Verify and return the finished artifact at `path`, which the config pins under `key`. It keeps its own fingerprint.

        Raises DataError if `path` holds no finished artifact of one of `stages`, ArtifactError if a file of it was altered.
        """
        manifest = self.manifest(path)
        if manifest is None:
            raise DataError(f"{key}: expected the directory of a finished artifact (with {MANIFEST}), got {path}")
        for stage in stages:
            if stage.name == manifest.stage:
                self.verify(path)
                return stage.output(path.absolute(), manifest.fingerprint), manifest
        expected = " or ".join(stage.name for stage in stages)
        raise DataError(f"{key}: expected an artifact of stage {expected}, got one of stage {manifest.stage}: {path}")

    def digest(self, path: Path) -> str:
        """Return the sha256 of one of the user's files, which is cached by size and modification time.

        Raises DataError if the file cannot be read.
        """
        path = path.absolute()
        cache = self.root / "digests" / hashlib.sha256(str(path).encode()).hexdigest()
        try:
            stamp = [str(path), *_stamp(path)]
            cached = read_json(cache)
            if cached.get("stamp") == stamp:
                return str(cached["sha256"])
            value = file_digest(path)
        except OSError as error:
            raise DataError(
                f"{path}: expected a readable text file, got: {error.strerror}; check the path in the config"
            ) from error
        with suppress(FewstepError, OSError):  # planning works on a store that cannot be written to
            durable.sync(path, self.host.disk)
            write_atomically(cache, json.dumps({"stamp": stamp, "sha256": value}), self.host)
        return value

    def check_unchanged(self, file: ExternalFile) -> None:
        """Raise DataError if one of the user's files has changed since the run was planned."""
        if self.digest(file.path) != file.digest:
            raise DataError(
                f"{file.path}: expected the content that the run was planned with, got a changed file; its output was discarded: "
                "repeat the run command"
            )

    def _stamp_file(self, directory: Path) -> Path:
        return self.root / "verified" / f"{directory.parent.name}-{directory.name}.json"

    def _verified_stamps(self, directory: Path) -> dict[str, list[int]] | None:
        return read_json(self._stamp_file(directory)).get(SYNCED)

    def _write_verified_stamps(self, directory: Path, stamps: dict[str, list[int]]) -> None:
        """Record that these files match their digests. The files are synced, so the record holds after a power cut."""
        write_atomically(self._stamp_file(directory), json.dumps({SYNCED: stamps}), self.host)


@cache
def _manifest_kinds() -> dict[str, type]:
    """Return the type of each value of a manifest."""
    return {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(Manifest).items()}


def _manifest_problem(directory: Path, data: dict[str, Any]) -> str | None:
    """Return why these values are no manifest of files below `directory`, or None."""
    kinds = _manifest_kinds()
    for name, kind in kinds.items():
        if name not in data or not isinstance(data[name], (int, float) if kind is float else kind):
            return f"{name}: expected {kind.__name__}, got {data.get(name)!r:.80}"
    if unknown := sorted(data.keys() - kinds.keys()):
        return f"expected the keys of a manifest, got {unknown[0]!r:.80}"
    if problem := names_problem(directory, data["files"]):
        return f"files: {problem}"
    for name, entry in data["files"].items():
        if not isinstance(entry, dict) or {key: type(value) for key, value in entry.items()} != {"bytes": int, "sha256": str}:
            return f"files: {name}: expected bytes and sha256, got {entry!r:.80}"
    problem = names_problem(directory, data["records"])
    return f"records: {problem}" if problem else None


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]  # a copy may keep the modification time of its original


def _compare(directory: Path, manifest: Manifest, digest: Callable[[Path], str]) -> None:
    for name, entry in manifest.files.items():
        got = digest(directory / name)
        if got != entry["sha256"]:
            raise ArtifactError(f"{directory / name}: expected sha256 {entry['sha256']}, got {got}; {_remedy(directory)}")


def _check_size(directory: Path, name: str, expected: int) -> None:
    try:
        got: object = (directory / name).stat().st_size
    except OSError:
        got = "no such file"
    if got != expected:
        raise ArtifactError(f"{directory / name}: expected {expected} bytes, got {got}; {_remedy(directory)}")


def _remedy(directory: Path) -> str:
    remove = f"remove {directory} and repeat the run command to make it again"
    return f"the artifact was altered: {remove}, or copy it again if the config pins it"
