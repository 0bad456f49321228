"""Bounds of config values, for `Annotated`: they are written beside a field's type, and checked where a config file is loaded.

pydantic calls `__get_pydantic_core_schema__`; the runtime itself does not need pydantic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["Bound", "Ge", "Gt", "Le", "Lt", "MinLen", "MultipleOf"]


@dataclass(frozen=True)
class Bound:
    """A bound of a value."""

    value: float
    constraint: ClassVar[str]
    """Name of the constraint in pydantic's schemas."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema of the bare type with this constraint."""
        return {**handler(source), self.constraint: self.value}


class Ge(Bound):
    """At least `value`."""

    constraint = "ge"


class Gt(Bound):
    """More than `value`."""

    constraint = "gt"


class Le(Bound):
    """At most `value`."""

    constraint = "le"


class Lt(Bound):
    """Less than `value`."""

    constraint = "lt"


class MultipleOf(Bound):
    """A multiple of `value`."""

    constraint = "multiple_of"


class MinLen(Bound):
    """At least `value` elements or characters."""

    constraint = "min_length"
