"""`fewstep serve`: serve systems over HTTP, given by directory or as systems of runs."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from fewstep.commands.serve import OPTIONS
from fewstep.commands.serve import serve as serve_locations
from fewstep.serve.settings import ServeError
from fewstep.serve.systems import SystemLocation, find
from fewstep.system.remote import is_remote
from pipeline.commands.options import STORE, StorePath, parameter
from pipeline.commands.translate import system_directory
from pipeline.errors import DataError
from pipeline.run.run_directory import find_run

Locations = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]DIRECTORY|RUN[:SYSTEM]",
        help="Systems: directories, URLs, or hf:ORG/NAME; runs by id or directory, for one or all of "
        "their systems. The first is the default.",
        show_default=False,
    ),
]


def serve(systems: list[str], store: Path, **options: Any) -> None:
    """Serve systems over HTTP, with a page that shows their translations side by side."""
    raise typer.Exit(serve_locations([location for one in systems for location in located(store, one)], options))


def located(store: Path, location: str) -> Iterator[SystemLocation]:
    """Yield the location of a system, or those of all systems of a run. Raises DataError for an unknown run or system."""
    try:
        yield from find([location])
    except ServeError as error:
        if is_remote(location) or is_remote(location.partition("=")[2]):
            raise DataError(str(error)) from error
        run, _, system = location.partition(":")
        for name in [system] if system else _systems(store, run):
            yield SystemLocation(system_directory(store, run, name), name)


def _systems(store: Path, run: str) -> list[str]:
    try:
        return list(find_run(store, run).spec["config"]["systems"])
    except DataError as error:
        raise DataError(f"{error}; the directory of a system has a file system.json") from error


# The options of the runtime's command, each with its default and its help.
serve.__signature__ = Signature(  # type: ignore[attr-defined]
    [
        Parameter("systems", Parameter.KEYWORD_ONLY, annotation=Locations),
        Parameter("store", Parameter.KEYWORD_ONLY, default=STORE, annotation=StorePath),
        *map(parameter, OPTIONS),
    ]
)
