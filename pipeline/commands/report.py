"""`fewstep report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewstep.text.escape import escaped
from pipeline.commands.options import STORE, Json, RunName, StorePath
from pipeline.commands.output import print_json, print_table
from pipeline.errors import DataError
from pipeline.run.compare import rows_of
from pipeline.run.run_directory import Run, find_run
from pipeline.store.attempts import is_partial
from pipeline.store.files import read_json
from pipeline.store.records import step_directory


def report(
    name: RunName = "latest",
    store: StorePath = STORE,
    runs: Annotated[
        list[str] | None, typer.Option("--runs", metavar="RUN", help="One table over several runs; give it once for each run.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the results of a run and the path of its report, or one table over several runs."""
    if runs:
        _print_together([find_run(store, run) for run in runs], as_json)
        return
    found = find_run(store, name)
    directory = finished_report(found)
    if directory is None:
        raise DataError(f"{found.path.name}: expected a run with a finished report; finish it with the run command")
    if as_json:
        print_json(read_json(directory / "results.json"))
        return
    print_report(found)


def finished_report(run: Run) -> Path | None:
    """Return the directory of a run's finished report, or None."""
    for entry in run.spec["plan"]:
        directory = step_directory(run.store, entry)
        if entry["stage"] == "report" and not is_partial(directory):
            return directory
    return None


def print_report(run: Run) -> None:
    """Print the table of a run with a finished report, and the path of the page."""
    directory = finished_report(run)
    assert directory is not None
    text = (directory / "records/report.md").read_text(encoding="utf-8")
    print(escaped(f"\n{text}\nReport: {directory / 'records/report.html'}"))


def _print_together(runs: list[Run], as_json: bool) -> None:
    rows = [(run.path.name, row) for run in runs for row in rows_of(run)]
    if as_json:
        print_json([{"run": name, **row.to_json()} for name, row in rows])
        return
    metrics = list(dict.fromkeys(metric for _, row in rows for metric in row.scores))
    table = [
        (
            row.test,
            row.entry,
            name,
            *(f"{row.scores[metric]:.2f}" if metric in row.scores else "" for metric in metrics),
            "" if row.milliseconds is None else f"{row.milliseconds:.2f}",
        )
        for name, row in sorted(rows, key=lambda item: (item[1].test, item[1].entry, item[0]))
    ]
    print_table(("test", "system/search", "run", *metrics, "ms (p50)"), table)
