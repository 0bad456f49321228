"""`fewstep serve`: serve systems over HTTP, also those of a run in the store by the run's id."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fewstep.serve.command import parser, run
from pipeline.commands.options import STORE, StorePath

CONTEXT_SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}
"""All options but `--store` belong to the server (`fewstep.serve.command`), and so does the help."""


def serve(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIRECTORY|RUN[:SYSTEM]...",
            help="Directories of systems, and runs by id or directory; options: `fewstep serve --help`.",
        ),
    ] = None,
    store: StorePath = STORE,
) -> None:
    """Serve systems over HTTP, with a page that compares them."""
    parsed = parser().parse_args(arguments or [])
    parsed.systems = [located(store, location) for location in parsed.systems]
    raise typer.Exit(run(parsed))


def located(store: Path, location: str) -> str:
    """Return the location with the directory of a run in place of its id, if the store has such a run."""
    name, colon, system = location.partition(":")
    directory = store / "runs" / name
    return f"{directory}{colon}{system}" if name and (directory / "run.json").is_file() else location
