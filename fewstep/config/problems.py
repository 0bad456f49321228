"""Invalid combinations of options, as values, so that the same rules serve config files and calls without a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Keys and list indices that lead to a value."""


@dataclass(frozen=True)
class Problem:
    """A value that is not valid in combination with other values of its object."""

    path: KeyPath
    """Fields that lead to the value, from the object that the rule belongs to."""
    expected: str
    got: object
    valid: tuple[str, ...] = ()
    """Names that are valid in this place."""

    def text(self) -> str:
        """Return the problem as text, for errors of callers without a config file."""
        return f"{'.'.join(map(str, self.path))}: expected {self.expected}, got {self.got}"


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ValueError that names all `problems`; return if there are no problems."""
    if found := [problem.text() for problem in problems]:
        raise ValueError("; ".join(found))
