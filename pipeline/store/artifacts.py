"""Artifact directories: integrity, atomic commit and pinned inputs. `manifest.json`, written last, is what "done" means."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernels import durable
from stages.artifacts import CHECKPOINTS, MANIFEST, RECORDS, STOP, Artifact, ExternalFile
from stages.errors import FULL, ArtifactError, DataError, FewstepError, unwritable
from stages.stage import Stage

SCHEMA = 1

SYNCED = "synced"
"""Key of a stamp file. Stamps without it are of versions that did not sync what they vouched for."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an artifact is, what it was made from, and the size and sha256 of each result file."""

    schema: int = SCHEMA
    stage: str
    version: int
    step: str
    fingerprint: str
    config: dict[str, Any]
    inputs: dict[str, str]
    """Dotted name of each input artifact or file -> its fingerprint."""
    environment: dict[str, Any]
    """Where and with what it was made; never part of the fingerprint."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Relative path -> {bytes, sha256}."""
    records: list[str] = field(default_factory=list)
    """Relative paths of what is never compared: timings, logs, metrics, figures."""
    code_digest: str
    git_revision: str
    run_id: str
    attempt: str
    seconds: float
    finished: float
    """Unix time of the commit."""


def file_digest(path: Path) -> str:
    """sha256 of a file's content (64 hex digits)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Store:
    """A POSIX directory of artifacts, shared by every machine of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def shard_cache(self) -> Path:
        return self.root / "shards"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def directory(self, stage: str, fingerprint: str) -> Path:
        """Where the finished artifact lies."""
        return self.root / stage / fingerprint

    def relative(self, path: Path) -> str:
        """`path` as run records name it."""
        return str(path.relative_to(self.root))

    @staticmethod
    def partial(directory: Path) -> Path:
        """Where `directory` is being made; an earlier attempt's work is found there."""
        return directory.with_name(directory.name + ".partial")

    def manifest(self, directory: Path) -> Manifest | None:
        """The manifest of a finished artifact whose files are all there in full size, or None if there is none.

        Raises ArtifactError when a file is missing or has another size, or when the manifest is of another schema.
        """
        path = directory / MANIFEST
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path}: expected a JSON manifest, got {error}; {_remedy(directory)}") from error
        if data.get("schema") != SCHEMA:
            raise ArtifactError(
                f"{path}: expected schema {SCHEMA}, got {data.get('schema')!r} (written by another version of fewstep); "
                f"remove {directory} and repeat the run command to make it again"
            )
        manifest = Manifest(**data)
        for name, entry in manifest.files.items():
            _check_size(directory, name, entry["bytes"])
        return manifest

    def verify(self, directory: Path) -> None:
        """Compare every result file with its sha256. Files that have not been touched since the last check are not read again.

        An artifact outside the store is remembered by its path. Raises ArtifactError naming the first file that differs.
        """
        manifest = self.manifest(directory)
        if manifest is None:
            raise ArtifactError(f"{directory}: expected a finished artifact, got none; repeat the run command to make it")
        if directory.absolute().parent.parent != self.root:
            _compare(directory, manifest, self.digest)
            return
        seen = self._seen(directory)
        now = {name: _stamp(directory / name) for name in manifest.files}
        if seen == now:
            return
        _compare(directory, manifest, file_digest)
        for name in manifest.files:  # the artifact may have been copied here a moment ago
            durable.sync(directory / name)
        self._remember(directory, now)

    def verify_all(self) -> Iterator[tuple[Path, str | None]]:
        """Hash every finished artifact afresh; yield its directory and what is wrong with it (None: nothing)."""
        for path in sorted(self.root.glob(f"*/*/{MANIFEST}")):
            directory = path.parent
            if directory.suffix:  # one that is being made, brought or removed
                continue
            self._stamp_file(directory).unlink(missing_ok=True)
            try:
                self.verify(directory)
                yield directory, None
            except ArtifactError as error:
                yield directory, str(error)

    def commit(self, directory: Path, manifest: Manifest) -> None:
        """Turn `<directory>.partial` into the finished `directory`: hash the results, write the manifest last, sync, rename.

        A power cut at any moment leaves the artifact finished and whole, or unfinished. Raises ArtifactError when it cannot be
        renamed.
        """
        partial = self.partial(directory)
        names = sorted(str(p.relative_to(partial)) for p in partial.rglob("*") if p.is_file())
        for torn in [name for name in names if name.endswith(".tmp")]:
            (partial / torn).unlink()
            names.remove(torn)
        results = [n for n in names if n.split("/")[0] not in (RECORDS, CHECKPOINTS, MANIFEST, STOP)]
        files = {n: {"bytes": (partial / n).stat().st_size, "sha256": file_digest(partial / n)} for n in results}
        records = [n for n in names if n.startswith(RECORDS + "/")]
        data = {**asdict(manifest), "files": files, "records": records}
        (partial / MANIFEST).write_text(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        durable.sync_tree(partial, skip=(CHECKPOINTS,))
        try:
            first = self._name(partial, directory)
        except OSError as error:
            raise ArtifactError(f"{directory}: could not take the place of a finished artifact: {error}") from error
        if not first:
            shutil.rmtree(partial, ignore_errors=True)  # another driver finished the same step meanwhile
            return
        shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
        (directory / STOP).unlink(missing_ok=True)
        self._remember(directory, {name: _stamp(directory / name) for name in files})

    def adopt(self, temporary: Path, directory: Path) -> None:
        """Give a whole artifact, whose digests were compared, its name. One that is there by now stays."""
        durable.sync_tree(temporary)
        if self._name(temporary, directory) and (manifest := self.manifest(directory)):
            self._remember(directory, {name: _stamp(directory / name) for name in manifest.files})

    def _name(self, synced: Path, directory: Path) -> bool:
        """Rename a synced directory, durably; False if a finished artifact has the name already. Raises OSError."""
        try:
            os.rename(synced, directory)
        except OSError:
            if self.manifest(directory) is None:
                raise
            return False
        durable.sync(directory.parent)
        return True

    def pinned(self, stages: Sequence[Stage[Any, Any, Any]], path: Path, key: str) -> tuple[Artifact, Manifest]:
        """A finished artifact that the config names by path (`from:`), verified; it keeps its own fingerprint.

        Raises DataError when there is no finished artifact of one of these stages at `path`, ArtifactError when it is damaged.
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
        """sha256 of one of the user's files, remembered by size and modification time.

        Raises DataError when it cannot be read.
        """
        path = path.absolute()
        memory = self.root / "digests" / hashlib.sha256(str(path).encode()).hexdigest()
        try:
            stamp = [str(path), *_stamp(path)]
            known = _read_json(memory)
            if isinstance(known, dict) and known.get("stamp") == stamp:
                return str(known["sha256"])
            value = file_digest(path)
        except OSError as error:
            raise DataError(f"{path}: expected a readable text file, got: {error.strerror}") from error
        with suppress(FewstepError, OSError):  # a store that cannot be written to can still be asked
            durable.sync(path)
            write_atomically(memory, json.dumps({"stamp": stamp, "sha256": value}), str(os.getpid()))
        return value

    def check_unchanged(self, file: ExternalFile) -> None:
        """Raises DataError when one of the user's files is not what it was when the run was planned."""
        if self.digest(file.path) != file.digest:
            raise DataError(f"{file.path}: was changed while it was being read; nothing was kept of it: repeat the run command")

    def _stamp_file(self, directory: Path) -> Path:
        return self.root / "verified" / f"{directory.parent.name}-{directory.name}.json"

    def _seen(self, directory: Path) -> dict[str, list[int]] | None:
        seen = _read_json(self._stamp_file(directory))
        return seen.get(SYNCED) if isinstance(seen, dict) else None

    def _remember(self, directory: Path, stamps: dict[str, list[int]]) -> None:
        """Note that these files were compared with their digests. They are durable by now, and so believed after a power cut."""
        write_atomically(self._stamp_file(directory), json.dumps({SYNCED: stamps}), str(os.getpid()))


def write_atomically(path: Path, text: str, attempt: str) -> None:
    """Write a small file whole or not at all; it outlasts a power cut. Raises StageError when the disk is full."""
    temporary = path.with_name(f"{path.name}.{attempt}.tmp")
    try:
        durable.make_directory(path.parent)
        durable.write_whole(path, lambda unnamed: unnamed.write_text(text, encoding="utf-8"), temporary)
    except OSError as error:
        if error.errno in FULL:
            raise unwritable(path, error) from error
        raise


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]  # a copy may keep its original's time of modification


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
    return f"the artifact was altered: {remove}, or copy it again if the config names it by its path"
