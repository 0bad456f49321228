"""`fewstep run`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated

import typer

from fewstep.text.escape import escaped
from pipeline.commands.options import ConfigFile, Force, Overrides, Until
from pipeline.commands.plan import planned
from pipeline.commands.report import finished_report, print_report
from pipeline.errors import exit_code
from pipeline.plan.step import Plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from pipeline.store.manifest import isa_levels as manifest_levels
from pipeline.store.marker import require_writable


def isa_levels(plan: Plan, store: Store) -> dict[str, int]:
    """Return the instruction-set levels with which the finished steps of a plan were computed, with the number of steps of each."""
    manifests = [manifest for step in plan.steps if (manifest := store.manifest(step.directory)) is not None]
    counts = Counter(level for manifest in manifests for level in manifest_levels(manifest.environment))
    return dict(sorted(counts.items()))


def run(
    config: ConfigFile,
    until: Until = None,
    overrides: Overrides = None,
    force: Force = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Run the steps one after the other in this process, without Ray.")
    ] = False,
) -> None:
    """Run the pipeline in CONFIG. Steps already in the store are reused; an interrupted run continues."""
    settings, plan, store = planned(config, overrides, until)
    require_writable(store)
    outcome = execute.run(settings, plan, store, config_file=str(config), in_process=in_process, force=force or ())
    for step, reason in outcome.failed.items():
        print(escaped(f"{step} failed: {reason}"), file=sys.stderr)
    for step, reason in outcome.unmirrored.items():
        print(escaped(f"{step} was not mirrored: {reason}"), file=sys.stderr)
    if outcome.failed:
        print(f"logs are in {outcome.run.path / 'logs'}; repeat the command to continue", file=sys.stderr)
        raise typer.Exit(max(exit_code(error) for error in outcome.failed.values()))
    made = f"{len(outcome.executed)} steps made" if outcome.executed else "everything was in the store"
    fetched = f", {len(outcome.fetched)} fetched from the mirror" if outcome.fetched else ""
    print(f"run {outcome.run.path.name}: {made}{fetched}")
    if len(levels := isa_levels(plan, store)) > 1:
        counts = ", ".join(f"{level}: {number} steps" for level, number in levels.items())
        print(f"processors of different levels made the results ({counts}); they are reproducible on one level", file=sys.stderr)
    if finished_report(outcome.run) is not None:
        print_report(outcome.run)
    if outcome.unmirrored:
        print(f"the mirror lacks {len(outcome.unmirrored)} artifacts; repeat the command to send them", file=sys.stderr)
        raise typer.Exit(1)
