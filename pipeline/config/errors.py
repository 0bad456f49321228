"""Convert pydantic's errors to messages: the place, the expected value, the value found, and the nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fewstep.config.problems import KeyPath
from pipeline.config.systems import FROM
from pipeline.config.tree import Node, dotted, shown
from pipeline.config.types import inside, keys, metadata, strip

MAX_SHOWN = 20
"""Problems of a config that an error names."""
_EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "string_type": "text", "path_type": "a path", "bool_type": "true or false",
    "dataclass_type": "a map of keys", "dict_type": "a map of keys", "tuple_type": "a list", "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}", "less_than": "less than {lt}", "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}", "too_short": "at least {min_length} entry",
    "string_too_short": "at least {min_length} character", "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "letters, digits, _ and - only", "literal_error": "{expected}",
}  # fmt: skip


@dataclass(frozen=True)
class Complaint:
    """One problem of a config."""

    path: KeyPath
    expected: str
    """Empty: one of the `valid` keys."""
    got: str
    valid: tuple[str, ...] = ()
    """Names that are valid in this place."""

    def text(self) -> str:
        near = get_close_matches(self.got.strip("'"), self.valid, n=1)
        expected = self.expected or ("a known key" if near else f"one of the keys {', '.join(self.valid)}")
        return f"expected {expected}, got {self.got}" + (f"; did you mean {near[0]!r}?" if near else "")


def complaints(errors: Iterable[Mapping[str, Any]], whole: type) -> list[Complaint]:
    """Return one complaint per error of pydantic over the dataclass `whole`, with paths that contain no tags of choices."""
    return [_complaint(error, whole) for error in _genuine(list(errors))]


def _complaint(error: Mapping[str, Any], whole: type) -> Complaint:
    loc = tuple(error["loc"])
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        return _wrong_key(*_followed(whole, loc))
    path, _ = _followed(whole, loc[:-1] if loc[-1:] == ("[key]",) else loc)
    if kind in ("missing", "missing_argument"):
        return Complaint(path, "a value", "nothing")
    if kind == "union_tag_invalid":
        families = tuple(sorted(re.findall(r"<(\w+)>", error["ctx"]["expected_tags"].replace("<use>", ""))))
        got = error["ctx"]["tag"].strip("<>").removeprefix(FROM)
        if not got:
            return Complaint((*path, "from"), "the directory of a system (with system.json)", shown(error["input"]["from"]))
        return Complaint((*path, "family"), f"one of {', '.join(families)}", repr(got), families)
    got = shown(error["input"])
    if kind not in _EXPECTED:
        return Complaint(path, f"something else ({error['msg']})", got)
    context = {key: f"{v:g}" if isinstance(v, float) else v for key, v in error.get("ctx", {}).items()}
    valid = tuple(re.findall(r"'([^']*)'", str(context.get("expected", ""))))
    return Complaint(path, _EXPECTED[kind].format(**context), got, valid)


def _genuine(errors: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Leave out lists that are too short only because of invalid entries."""
    around = {error["loc"][:size] for error in errors for size in range(len(error["loc"]))}
    for error in errors:
        if not (error["type"] == "too_short" and error["loc"] in around):
            yield error


def _wrong_key(path: KeyPath, kinds: Iterable[Any]) -> Complaint:
    kinds = [strip(kind) for kind in kinds]
    valid = tuple(sorted(key for kind in kinds for key in keys(kind)))
    return Complaint(path, "", repr(path[-1]), valid)


def report(found: Sequence[Complaint], root: Node) -> list[str]:
    """Return `file:line: dotted.path: expected ..., got ...` for each place, in the order of the places: at most MAX_SHOWN."""
    lines: dict[tuple[str, str], Complaint] = {}
    for complaint in sorted(found, key=lambda c: c.path[:1] != ("defaults",)):
        node, rest = root.locate(complaint.path)
        where = (node.where, dotted((*node.path, *rest)))
        lines.setdefault(where, complaint)
    places = sorted(lines, key=_place)
    shown_lines = [": ".join(p for p in (*place, lines[place].text()) if p) for place in places[:MAX_SHOWN]]
    return shown_lines + ([f"and {len(places) - MAX_SHOWN:,} more problems"] if len(places) > MAX_SHOWN else [])


def _place(place: tuple[str, str]) -> tuple[str, int, str]:
    where, path = place
    file, _, number = where.rpartition(":")
    return (file, int(number), path) if number.isdigit() else (where, 0, path)


def _followed(whole: type, loc: KeyPath) -> tuple[KeyPath, list[Any]]:
    """Return the path that pydantic's `loc` stands for, and the types in which its last part was looked up.

    A part is a tag only if the types at this place are a choice with that tag: a key of the user's may look the same.
    """
    path: KeyPath = ()
    around: list[Any] = []
    here: list[Any] = [whole]
    for part in loc:
        if chosen := [strip(kind) for kind in here if any(getattr(x, "tag", None) == part for x in metadata(kind))]:
            here = chosen
        else:
            path, around, here = (*path, part), here, [inner for kind in here for inner in inside(kind, part)]
    return path, around
