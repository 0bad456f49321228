"""The store's mirror on object storage, which holds finished artifacts and checkpoints, each complete or not at all.

The files of an artifact are under `<stage>/<fingerprint>/<attempt>/`, so that two machines that made the same artifact do not mix
theirs; `<attempt>.index.json` beside that folder holds their digests, records included. `<stage>/<fingerprint>/manifest.json`,
written last, marks the artifact as finished. The checkpoints of a training are under
`<stage>/<fingerprint>.partial/<digest of their index>/`, and `<fingerprint>.partial/index.json`, written last, names them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import durable
from fewstep.bounded_files import json_value
from fewstep.relative_names import names_problem
from pipeline.plan.fingerprint import digest
from pipeline.store.artifacts import Store
from pipeline.store.attempts import PARTIAL
from pipeline.store.files import file_digest
from pipeline.store.lease import Lease
from pipeline.store.manifest import SCHEMA, entry_problem, values_problem, with_defaults
from pipeline.store.object_storage import Folder
from pipeline.store.streams import DamagedError
from stages.artifacts import CHECKPOINTS, MANIFEST
from stages.errors import ArtifactError, StageError, unwritable

FETCHING = ".fetching"
"""Suffix of a directory that is being downloaded from the mirror."""
CONNECTIONS = 8
PLAIN_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)

Index = dict[str, dict[str, Any]]
"""The {bytes, sha256} of files by relative path."""

B = TypeVar("B")


class Mirror:
    """A folder on object storage with copies of the store's artifacts."""

    def __init__(self, url: str, store: Store, folder: Folder | None = None) -> None:
        """`folder`: the folder at `url`, which is opened at its first use if it is not given."""
        self.url = url
        self.store = store
        self._given = folder

    @cached_property
    def _folder(self) -> Folder:
        return self._given or Folder(self.url)

    def holds(self, directory: Path) -> bool:
        """Return whether the mirror has this artifact."""
        return self._read(self._name(directory), MANIFEST) is not None

    def push(self, directory: Path) -> bool:
        """Upload a finished artifact unless the mirror has one that it does not replace. Return whether anything was sent.

        The files of a replaced one stay, since another machine may be reading them.

        Raises ArtifactError if a file differs from the manifest, StageError if the mirror cannot be used.
        """
        manifest = self.store.manifest(directory)
        name = self._name(directory)
        if manifest is None or (self.holds(directory) and self._attempt_of(name) not in manifest.replaces):
            return False
        records = [record for record in manifest.records if (directory / record).is_file()]
        index = self._upload(directory, [*manifest.files, *records, MANIFEST], f"{name}/{manifest.attempt}")
        for file, entry in manifest.files.items():
            if index[file] != entry:
                raise ArtifactError(
                    f"{directory / file}: expected sha256 {entry['sha256']}, got {index[file]['sha256']}; the artifact was "
                    f"altered and is not mirrored: remove {directory} and repeat the run command to make it again"
                )
        self._folder.write(f"{name}/{manifest.attempt}.index.json", _json(index))
        # Last, since it marks the artifact as finished.
        self._folder.upload(f"{name}/{MANIFEST}", directory / MANIFEST)
        return True

    def _attempt_of(self, name: str) -> str:
        """Return the attempt that made the artifact in the mirror; empty if its manifest cannot be read."""
        try:
            return str(self._parsed(name, MANIFEST, self._read(name, MANIFEST)).get("attempt", ""))
        except ArtifactError:
            return ""

    def pull(self, directory: Path, replaces: Sequence[str] = ()) -> bool:
        """Download an artifact into the store and verify its digests. Return False if the mirror does not have it.

        It replaces an artifact in the store that one of the attempts `replaces` made.

        Raises ArtifactError if the copy in the mirror is damaged, StageError if the mirror cannot be used or the disk is full.
        """
        name = self._name(directory)
        text = self._read(name, MANIFEST)
        if text is None:
            return False
        manifest = self._parsed(name, MANIFEST, text)
        if (manifest.get("schema"), manifest.get("fingerprint")) != (SCHEMA, directory.name):
            found = f"one of {manifest.get('fingerprint')!r:.80} and schema {manifest.get('schema')!r:.80}"
            raise self._damaged(name, f"{MANIFEST}: expected a manifest of {directory.name} and schema {SCHEMA}, got {found}")
        manifest = with_defaults(manifest)
        if problem := values_problem(manifest):
            raise self._damaged(name, f"{MANIFEST}: {problem}")
        attempt = self._plain(name, MANIFEST, "attempt", manifest["attempt"])
        record = f"{attempt}.index.json"
        index = self._index(name, record, self._parsed(name, record, self._read(name, record)))
        differing = [file for file, entry in manifest["files"].items() if index.get(file) != entry]
        if differing or MANIFEST not in index:
            raise self._damaged(
                name, f"expected {attempt}.index.json to agree with the manifest, got a different {(differing or [MANIFEST])[0]}"
            )
        temporary = directory.with_name(f"{directory.name}.{self.store.host.token()}{FETCHING}")
        try:
            self._download(name, attempt, index, temporary)
            self.store.adopt(temporary, directory, replaces)
        except OSError as error:
            raise unwritable(temporary, error) from error
        finally:
            self.store.host.disk.remove_tree(temporary)
        return True

    def push_checkpoints(self, directory: Path, partial: Path, lease: Lease | None = None) -> bool:
        """Upload the newest checkpoint of a running training and its candidates. Return whether anything was sent.

        Nothing is published if the training removes one of these files meanwhile, or if another attempt has the lease. Uploads of
        other stores with the same mirror are left alone: only the checkpoint that is replaced is removed.
        """
        try:
            index = _checkpoint_index(partial)
            name = self._checkpoints_name(directory)
            version = digest(index)[:32]
            earlier = self._published(name)
            if not index or version == earlier:
                return False
            sent = self._upload(partial, index, f"{name}/{version}")
        except FileNotFoundError:
            return False
        # The training replaced a file while it was sent, or lost its step: what was sent is then not named by the index.
        if sent != index or (lease and lease.taken()):
            return False
        self._folder.write(f"{name}/index.json", _json({"version": version, "files": index}))
        # After the new index is written, so that some version is whole at any time.
        if earlier:
            self._folder.remove(self._folder.sizes(f"{name}/{earlier}"))
        return True

    def _published(self, name: str) -> str | None:
        """Return the version of the checkpoint in the mirror, or None without a readable index."""
        try:
            found = self._parsed(name, "index.json", self._read(name, "index.json"))
            return self._plain(name, "index.json", "version", found.get("version"))
        except ArtifactError:
            return None

    def pull_checkpoints(self, directory: Path, partial: Path) -> bool:
        """Download the checkpoint of a training without one in the store. Return whether the mirror has it."""
        if (partial / CHECKPOINTS).exists():
            return False
        name = self._checkpoints_name(directory)
        text = self._read(name, "index.json")
        if text is None:
            return False
        found = self._parsed(name, "index.json", text)
        version = self._plain(name, "index.json", "version", found.get("version"))
        index = self._index(name, "index.json", found.get("files"))
        if not any(file.startswith(f"{CHECKPOINTS}/") for file in index):
            raise self._damaged(name, f"index.json: files: expected those of {CHECKPOINTS}/, got none")
        temporary = partial.with_name(f"{partial.name}.{self.store.host.token()}{FETCHING}")
        try:
            self._download(name, version, index, temporary)
            durable.make_directory(partial, self.store.host.disk)
            durable.rename(temporary / CHECKPOINTS, partial / CHECKPOINTS, self.store.host.disk)
        except OSError as error:
            raise unwritable(temporary, error) from error
        finally:
            self.store.host.disk.remove_tree(temporary)
        return True

    def drop_checkpoints(self, directory: Path) -> None:
        """Remove the checkpoints of a finished step."""
        names = sorted(self._folder.sizes(self._checkpoints_name(directory)), key=lambda name: not name.endswith("/index.json"))
        self._folder.remove(names)

    def _name(self, directory: Path) -> str:
        return f"{directory.parent.name}/{directory.name}"

    def _checkpoints_name(self, directory: Path) -> str:
        return f"{self._name(directory)}{PARTIAL}"

    def _upload(self, directory: Path, names: Iterable[str], place: str) -> Index:
        files = list(names)
        index = dict(
            zip(files, self._each(lambda name: self._folder.upload(f"{place}/{name}", directory / name), files), strict=True)
        )
        sizes = self._folder.sizes(place)
        for name in files:
            size = sizes.get(f"{place}/{name}")
            sent = index[name]["bytes"]
            if size != sent:
                raise StageError(
                    f"{self._folder.address(place)}/{name}: expected {sent} bytes after the upload, found "
                    f"{'no such object' if size is None else f'{size} bytes'}; repeat the run command to upload it again"
                )
        return index

    def _download(self, name: str, place: str, index: Index, target: Path) -> None:
        if problem := names_problem(target, index):
            raise self._damaged(name, problem)

        def download(file: str) -> None:
            try:
                self._folder.download(f"{name}/{place}/{file}", target / file, index[file])
            except DamagedError as error:
                raise self._damaged(name, f"{place}/{file}: {error}") from error

        self._each(download, list(index))

    def _each(self, function: Callable[[str], B], names: list[str]) -> list[B]:
        return self.store.host.disk.each(function, names, CONNECTIONS)

    def _read(self, name: str, file: str) -> bytes | None:
        try:
            return self._folder.read(f"{name}/{file}")
        except DamagedError as error:
            raise self._damaged(name, f"{file}: {error}") from error

    def _parsed(self, name: str, file: str, text: bytes | None) -> dict[str, Any]:
        try:
            found = json_value(text or b"")
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, f"expected JSON in {file}, got {error if text else 'nothing'}") from error
        if not isinstance(found, dict):
            raise self._damaged(name, f"{file}: expected a JSON object, got {found!r:.80}")
        return found

    def _index(self, name: str, file: str, value: object) -> Index:
        if not isinstance(value, dict):
            raise self._damaged(name, f"{file}: files: expected a map, got {value!r:.80}")
        if problem := next(filter(None, (entry_problem(*entry) for entry in value.items())), None):
            raise self._damaged(name, f"{file}: {problem}")
        return value

    def _plain(self, name: str, file: str, key: str, value: object) -> str:
        """Return a value that is part of a path. Raises ArtifactError if it leads anywhere else."""
        if not isinstance(value, str) or not PLAIN_NAME.fullmatch(value):
            raise self._damaged(name, f"{file}: {key}: expected letters, digits, '_', '-' and '.', got {value!r:.80}")
        return value

    def _damaged(self, name: str, problem: str) -> ArtifactError:
        where = self._folder.address(name)
        return ArtifactError(
            f"{where}: {problem}; the copy in the mirror is damaged: remove {where} and repeat the run command to make it again"
        )


def _checkpoint_index(partial: Path) -> Index:
    """Return the files of the newest complete checkpoint and all candidates; empty without a checkpoint."""
    folder = partial / CHECKPOINTS
    updates = sorted((int(path.name), path) for path in folder.glob("*") if path.name.isdigit()) if folder.is_dir() else []
    if not updates:
        return {}
    files = [*updates[-1][1].iterdir(), *(folder / "candidates").glob("*.safetensors")]
    return {str(f.relative_to(partial)): {"bytes": f.stat().st_size, "sha256": file_digest(f)} for f in sorted(files)}


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
