"""The table of families that the runtime can decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from fewstep.config.network import NetworkConfig
from fewstep.config.search import SearchConfig
from fewstep.decoding import Decoder


@dataclass(frozen=True)
class RuntimeFamily:
    """A family in the table: a package whose modules are imported when they are first needed.

    `config` defines `NETWORK` and `SEARCH`, the types of its networks and searches; `decoder` defines `load`.
    """

    package: str

    @property
    def network(self) -> type[NetworkConfig]:
        """Config of a network."""
        return cast("type[NetworkConfig]", import_module(f"{self.package}.config").NETWORK)

    @property
    def search(self) -> type[SearchConfig]:
        """Config of a search."""
        return cast("type[SearchConfig]", import_module(f"{self.package}.config").SEARCH)

    @property
    def load(self) -> Callable[[Path, Mapping[str, Any], SearchConfig], Decoder]:
        """`load(directory, description, search)`: the native decoder of a system directory, whose `system.json` holds the
        description. It is made ready for `search`. Raises `fewstep.system.format.BundleError`."""
        return cast("Callable[[Path, Mapping[str, Any], SearchConfig], Decoder]", import_module(f"{self.package}.decoder").load)


FAMILIES: dict[str, RuntimeFamily] = {
    "stepwise": RuntimeFamily("fewstep.families.stepwise"),
    "dag": RuntimeFamily("fewstep.families.dag"),
    "lattice": RuntimeFamily("fewstep.families.lattice"),
    "aggressive": RuntimeFamily("fewstep.families.aggressive"),
    "parallel": RuntimeFamily("fewstep.families.parallel"),
}
"""The table of families by name."""


def family_named(name: str) -> RuntimeFamily:
    """Return the entry of a family. Raises ValueError for a name that is not in the table."""
    if name not in FAMILIES:
        raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {name!r}")
    return FAMILIES[name]
