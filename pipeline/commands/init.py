"""`fewstep init`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.planning import planned
from pipeline.config.held_out import Pair
from pipeline.config.starter import write_starter
from pipeline.plan.demand import demands, processor_hours
from stages.errors import FewstepError

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
    written = write_starter(
        Pair(source, target),
        output,
        languages=languages,
        validation=None if validation is None else Pair(*validation),
        test=None if test is None else Pair(*test),
    )
    try:
        settings, steps, _ = planned(written.config, (), None)
    except FewstepError:
        shutil.rmtree(output)
        raise
    trainings = demands(settings)
    for name, pairs in written.held_out.items():
        print(f"held out: {pairs:,} of {written.pairs:,} pairs for {name}, in blocks that pass the filters")
    updates = sum(one.updates for one in trainings)
    print(
        f"a run has {len(steps.steps)} steps; {len(trainings)} of them train for {updates:,} updates in all, "
        f"about {processor_hours(trainings):,.1f} hours on this machine's processors, give or take a factor of two"
    )
    print(f"written: {written.config}; look at it, then start it with: fewstep run {written.config}")
