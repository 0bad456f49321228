"""The manifest of an artifact, which says that it is finished, and the comparison of its values with the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISLNK
from typing import Any, get_type_hints

from durable import Status
from fewstep.relative_names import names_problem
from pipeline.plan.fingerprint import digest
from stages.errors import ArtifactError

SCHEMA = 1


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
    origin: list[dict[str, str]] = field(default_factory=list)
    """Inputs that were made elsewhere: `name`, `from`, `sha256` and `licence` of each file."""
    contents: dict[str, str] = field(default_factory=dict)
    """Dotted name of each input artifact -> digest of the content that was read (`pipeline.plan.freshness`)."""
    replaces: list[str] = field(default_factory=list)
    """Attempts whose artifacts under this fingerprint it replaced."""
    rebuilt: bool = False
    """Whether it, or anything that it was made from, was recomputed: what caches hold under its fingerprint may be of earlier
    content."""

    @property
    def content(self) -> str:
        """A digest of all result files."""
        return digest({name: entry["sha256"] for name, entry in self.files.items()})[:32]


def with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a manifest with those that earlier versions did not state."""
    return {"origin": [], "contents": {}, "replaces": [], "rebuilt": False} | data


@cache
def _manifest_kinds() -> dict[str, type]:
    """Return the type of each value of a manifest."""
    return {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(Manifest).items()}


def values_problem(data: dict[str, Any]) -> str | None:
    """Return why these values are no manifest, or None."""
    kinds = _manifest_kinds()
    for name, kind in kinds.items():
        if name not in data or not isinstance(data[name], (int, float) if kind is float else kind):
            return f"{name}: expected {kind.__name__}, got {data.get(name)!r:.80}"
    if unknown := sorted(data.keys() - kinds.keys()):
        return f"expected the keys of a manifest, got {unknown[0]!r:.80}"
    for name, entry in data["files"].items():
        if problem := entry_problem(name, entry):
            return f"files: {problem}"
    return None


def entry_problem(name: str, entry: object) -> str | None:
    """Return why this is no {bytes, sha256} of a file, or None."""
    if not isinstance(entry, dict) or {key: type(value) for key, value in entry.items()} != {"bytes": int, "sha256": str}:
        return f"{name:.80}: expected bytes and sha256, got {entry!r:.80}"
    return None


def files_problem(directory: Path, data: dict[str, Any], statuses: dict[str, Status | None]) -> str | None:
    """Return why these are no names of files below `directory`, or None."""
    links = {name for name, status in statuses.items() if status and S_ISLNK(status.st_mode)}
    if problem := names_problem(directory, data["files"], links.__contains__):
        return f"files: {problem}"
    problem = names_problem(directory, data["records"])
    return f"records: {problem}" if problem else None


def of_size(directory: Path, manifest: Manifest, statuses: dict[str, Status | None]) -> dict[str, Status]:
    """Return the statuses of all files of a manifest. Raises ArtifactError if one is missing or has another size."""
    found = {name: status for name, status in statuses.items() if status and status.st_size == manifest.files[name]["bytes"]}
    if wrong := next((name for name in manifest.files if name not in found), None):
        status = statuses[wrong]
        expected = manifest.files[wrong]["bytes"]
        got = status.st_size if status else "no such file"
        raise ArtifactError(f"{directory / wrong}: expected {expected} bytes, got {got}; {remedy(directory)}")
    return found


def remedy(directory: Path) -> str:
    """Return the end of an error message on a damaged artifact."""
    remove = f"remove {directory} and repeat the run command to make it again"
    return f"the artifact was altered: {remove}, or copy it again if the config pins it"
