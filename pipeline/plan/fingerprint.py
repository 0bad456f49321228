"""Canonical JSON of configs and inputs, and the fingerprints of artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from stages.artifacts import Artifact, ExternalFile

L = TypeVar("L")


def canonical(value: object, *, keep_defaults: bool = False) -> Any:
    """Return a config or inputs object as plain JSON data: artifacts and files by fingerprint, dataclasses as maps.

    Fields with their default values are left out unless `keep_defaults`, so that a new option with a neutral default leaves
    earlier artifacts valid. Changing a default therefore requires a new stage version, which a test enforces. Fields with the
    metadata `stages.stage.OPERATIONAL` are left out as well, and those with a version have it in their names.
    """
    if isinstance(value, Artifact):
        return value.fingerprint
    if isinstance(value, ExternalFile):
        # A file that is read whole is its digest alone, as neutral defaults leave earlier artifacts valid.
        part: dict[str, Any] = {"member": value.member} if value.member else {}
        part |= {"columns": list(value.columns)} if value.columns else {}
        return {"digest": value.digest, **part} if part else value.digest
    if is_dataclass(value) and not isinstance(value, type):
        return {
            _name(field): canonical(getattr(value, field.name), keep_defaults=keep_defaults)
            for field in fields(value)
            if keep_defaults or (field.metadata.get("fingerprint", True) and not _has_default(field, getattr(value, field.name)))
        }
    if isinstance(value, Mapping):
        return {str(key): canonical(item, keep_defaults=keep_defaults) for key, item in sorted(value.items())}
    if isinstance(value, (tuple, list)):
        return [canonical(item, keep_defaults=keep_defaults) for item in value]
    return value


def _name(field: Field[Any]) -> str:
    return f"{field.name}@{field.metadata['version']}" if "version" in field.metadata else field.name


def _has_default(field: Field[Any], value: object) -> bool:
    if field.default is not MISSING:
        return bool(field.default == value)
    return field.default_factory is not MISSING and bool(field.default_factory() == value)


def digest(value: object) -> str:
    """Return the sha256 of plain JSON data as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(stage: str, version: int, config: object, inputs: object) -> str:
    """Return the fingerprint of an artifact: the first 32 hex digits of the sha256 of everything that its content depends on."""
    return digest({"stage": stage, "version": version, "config": canonical(config), "inputs": canonical(inputs)})[:32]


def input_fingerprints(inputs: object) -> dict[str, str]:
    """Return the fingerprint or digest of all leaves of the inputs by dotted name."""
    flat: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}.{key}" if name else str(key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{name}.{index}")
        else:
            flat[name] = str(value)

    walk(canonical(inputs), "")
    return flat


def artifacts(inputs: object) -> Iterator[tuple[str, Artifact]]:
    """Yield the artifacts in an inputs object with their dotted names."""
    return _leaves(Artifact, inputs, "")


def external_files(inputs: object) -> Iterator[tuple[str, ExternalFile]]:
    """Yield the user's files in an inputs object with their dotted names."""
    return _leaves(ExternalFile, inputs, "")


def _leaves(kind: type[L], value: object, name: str) -> Iterator[tuple[str, L]]:
    if isinstance(value, kind):
        yield name, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _leaves(kind, getattr(value, field.name), f"{name}.{field.name}".lstrip("."))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(kind, item, f"{name}.{key}".lstrip("."))
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _leaves(kind, item, f"{name}.{index}".lstrip("."))
