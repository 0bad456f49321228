"""Bounds of config values, for `Annotated`: they are written beside a field's type, and checked where a config file is loaded.

pydantic calls `__get_pydantic_core_schema__`; the runtime itself does not need pydantic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

MAX_TOKENS = 1 << 16
"""Most tokens of a source or a target, and most vertices of a graph."""
MAX_WEIGHT = 1e6
"""Largest weight, distance or bonus in scores, which are sums of natural logarithms."""


@dataclass(frozen=True)
class Bound:
    """A bound of a value."""

    value: float
    constraint: ClassVar[str]
    """Name of the constraint in pydantic's schemas."""
    words: ClassVar[str] = ""
    """Words between "a number" and the value, for a bound of numbers."""

    @property
    def text(self) -> str:
        """The bound in words."""
        return f"{self.words} {self.value}"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound, for a bound of numbers."""
        raise NotImplementedError(self.constraint)

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema of the bare type with this constraint."""
        return {**handler(source), self.constraint: self.value}


class Ge(Bound):
    """At least `value`."""

    constraint = "ge"
    words = "of at least"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound."""
        return value >= self.value


class Gt(Bound):
    """More than `value`."""

    constraint = "gt"
    words = "above"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound."""
        return value > self.value


class Le(Bound):
    """At most `value`."""

    constraint = "le"
    words = "of at most"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound."""
        return value <= self.value


class Lt(Bound):
    """Less than `value`."""

    constraint = "lt"
    words = "below"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound."""
        return value < self.value


class MultipleOf(Bound):
    """A multiple of `value`."""

    constraint = "multiple_of"
    words = "that is a multiple of"

    def allows(self, value: float) -> bool:
        """Return whether a number is within the bound."""
        return value % self.value == 0


class MinLen(Bound):
    """At least `value` elements or characters."""

    constraint = "min_length"
