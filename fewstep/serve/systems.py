"""The systems of a server: where they are, and their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fewstep.serve.settings import ServeError
from fewstep.system.format import BundleError, check_permission
from fewstep.system.remote import is_remote, local_directory
from fewstep.system.system import System

Load = Callable[[Path], System]
"""A function that loads the system in a directory. Raises BundleError."""


@dataclass(frozen=True)
class SystemLocation:
    """The directory of a system and the name under which it is served (None: its own)."""

    directory: Path
    name: str | None = None


def find(locations: Sequence[str]) -> list[SystemLocation]:
    """Return the locations of systems: each is `DIR` or `NAME=DIR`. DIR may be a URL or a name on the Hub, whose files are
    copied. Raises ServeError for a location without a system."""
    return [_find(location) for location in locations]


def _find(location: str) -> SystemLocation:
    name, _, named = location.partition("=")
    try:
        if is_remote(location):
            return SystemLocation(local_directory(location))
        if named and is_remote(named):
            return SystemLocation(local_directory(named), name)
    except (BundleError, OSError) as error:
        raise ServeError(str(error)) from error
    if os.path.isfile(Path(location) / "system.json"):
        return SystemLocation(Path(location))
    if named and os.path.isfile(Path(named) / "system.json"):
        return SystemLocation(Path(named), name)
    try:
        check_permission(Path(named or location) / "system.json")
    except BundleError as error:
        raise ServeError(str(error)) from error
    raise ServeError(
        f"{location}: expected the directory of a system (with system.json), a URL, hf:ORG/NAME, or NAME=DIRECTORY; got "
        "none of them"
    )


def load_all(locations: Sequence[SystemLocation], load: Load) -> dict[str, System]:
    """Return the systems by name, in order. Raises ServeError for equal names and for a directory that cannot be loaded."""
    systems: dict[str, System] = {}
    for location in locations:
        try:
            system = load(location.directory)
        except (BundleError, OSError) as error:
            raise ServeError(str(error)) from error
        name = location.name or system.name
        if name in systems:
            raise ServeError(f"{location.directory}: expected different names, got {name} twice; name them with NAME=DIRECTORY")
        system.translate(["."])  # the first call allocates memory, which the first request should not wait for
        systems[name] = system
    return systems
