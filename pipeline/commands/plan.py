"""`fewstep plan`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fewstep.access import name_problem
from pipeline.commands.options import ConfigFile, Json, Overrides, Until
from pipeline.commands.output import print_json, print_table
from pipeline.config.load import automatic_values, load_config
from pipeline.config.schema import RunConfig
from pipeline.data.pin import unpinned
from pipeline.plan.demand import demands, summary
from pipeline.plan.estimate import estimate as estimated
from pipeline.plan.estimate import spending, totals
from pipeline.plan.explain import Explanation, explain
from pipeline.plan.packages import check_packages
from pipeline.plan.step import Plan, Step
from pipeline.plan.wiring import build_plan
from pipeline.run.admission import shortages
from pipeline.run.progress import duration
from pipeline.run.transfers import mirrored
from pipeline.store.artifacts import Store
from pipeline.store.marker import open_store
from stages.corpus import CorpusInputs
from stages.errors import DataError


def plan(
    config: ConfigFile,
    until: Until = None,
    overrides: Overrides = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Estimate each step's time and storage from finished steps.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Also check that the Ray cluster there can hold the missing steps (auto, HOST:PORT)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check CONFIG and list its steps: HIT if the store holds the result, FETCH if its mirror does, else MISS and why."""
    settings, steps, store = planned(config, overrides, until)
    lines = explain(steps, store, mirrored(settings.store.mirror, steps, store))
    if estimate:
        _print_estimate(settings, steps, store, as_json)
    else:
        _print_steps(config, overrides or (), settings, store, lines, as_json)
    if not as_json and (short := _paper_line(settings, steps)):
        print(short)
    if address is not None:
        _check_cluster(settings, address, [line.step for line in lines if line.verdict == "MISS"])


def _check_cluster(settings: RunConfig, address: str, missing: Sequence[Step]) -> None:
    """Raise DataError that names the steps which the cluster can never hold."""
    from pipeline.run.ray_cluster.connection import connect_ray

    machines = connect_ray(replace(settings.cluster, address=address))
    try:
        short = shortages(missing, {str(stage): asked for stage, asked in settings.cluster.resources.items()}, machines.nodes)
    finally:
        machines.close()
    if short:
        raise DataError("\n".join(f"{', '.join(names)}: {reason}" for reason, names in short.items()))
    print(f"the cluster at {address} can hold all of the {len(missing)} missing steps", file=sys.stderr)


def _print_steps(
    config: Path, overrides: Sequence[str], settings: RunConfig, store: Store, lines: Sequence[Explanation], as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {"step": line.step.name, "fingerprint": line.step.fingerprint, "verdict": line.verdict, "reason": line.reason}
                for line in lines
            ]
        )
        return
    print_table(
        ("step", "fingerprint", "", "reason"),
        [(line.step.name, line.step.fingerprint[:8], line.verdict, line.reason) for line in lines],
    )
    if loose := unpinned(settings):
        names = "; ".join(f"{key}: {', '.join(found)}" for key, found in loose.items())
        print(f"without a digest in the config: {names}; fewstep data pin {config} prints them with their digests")
    if automatic := automatic_values(config, overrides):
        print(automatic)
    for asked in spending(line.step for line in lines if line.verdict == "MISS"):
        print(asked)
    trainings = summary(demands(settings, {line.step.name for line in lines if line.verdict == "MISS"}), _on_gpus(settings))
    hits = sum(line.verdict == "HIT" for line in lines)
    print(f"{hits} of {len(lines)} steps are in {store.root}{f'; {trainings}' if trainings else ''}")


def _print_estimate(settings: RunConfig, steps: Plan, store: Store, as_json: bool) -> None:
    found = estimated(steps, store, {str(stage): asked for stage, asked in settings.cluster.resources.items()})
    asked = {one.step: one for one in demands(settings, {one.step.name for one in found if not one.hit})}
    if as_json:
        print_json(
            [
                {
                    "step": one.step.name,
                    "hit": one.hit,
                    "rows": one.rows,
                    "seconds": one.seconds,
                    "bytes": one.bytes,
                    "from": one.basis,
                    **(
                        {"updates": asked[name].updates, "gpu_hours": asked[name].gpu_hours}
                        if (name := one.step.name) in asked
                        else {}
                    ),
                }
                for one in found
            ]
        )
        return
    rows = [
        (
            one.step.name,
            "HIT" if one.hit else "MISS",
            "" if one.rows is None else f"{one.rows:,}",
            *_amounts(one.seconds, one.bytes),
            one.basis,
        )
        for one in found
    ]
    print_table(("step", "", "rows", "time", "storage", "from"), rows)
    all_steps = totals(found)
    time, size = _amounts(all_steps.seconds, all_steps.bytes)
    print(f"in all {time} one after the other, {duration(all_steps.longest)} along the longest chain of steps; {size}")
    if asked:
        print(summary(asked.values(), _on_gpus(settings)))
    if all_steps.unknown:
        print(f"not estimated, since {store.root} holds no earlier one: {', '.join(all_steps.unknown)}")


def _on_gpus(settings: RunConfig) -> bool:
    """Return whether trainings run on GPUs."""
    resources = settings.cluster.resources.get("train")
    return resources is not None and resources.gpus > 0


def _amounts(seconds: float | None, size: int | None) -> tuple[str, str]:
    return "?" if seconds is None else duration(seconds), "?" if size is None else f"{size / 2**20:,.1f} MiB"


def _paper_line(settings: RunConfig, steps: Plan) -> str | None:
    """Return a line with the number of training pairs beside that of the paper (`corpus.paper_pairs`); None without such a number,
    or with at least as many pairs. The files of the plan are counted before any filter."""
    expected = settings.corpus.paper_pairs
    step = next((step for step in steps.steps if step.name == "corpus:train"), None)
    if expected is None or step is None:
        return None
    found = _pairs(step.inputs, step.config.languages)
    if found >= expected:
        return None
    return f"corpus.train: this is {found:,} of the paper's {expected:,} pairs"


def _pairs(inputs: CorpusInputs, languages: tuple[str, str]) -> int:
    """Return the number of pairs. Raises DataError for a file that cannot be read."""
    from stages.corpus.readers import READERS

    files = vars(inputs.files)
    by_format = {kind: files["source" if kind == "lines" else kind] for kind in READERS}
    try:
        return sum(READERS[kind].rows(file, languages) for kind, some in by_format.items() for file in some)
    except OSError as error:
        raise DataError(f"corpus.train: {error}") from error


def planned(config: Path, overrides: Sequence[str] | None, until: str | None) -> tuple[RunConfig, Plan, Store]:
    """Load a config; return it with its plan, or the part that `until` names, and its store.

    Raises ConfigError for a wrong config, DataError for a missing file or package, an unknown step and a directory that cannot be a
    store.
    """
    if problem := name_problem(config.absolute()):
        raise DataError(f"{str(config)!a}: {problem}")
    settings = load_config(config, overrides or ())
    check_packages(settings)
    store = open_store(settings.store.path)
    return settings, build_plan(settings, store).until(until), store
