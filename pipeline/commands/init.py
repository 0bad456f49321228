"""`fewstep init`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.plan import planned
from pipeline.config.held_out import Pair
from pipeline.config.starter import write_starter
from pipeline.config.unit_files import UnitFiles
from pipeline.plan.demand import demands, processor_hours
from stages.errors import FewstepError

SOURCE = "Training text, one sentence a line; or a file of PO, TMX or XLIFF, or a folder of such files."
Source = Annotated[Path, typer.Argument(metavar="SOURCE", readable=False, help=SOURCE, show_default=False)]
TARGET = "Its translations, line by line; none for files that have both sides."
Target = Annotated[Path | None, typer.Argument(metavar="TARGET", readable=False, help=TARGET, show_default=False)]
Files = Annotated[tuple[Path, Path] | None, typer.Option(metavar="SOURCE TARGET")]


def init(
    source: Source,
    target: Target = None,
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.")] = Path("mine"),
    languages: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Language codes; default: those that the files' names or the files state."),
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
    """Write a commented config for parallel text, ready for `fewstep run`."""
    written = write_starter(
        UnitFiles.of(source) if target is None else Pair(source, target),
        output,
        languages=languages,
        validation=None if validation is None else Pair(*validation),
        test=None if test is None else Pair(*test),
    )
    try:
        settings, steps, _ = planned(written.config, (), None)
    except FewstepError:
        # The command can be repeated with the same directory.
        shutil.rmtree(output)
        raise
    trainings = demands(settings)
    for name, pairs in written.held_out.items():
        print(f"held out: {pairs:,} of {written.pairs:,} pairs for {name}, {written.way}")
    updates = sum(one.updates for one in trainings)
    print(
        f"a run has {len(steps.steps)} steps; {len(trainings)} of them train for {updates:,} updates in all, "
        f"about {processor_hours(trainings):,.1f} hours on this machine's processors, give or take a factor of two"
    )
    print(f"written: {written.config}; look at it, then start it with: fewstep run {written.config}")
