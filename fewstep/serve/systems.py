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
class Place:
    """The directory of a system and the name under which it is served (None: its own)."""

    directory: Path
    name: str | None = None


def find(locations: Sequence[str]) -> list[Place]:
    """Return the places of systems: each location is `DIR` or `NAME=DIR`. DIR may be a URL or a name on the Hub, whose files are
    copied. Raises ServeError for a location without a system."""
    return [_find(location) for location in locations]


def _find(location: str) -> Place:
    name, _, named = location.partition("=")
    try:
        if is_remote(location):
            return Place(local_directory(location))
        if named and is_remote(named):
            return Place(local_directory(named), name)
    except (BundleError, OSError) as error:
        raise ServeError(str(error)) from error
    if os.path.isfile(Path(location) / "system.json"):
        return Place(Path(location))
    if named and os.path.isfile(Path(named) / "system.json"):
        return Place(Path(named), name)
    try:
        check_permission(Path(named or location) / "system.json")
    except BundleError as error:
        raise ServeError(str(error)) from error
    raise ServeError(
        f"{location}: expected the directory of a system (with system.json), a URL, hf:ORG/NAME, or NAME=DIRECTORY; got "
        "none of them"
    )


def load_all(places: Sequence[Place], load: Load) -> dict[str, System]:
    """Return the systems by name, in order. Raises ServeError for equal names and for a directory that cannot be loaded."""
    systems: dict[str, System] = {}
    for place in places:
        try:
            system = load(place.directory)
        except (BundleError, OSError) as error:
            raise ServeError(str(error)) from error
        name = place.name or system.name
        if name in systems:
            raise ServeError(f"{place.directory}: expected different names, got {name} twice; name them with NAME=DIRECTORY")
        system.translate(["."])  # the first call allocates memory, which the first request should not wait for
        systems[name] = system
    return systems
