"""Artifact directories: integrity, atomic commit and pinned inputs. An artifact is finished once it has its `manifest.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

import durable
from durable import Status
from fewstep.access import access_problem
from fewstep.bounded_files import MAX_RECORD_BYTES, json_value, read_bounded
from pipeline.store.attempts import discard_attempts, partial_directory
from pipeline.store.files import REMOVED, file_digest, read_json, text_digest, write_atomically
from pipeline.store.host import HOST, Host
from pipeline.store.lease import Lease
from pipeline.store.manifest import SCHEMA, Manifest, files_problem, of_size, remedy, values_problem, with_defaults
from stages.artifacts import CHECKPOINTS, MANIFEST, RECORDS, STOP, Artifact, ExternalFile
from stages.errors import ArtifactError, DataError, FewstepError
from stages.stage import Stage

SYNCED = "synced"
"""Key of a stamp file. Stamps without it come from versions that did not sync the files that they verified."""


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
        found = self._read(directory)
        return found[0] if found else None

    def _read(self, directory: Path) -> tuple[Manifest, dict[str, Status]] | None:
        """Return the manifest, and the status of each file. See `manifest`."""
        path = directory / MANIFEST
        try:
            data = json_value(read_bounded(path, MAX_RECORD_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:  # it may be whole
            raise ArtifactError(access_problem(path, error)) from error
        except (OSError, RecursionError, ValueError) as error:
            raise ArtifactError(f"{path}: expected a JSON manifest, got {error}; {remedy(directory)}") from error
        if not isinstance(data, dict):
            raise ArtifactError(f"{path}: expected a JSON object, got {data!r:.80}; {remedy(directory)}")
        if data.get("schema") != SCHEMA:
            raise ArtifactError(
                f"{path}: expected schema {SCHEMA}, got {data.get('schema')!r}, which another version of fewstep wrote; "
                f"remove {directory} and repeat the run command to make the artifact again"
            )
        data = with_defaults(data)
        if problem := values_problem(data):
            raise ArtifactError(f"{path}: {problem}; {remedy(directory)}")
        statuses = self._statuses(directory, data["files"])
        if problem := files_problem(directory, data, statuses):
            raise ArtifactError(f"{path}: {problem}; {remedy(directory)}")
        manifest = Manifest(**data)
        return manifest, of_size(directory, manifest, statuses)

    def _statuses(self, directory: Path, names: Iterable[str]) -> dict[str, Status | None]:
        names = list(names)
        return dict(zip(names, self.host.disk.statuses(directory, names), strict=True))

    def verify(self, directory: Path) -> None:
        """Compare every result file with its sha256. Files that are unchanged since the last verification are not read again.

        Digests of an artifact outside the store are cached by path. Raises ArtifactError that names the first file that differs.
        """
        found = self._read(directory)
        if found is None:
            raise ArtifactError(
                f"{directory}: expected a finished artifact, found no {MANIFEST}; repeat the run command to make it"
            )
        manifest, statuses = found
        if directory.absolute().parent.parent != self.root:
            _compare(directory, manifest, (self.digest(directory / name) for name in manifest.files))
            return
        stamps = _stamps(statuses)
        if self._verified_stamps(directory) == stamps:
            return
        _compare(directory, manifest, (digest for _, digest in self.host.disk.digests(directory, manifest.files)))
        # It may have been copied here without a sync. Other files may vanish: those of an attempt that has just ended, or gc's.
        self.host.disk.sync_all(directory, [MANIFEST, *manifest.files, *_folders(manifest.files)])
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

        An artifact that the manifest `replaces` gives way to it. A power cut at any moment leaves the artifact finished and whole,
        or unfinished. Raises LeaseLostError if the attempt lost
        its `lease`, ArtifactError if the directory cannot be renamed.
        """
        partial = partial_directory(directory, manifest.attempt)
        if lease:
            lease.check()
        # Hashing and syncing take long, so that the lease may be lost meanwhile: it is looked at before and after.
        complete = self._complete(partial, manifest)
        # `asdict` would copy the entry of every file.
        data = {**asdict(manifest), "files": complete.files, "records": complete.records}
        (partial / MANIFEST).write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        durable.sync_tree(partial, skip=(CHECKPOINTS,), disk=self.host.disk)
        if lease:
            lease.check()
        try:
            renamed = self._rename(partial, directory, manifest.replaces)
        except OSError as error:
            raise ArtifactError(
                f"{directory}: could not rename {partial.name} to it: {error}; check the directory and repeat the run command"
            ) from error
        if not renamed:
            self.host.disk.remove_tree(partial)  # another driver finished the same step
            return
        # Only now: after a crash before the rename, the next attempt continues from the checkpoints.
        self.host.disk.remove_tree(directory / CHECKPOINTS)
        (directory / STOP).unlink(missing_ok=True)
        discard_attempts(directory, lease, self.host)
        self._write_stamps_of(directory, complete)

    def _complete(self, partial: Path, manifest: Manifest) -> Manifest:
        """Return the manifest with the files of an attempt. Temporary files are removed, checkpoints are left out."""
        disk = self.host.disk
        names, _ = disk.walk(partial, skip=(CHECKPOINTS, MANIFEST, STOP))
        for temporary in [name for name in names if name.endswith(".tmp")]:
            (partial / temporary).unlink()
            names.remove(temporary)
        results = [name for name in names if name.split("/")[0] != RECORDS]
        files = {
            name: {"bytes": size, "sha256": digest}
            for name, (size, digest) in zip(results, disk.digests(partial, results), strict=True)
        }
        return replace(manifest, files=files, records=[name for name in names if name.startswith(RECORDS + "/")])

    def adopt(self, temporary: Path, directory: Path, replaces: Sequence[str] = ()) -> None:
        """Move a complete artifact with verified digests into the store, unless the store has it by now. Raises OSError.

        An artifact that one of the attempts `replaces` made gives way to it.
        """
        durable.sync_tree(temporary, disk=self.host.disk)
        if self._rename(temporary, directory, replaces) and (manifest := self.manifest(directory)):
            self._write_stamps_of(directory, manifest)

    def _rename(self, synced: Path, directory: Path, replaces: Sequence[str] = ()) -> bool:
        """Rename a synced directory durably. A finished artifact that has the name already is replaced if one of the attempts
        `replaces` made it; otherwise return False. Raises OSError."""
        renamed = True
        try:
            synced.rename(directory)
        except OSError:
            found = self.manifest(directory)
            if found is None:
                raise
            renamed = found.attempt in replaces
            if renamed:
                # A directory can be renamed to an empty one alone, so the artifact that is replaced moves aside first.
                aside = directory.with_name(f"{directory.name}.{self.host.token()}{REMOVED}")
                durable.replace_directory(synced, directory, aside, self.host.disk)
                self.host.disk.remove_tree(aside)
        durable.sync(directory.parent, self.host.disk)  # who renamed another one to it may not have come so far
        return renamed

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
        *others, last = (stage.name for stage in stages)
        expected = f"{', '.join(others)} or {last}" if others else last
        raise DataError(f"{key}: expected an artifact of stage {expected}, got one of stage {manifest.stage}: {path}")

    def digest(self, path: Path) -> str:
        """Return the sha256 of one of the user's files, which is cached by size and modification time.

        Raises DataError if the file cannot be read.
        """
        path = path.absolute()
        cache = self.root / "digests" / text_digest(str(path))
        try:
            stamp = [str(path), *_stamp(path.stat())]
            cached = read_json(cache)
            if cached.get("stamp") == stamp:
                return str(cached["sha256"])
            value = file_digest(path)
        except PermissionError as error:
            raise DataError(access_problem(path, error)) from error
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

    def _write_stamps_of(self, directory: Path, manifest: Manifest) -> None:
        """Record that the files of an artifact match their digests, as it was just made from them."""
        self._write_verified_stamps(directory, _stamps(of_size(directory, manifest, self._statuses(directory, manifest.files))))

    def _write_verified_stamps(self, directory: Path, stamps: dict[str, list[int]]) -> None:
        """Record that these files match their digests. The files are synced, so the record holds after a power cut."""
        write_atomically(self._stamp_file(directory), json.dumps({SYNCED: stamps}), self.host)


def _folders(names: Iterable[str]) -> list[str]:
    """Return the directories that hold files with these relative names, as relative names; "" is the directory of the artifact."""
    return sorted({"", *(str(parent) for name in names for parent in PurePosixPath(name).parents if parent.name)})


def _stamps(statuses: dict[str, Status]) -> dict[str, list[int]]:
    return {name: _stamp(status) for name, status in statuses.items()}


def _stamp(status: Status) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]  # a copy may keep the modification time of its original


def _compare(directory: Path, manifest: Manifest, digests: Iterable[str]) -> None:
    for (name, entry), got in zip(manifest.files.items(), digests, strict=True):
        if got != entry["sha256"]:
            raise ArtifactError(f"{directory / name}: expected sha256 {entry['sha256']}, got {got}; {remedy(directory)}")
