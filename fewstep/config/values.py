"""Checks of configs that come from files without pydantic: their keys, types and bounds, by the annotations of dataclasses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fewstep.config.bounds import Bound
from fewstep.config.problems import KeyPath, Problem, refuse

T = TypeVar("T")

MAX_NUMBER = 1 << 62
"""Larger numbers do not fit the arrays that they are put into."""


def config_of(kind: type[T], values: object) -> T:
    """Return the config dataclass of which `dataclasses.asdict` gave `values`; missing keys have their defaults.

    Raises ValueError that names all keys that are unknown or missing, or all values of another type or out of bounds.
    """
    refuse(_key_problems(kind, values))
    config: Any = _build(kind, values)
    refuse(value_problems(config))
    pairs = {name: tuple(value) for name, value in vars(config).items() if isinstance(value, list)}
    built: T = replace(config, **pairs)  # without lists, so that it can be hashed
    return built


def value_problems(config: object) -> Iterator[Problem]:
    """Yield the values of a config dataclass that its annotations do not allow."""
    kind: Any = type(config)
    for name, hint in _hints(kind).items():
        yield from _problems((name,), hint, getattr(config, name))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _key_problems(kind: Any, values: object) -> Iterator[Problem]:
    if not isinstance(values, Mapping):
        yield Problem((kind.__name__,), "a mapping of keys to values", values)
        return
    hints = _hints(kind)
    for key in values:
        if key not in hints:
            yield Problem((str(key),), "a known key", values[key], tuple(hints))
    for field in fields(kind):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values:
            yield Problem((field.name,), "a value", "none")


def _build(kind: Any, values: Any) -> Any:
    hints = _hints(kind)
    return kind(**{name: _option_value(hints[name], value) for name, value in values.items()})


def _option_value(hint: Any, value: object) -> Any:
    """Return an option type for a mapping, and any other value unchanged."""
    option: Any = next((one for one in (hint, *get_args(hint)) if isinstance(one, type) and is_dataclass(one)), None)
    if option is None or not isinstance(value, Mapping):
        return value
    refuse(_key_problems(option, value))
    return _build(option, value)


def _problems(path: KeyPath, hint: Any, value: Any) -> Iterator[Problem]:
    """Yield the problems of one value."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        yield from _problems(path, arguments[0], value)
        bounds = [bound for bound in arguments[1:] if isinstance(bound, Bound)]
        if _is_number(value):
            yield from (Problem(path, f"a number {bound.text}", value) for bound in bounds if not bound.allows(value))
    elif origin in (Union, UnionType):
        if value is not None or NoneType not in arguments:
            yield from _problems(path, next(one for one in arguments if one is not NoneType), value)
    elif origin is Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            yield Problem(path, f"one of {', '.join(map(str, arguments))}", value)
    elif origin is tuple:
        yield from _sequence_problems(path, arguments, value)
    elif is_dataclass(hint):
        yield from _nested_problems(path, hint, value)
    elif not _fits(hint, value):
        yield Problem(path, {int: "an integer", float: "a finite number", bool: "true or false"}.get(hint, "text"), value)


def _sequence_problems(path: KeyPath, hints: tuple[Any, ...], value: Any) -> Iterator[Problem]:
    if not isinstance(value, list | tuple) or len(value) != len(hints):
        yield Problem(path, f"{len(hints)} values", value)
        return
    for number, (hint, one) in enumerate(zip(hints, value, strict=True)):
        yield from _problems((*path, number), hint, one)


def _nested_problems(path: KeyPath, kind: Any, value: object) -> Iterator[Problem]:
    if not isinstance(value, kind):
        yield Problem(path, f"the options of {kind.__name__}", value)
        return
    for problem in value_problems(value):
        yield Problem((*path, *problem.path), problem.expected, problem.got)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(hint: Any, value: Any) -> bool:
    if hint is float:
        return _is_number(value) and abs(value) <= sys.float_info.max
    return type(value) is hint and (hint is not int or abs(value) <= MAX_NUMBER)
