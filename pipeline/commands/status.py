"""`fewstep status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pipeline.commands.options import STORE, Json, RunName, StorePath
from pipeline.commands.output import print_json
from pipeline.run.progress import rows, show_status
from pipeline.run.run_directory import find_run


def status(
    name: RunName = "latest",
    store: StorePath = STORE,
    follow: Annotated[bool, typer.Option("--follow", help="Keep the table up to date until the run ends.")] = False,
    as_json: Json = False,
) -> None:
    """Show the progress of a run: its steps, rates and time left. Works while it is running, from any terminal."""
    run = find_run(store, name)
    if as_json:
        steps, state, gone = rows(run)
        print_json({"run": run.path.name, "status": state.status, "driver_gone": gone, "steps": [asdict(row) for row in steps]})
        return
    show_status(run.path, once=not follow)
