"""The manifest of an artifact, which says that it is finished, and the comparison of its values with the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISLNK
from typing import Any, get_args, get_origin, get_type_hints

from durable import Status
from fewstep.relative_names import names_problem
from pipeline.plan.fingerprint import digest
from pipeline.store.files import read_json
from stages.artifacts import MANIFEST
from stages.errors import ArtifactError

SCHEMA = 1
MAX_NUMBER = 2.0**53
"""Largest number of a manifest: integers are exact as floats up to it."""


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
def _manifest_types() -> dict[str, Any]:
    """Return the type of each value of a manifest."""
    return get_type_hints(Manifest)


def values_problem(data: dict[str, Any]) -> str | None:
    """Return why these values are no manifest, or None."""
    types = _manifest_types()
    for name, kind in types.items():
        if name not in data or not _is_of(kind, data[name]):
            outer = get_origin(kind) or kind
            shown = str(kind) if isinstance(data.get(name), outer) and outer is not kind else outer.__name__
            return f"{name}: expected {shown}, got {data.get(name)!r:.80}"
    if unknown := sorted(data.keys() - types.keys()):
        return f"expected the keys of a manifest, got {unknown[0]!r:.80}"
    for name, entry in data["files"].items():
        if problem := entry_problem(name, entry):
            return f"files: {problem}"
    return None


def _is_of(kind: Any, value: Any) -> bool:
    """Return whether a value of JSON has a type such as `dict[str, str]`, its numbers are finite, and its texts are UTF-8."""
    if kind is Any:
        return True
    if kind in (int, float):
        typed = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        return typed and abs(value) <= MAX_NUMBER
    if not isinstance(value, get_origin(kind) or kind):
        return False
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    parts = get_args(kind)
    return not parts or all(_is_of(parts[-1], part) for part in (value.values() if isinstance(value, dict) else value))


def manifest_values(directory: Path) -> dict[str, Any]:
    """Return the values of the manifest in a directory that have their types; empty without a readable manifest."""
    types = _manifest_types()
    return {name: value for name, value in read_json(directory / MANIFEST).items() if name in types and _is_of(types[name], value)}


def isa_levels(environment: Mapping[str, Any]) -> list[str]:
    """Return the instruction-set levels in the environment of a manifest."""
    found = environment.get("isa")
    return [str(level) for level in found] if isinstance(found, list) else []


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
