"""The types of config fields: keys of dataclasses, members of choices, and what `Annotated` adds."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def keys(kind: Any) -> dict[str, str]:
    """Return the field of a dataclass for each key in a file; empty for any other type."""
    return _keys(kind) if _has_fields(kind) else {}


def _has_fields(kind: Any) -> bool:
    """Say whether a type is a dataclass; unlike `is_dataclass`, without narrowing to a protocol that cannot be hashed."""
    return is_dataclass(kind)


@cache
def _keys(kind: Any) -> dict[str, str]:
    hints = _hints(kind)
    return {next((a for m in metadata(hints[f.name]) if (a := getattr(m, "alias", None))), f.name): f.name for f in fields(kind)}


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, each evaluated once: a config can have thousands of mistakes."""
    return get_type_hints(kind, include_extras=True)


def metadata(hint: Any) -> tuple[Any, ...]:
    """Return what `Annotated` adds to a type."""
    return getattr(hint, "__metadata__", ())


def strip(kind: Any) -> Any:
    """Return a type without what `Annotated` adds."""
    return strip(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def members(kind: Any) -> list[Any]:
    """Return the types of a choice except None; a list of one for any other type."""
    bare = strip(kind)
    if get_origin(bare) not in (Union, UnionType):
        return [kind]
    return [m for member in get_args(bare) if member is not NoneType for m in members(member)]


def inside(kind: Any, part: str | int) -> list[Any]:
    """Return the types of the value at a key or index of a value of type `kind`."""
    bare = strip(kind)
    if _has_fields(bare):
        name = keys(bare).get(str(part))
        return members(_hints(bare)[name]) if name else []
    if get_origin(bare) in (dict, tuple):
        return members(get_args(bare)[get_origin(bare) is dict])
    return []
