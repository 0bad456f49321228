"""Combinations of options that are not valid, as values: the same rule serves a config with places and a call without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Keys and list indices that lead to a value."""


@dataclass(frozen=True)
class Problem:
    """One value that is not valid together with the others of its object."""

    path: KeyPath
    """Fields that lead to the value, from the object that the rule belongs to."""
    expected: str
    got: object
    valid: tuple[str, ...] = ()
    """Names that are valid in this place."""

    def text(self) -> str:
        """Return the problem in words, for errors of callers that have no config file."""
        return f"{'.'.join(map(str, self.path))}: expected {self.expected}, got {self.got}"


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ValueError that names all `problems`; return if there are no problems."""
    if found := [problem.text() for problem in problems]:
        raise ValueError("; ".join(found))
