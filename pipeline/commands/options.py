"""Arguments and options that several commands share."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from fewstep.commands.options import Option

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", readable=False, help="YAML file (docs/reference/config.md).", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace one value, as in defaults.training.updates=100."),
]
Until = Annotated[
    str | None, typer.Option(metavar="STEP", help="Only this step, or all steps of this stage, and those that they need.")
]
Force = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEP",
        help="Make this step, or all steps of this stage, again, and what depends on other content. Repeatable.",
    ),
]
RunName = Annotated[str, typer.Argument(metavar="[RUN]", help="Run id or run directory.")]
StorePath = Annotated[Path, typer.Option("--store", metavar="DIRECTORY", help="Store that holds the run.")]
SystemLocation = Annotated[
    str,
    typer.Argument(
        metavar="RUN|DIRECTORY",
        help="Run id or directory, or a system: its directory, its URL, or hf:ORG/NAME.",
        show_default=False,
    ),
]
SystemName = Annotated[str | None, typer.Argument(metavar="[SYSTEM]", help="Name of a system of that run.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Load files without comparing them with their checksums.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

STORE = Path("store")


def parameter(option: Option) -> Parameter:
    """Return an option of a command of the runtime as a parameter of a command of the pipeline."""
    declared = typer.Option(option.flag, metavar=option.metavar or None, help=option.help, min=option.min, readable=False)
    kind: Any = option.type if option.default is not None else option.type | None  # type: ignore[operator]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[kind, declared])
