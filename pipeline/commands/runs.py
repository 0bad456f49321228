"""`fewstep runs`."""

from __future__ import annotations

import time
from typing import Any

from pipeline.commands.options import STORE, Json, StorePath
from pipeline.commands.output import print_json, print_table
from pipeline.errors import ArtifactError
from pipeline.run.run_directory import Run, all_runs


def runs(store: StorePath = STORE, as_json: Json = False) -> None:
    """List the runs of a store, the latest first. A run that cannot be read is named, and left as it is."""
    found, problems = [], []
    for run in all_runs(store):
        try:
            found.append(_summary(run))
        except ArtifactError as error:
            problems.append(str(error))
    found.sort(key=lambda row: -(row["started"] or 0.0))
    if as_json:
        print_json(found)
    else:
        rows = [(row["run"], row["status"], f"{row['done']}/{row['steps']}", _date(row["started"]), row["config"]) for row in found]
        print_table(("run", "status", "steps", "started", "config"), rows)
    if problems:
        raise ArtifactError("\n".join(problems))


def _summary(run: Run) -> dict[str, Any]:
    state = run.state()
    spec = run.spec
    return {
        "run": run.path.name, "name": spec["name"], "status": "interrupted" if run.driver_gone(state) else state.status,
        "steps": len(state.steps), "done": sum(step.status in ("done", "hit") for step in state.steps.values()),
        "started": state.started, "config": spec.get("config_file", ""),
    }  # fmt: skip


def _date(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
