"""`fewstep init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.config.starter import Pair, write_starter

Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="Training text, one sentence a line.", show_default=False)]
Target = Annotated[Path, typer.Argument(metavar="TARGET", help="Its translations, line by line.", show_default=False)]
Files = Annotated[tuple[Path, Path] | None, typer.Option(metavar="SOURCE TARGET")]


def init(
    source: Source,
    target: Target,
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.")] = Path("mine"),
    languages: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Language codes; default: the endings of the files' names."),
    ] = None,
    validation: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE TARGET", help="Validation text; default: pairs taken from the training text."),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE TARGET", help="Test text; default: pairs taken from the training text."),
    ] = None,
) -> None:
    """Write a commented config for two files of parallel text, ready for `fewstep run`."""
    config = write_starter(
        Pair(source, target),
        output,
        languages=languages,
        validation=None if validation is None else Pair(*validation),
        test=None if test is None else Pair(*test),
    )
    print(f"written: {config}; look at it, then start it with: fewstep run {config}")
