"""The systems of a server: where they are, and their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewstep.serve.settings import ServeError
from fewstep.system.format import BundleError
from fewstep.system.system import System

Load = Callable[[Path], System]
"""A function that loads the system in a directory. Raises BundleError."""
RUN_SCHEMA = 1
"""Version of `run.json` that is understood here; `pipeline.run.run_directory` writes it."""


@dataclass(frozen=True)
class Place:
    """The directory of a system and the name under which it is served (None: its own)."""

    directory: Path
    name: str | None = None


def find(locations: Sequence[str]) -> list[Place]:
    """Return the places of systems: each location is `[NAME=]DIR`, `RUN:SYSTEM` or `RUN`, which stands for all systems of a run.

    Raises ServeError for a location that holds no finished system.
    """
    return [place for location in locations for place in _find(location)]


def _find(location: str) -> Iterator[Place]:
    if (Path(location) / "system.json").is_file():
        yield Place(Path(location))
    elif (Path(location) / "run.json").is_file():
        yield from _of_run(Path(location), None)
    elif _before(location, ":") and (Path(_before(location, ":")) / "run.json").is_file():
        yield from _of_run(Path(_before(location, ":")), location.rpartition(":")[2])
    elif "=" in location and (Path(location.partition("=")[2]) / "system.json").is_file():
        name, _, directory = location.partition("=")
        yield Place(Path(directory), name)
    else:
        raise ServeError(
            f"{location}: expected the directory of a system (with system.json), NAME=DIRECTORY, or the directory of a run (with "
            "run.json), alone or as RUN:SYSTEM; found none of these"
        )


def _before(text: str, separator: str) -> str:
    return text.rpartition(separator)[0]


def _of_run(run: Path, name: str | None) -> Iterator[Place]:
    """Yield the place of the system `name` of a run directory, or of all its systems."""
    try:
        spec = json.loads((run / "run.json").read_text(encoding="utf-8"))
        names = list(spec["config"]["systems"]) if spec["schema"] == RUN_SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServeError(f"{run / 'run.json'}: expected the description of a run, got: {error!r}; the file is damaged") from error
    if names is None:
        raise ServeError(f"{run / 'run.json'}: expected schema {RUN_SCHEMA}, got {spec['schema']!r}; repeat the run command")
    if name is not None and name not in names:
        raise ServeError(f"{run}: expected one of its systems ({', '.join(names)}), got {name!r}")
    for wanted in names if name is None else [name]:
        directory = _artifact(run, spec, wanted)
        if not (directory / "system.json").is_file():
            raise ServeError(f"{run}: the system {wanted} is not finished; finish it with the run command")
        yield Place(directory, wanted)


def _artifact(run: Path, spec: Mapping[str, Any], name: str) -> Path:
    """Return the directory of a system in the store that the run lies in, which may have been copied or moved."""
    store = run.resolve().parent.parent
    for entry in spec["plan"]:
        if entry["step"] == f"system:{name}":
            return store / str(entry["stage"]) / str(entry["fingerprint"])
    pinned = Path(((spec["config"]["teacher"] or {}).get("from") or "") if "use" in spec["config"]["systems"][name] else "")
    try:
        return store / pinned.absolute().relative_to(spec["store"])
    except ValueError:
        return pinned


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
