"""Networks, objectives and decoding. `family_of(name)` is the table of families; torch is loaded only when one is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from models.family import Family

FAMILIES = ("stepwise", "dag", "lattice", "aggressive")
"""Each is a folder here whose `family.py` defines `FAMILY`."""


def family_of(name: str) -> Family:
    """The family called `name`. Raises ValueError for a name that is not in `FAMILIES`."""
    if name not in FAMILIES:
        raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {name!r}")
    return cast("Family", import_module(f"models.{name}.family").FAMILY)
