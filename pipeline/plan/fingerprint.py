"""Canonical JSON of configs and inputs, and the fingerprint that names an artifact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from stages.artifacts import Artifact, ExternalFile

L = TypeVar("L")


def canonical(value: object, *, keep_defaults: bool = False) -> Any:
    """Plain JSON data for a config or inputs object: artifacts and files by fingerprint, dataclasses as maps.

    A field that has its default value is left out unless `keep_defaults`, so that a new option with a neutral default leaves
    earlier artifacts valid. (Changing a default therefore demands a new stage version; a test watches over it.)
    """
    if isinstance(value, Artifact):
        return value.fingerprint
    if isinstance(value, ExternalFile):
        return value.digest
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: canonical(getattr(value, field.name), keep_defaults=keep_defaults)
            for field in fields(value)
            if keep_defaults or not _has_default(field, getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {str(key): canonical(item, keep_defaults=keep_defaults) for key, item in sorted(value.items())}
    if isinstance(value, (tuple, list)):
        return [canonical(item, keep_defaults=keep_defaults) for item in value]
    return value


def _has_default(field: Field[Any], value: object) -> bool:
    if field.default is not MISSING:
        return bool(field.default == value)
    return field.default_factory is not MISSING and bool(field.default_factory() == value)


def digest(value: object) -> str:
    """sha256 (64 hex digits) of plain JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(stage: str, version: int, config: object, inputs: object) -> str:
    """Name of the artifact of a step: the first 32 hex digits of a sha256 over all that its content depends on."""
    return digest({"stage": stage, "version": version, "config": canonical(config), "inputs": canonical(inputs)})[:32]


def artifacts(inputs: object) -> Iterator[tuple[str, Artifact]]:
    """The artifacts in an inputs object, each with its dotted name."""
    return _leaves(Artifact, inputs, "")


def external_files(inputs: object) -> Iterator[tuple[str, ExternalFile]]:
    """The user's files in an inputs object, each with its dotted name."""
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
