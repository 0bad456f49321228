"""Numbers at the borders of types, memory and floats, and the places in nested values that can hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

INTEGERS = [0, -1, 1, 2, 255, (1 << 16) - 1, 1 << 16, 10**6, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 53, 1 << 61, 1 << 62]
INTEGERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 31), -(1 << 63), 10**30]
FLOATS = [0.0, -0.0, 1e-320, 1e-45, 1e-6, 0.5, -0.5, 1e6, 3.4e38, 3.5e38, 1e308, -1e308]
FLOATS += [float("nan"), float("inf"), float("-inf")]
NUMBERS: list[Any] = [*INTEGERS, *FLOATS]
"""Values that take the place of a number."""
WORDS = ["", "x", "\0", "x" * 5000, "\ud800"]
SIZES = (1 << 16, 1 << 40)
"""Sizes of an array that holds no values."""

Path = tuple[Any, ...]
"""Keys and indices that lead to a value."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths to all numbers, words and arrays in nested mappings and sequences, and those to empty values."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, part in enumerate(value[:3]):
            yield from places(part, (*path, index))
    elif value is None or isinstance(value, bool | int | float | str | np.ndarray):
        yield path


def at(value: Any, path: Path) -> Any:
    """Return the value at a path."""
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: Path, part: Any) -> Any:
    """Return nested mappings and sequences with another value at a path; the others are shared."""
    if not path:
        return part
    key, *rest = path
    inner = replaced(value[key], tuple(rest), part)
    if isinstance(value, Mapping):
        return {**value, key: inner}
    changed = [*value[:key], inner, *value[key + 1 :]]
    return type(value)(changed) if isinstance(value, tuple) else changed


def without(value: Mapping[Any, Any], path: Path) -> Any:
    """Return nested mappings without the key at a path."""
    *above, key = path
    inner = {name: part for name, part in at(value, tuple(above)).items() if name != key}
    return replaced(value, tuple(above), inner)


def changes(value: Any) -> Iterator[Any]:
    """Yield what takes the place of a value: each number at a border, numbers beside that of a network, which no bound excludes, an
    array of another shape or of other numbers."""
    if isinstance(value, np.ndarray):
        yield from array_changes(value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield from WORDS
    else:
        yield from NUMBERS
        if isinstance(value, int):
            yield from (value - 1, value + 1, 2 * value)


def array_changes(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield arrays of the same type: of fewer, of more and of no rows in each dimension, of other dimensions, and with one other
    number at the beginning or at the end, or in all places."""
    yield array[..., None]
    yield array.reshape(-1)
    for axis in range(array.ndim):
        size = array.shape[axis]
        for count in {max(0, size - 1), size + 1, 2 * size, 0, 1} - {size}:
            yield np.resize(array, (*array.shape[:axis], count, *array.shape[axis + 1 :]))
        for count in SIZES if array.ndim > 1 else ():
            shape = [0] * array.ndim
            shape[axis] = count
            yield np.zeros(shape, array.dtype)
    if array.size == 0:
        return
    kind = array.dtype.kind
    limits = np.iinfo(array.dtype) if kind in "iu" else None
    for number in [] if kind == "b" else FLOATS if limits is None else [n for n in INTEGERS if limits.min <= n <= limits.max]:
        for index in (0, -1, slice(None)):
            changed = array.copy()
            with np.errstate(over="ignore"):
                changed.reshape(-1)[index] = number
            yield changed
