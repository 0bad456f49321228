"""The commands. What is heavy is imported inside the command that needs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.config.schema import RunConfig
    from pipeline.plan.step import Plan
    from pipeline.run.history import Run
    from pipeline.store.artifacts import Store

app = typer.Typer(
    help="From raw parallel text to translation models, their scores, timings and a report, in one resumable run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file (docs/reference/config.md).", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace one value, as in defaults.training.updates=100."),
]
Until = Annotated[str | None, typer.Option(metavar="STEP", help="Only this step, or all of this stage, and what they need.")]
RunName = Annotated[str, typer.Argument(metavar="[RUN]", help="Run id or run directory.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Load the system without comparing its files with their checksums.")]
StorePath = Annotated[Path, typer.Option("--store", metavar="DIRECTORY", help="Store that holds the run.")]
STORE = Path("store")


@app.command()
def run(config: ConfigFile, until: Until = None, overrides: Overrides = None, in_process: Annotated[
    bool, typer.Option("--in-process", help="Run the steps one after the other in this process, without Ray.")
] = False) -> None:  # fmt: skip
    """Make what CONFIG asks for. What the store holds is not made again; a killed run continues."""
    from pipeline.errors import exit_code
    from pipeline.run import execute

    settings, plan, store = _planned(config, overrides, until)
    outcome = execute.run(settings, plan, store, config_file=str(config), in_process=in_process)
    for step, reason in outcome.failed.items():
        print(f"{step} failed: {reason}", file=sys.stderr)
    for step, reason in outcome.unmirrored.items():
        print(f"{step} was not mirrored: {reason}", file=sys.stderr)
    if outcome.failed:
        print(f"logs are in {outcome.run.path / 'logs'}; repeat the command to continue", file=sys.stderr)
        raise typer.Exit(max(exit_code(error) for error in outcome.failed.values()))
    made = f"{len(outcome.executed)} steps made" if outcome.executed else "everything was in the store"
    fetched = f", {len(outcome.fetched)} fetched from the mirror" if outcome.fetched else ""
    print(f"run {outcome.run.path.name}: {made}{fetched}")
    if _report_directory(outcome.run) is not None:
        _show_report(outcome.run)
    if outcome.unmirrored:
        print(f"the mirror lacks {len(outcome.unmirrored)} artifacts; repeat the command to send them", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def submit(
    config: ConfigFile,
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="http://HEAD:8265; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS.")
    ] = None,
    until: Until = None,
    overrides: Overrides = None,
    with_extension: Annotated[
        bool, typer.Option("--with-extension", help="Send this machine's compiled extension along, for images without it.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the job is accepted.")] = False,
) -> None:
    """Run CONFIG as a job of a Ray cluster, from the current directory. Prints what the job prints; ends with its exit code."""
    from pipeline.commands.submit import run_command
    from pipeline.commands.submit import submit as submit_job
    from pipeline.config.load import load_config

    command = run_command(config, overrides or (), until)
    settings = load_config(config, overrides or ())
    code = submit_job(settings, command, until=until, address=address, with_extension=with_extension, follow=not no_wait)
    raise typer.Exit(code)


@app.command()
def plan(
    config: ConfigFile,
    until: Until = None,
    overrides: Overrides = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Tell the time and storage that each step may take, from what finished ones took.")
    ] = False,
) -> None:
    """Check CONFIG and list its steps: HIT if the store holds the result, FETCH if its mirror does, else MISS and why."""
    from pipeline.plan.explain import explain
    from pipeline.run.mirror_sync import mirrored

    settings, steps, store = _planned(config, overrides, until)
    if estimate:
        _show_estimate(settings, steps, store)
        return
    lines = explain(steps, store, mirrored(settings.store.mirror, steps, store))
    rows = [(line.step.name, line.step.fingerprint[:8], line.verdict, line.reason) for line in lines]
    _show_table(("step", "fingerprint", "", "reason"), rows)
    print(f"{sum(line.verdict == 'HIT' for line in lines)} of {len(lines)} steps are in {store.root}")


@app.command()
def status(name: RunName = "latest", store: StorePath = STORE, follow: Annotated[
    bool, typer.Option("--follow", help="Keep the table up to date until the run ends.")
] = False) -> None:  # fmt: skip
    """Show how far a run is: its steps, rows per second and time left. Works while it is going on, from any terminal."""
    from pipeline.run.history import find_run
    from pipeline.run.progress import show_status

    show_status(find_run(store, name).path, once=not follow)


@app.command()
def report(name: RunName = "latest", store: StorePath = STORE) -> None:
    """Print the results of a run and the path of its report."""
    from pipeline.errors import DataError
    from pipeline.run.history import find_run

    found = find_run(store, name)
    if _report_directory(found) is None:
        raise DataError(f"{found.path.name}: expected a run with a finished report; finish it with the run command")
    _show_report(found)


@app.command()
def translate(
    where: Annotated[str, typer.Argument(metavar="RUN|DIRECTORY", help="Run id or directory, or the directory of a system.")],
    system: Annotated[str | None, typer.Argument(metavar="[SYSTEM]", help="Name of a system of that run.")] = None,
    source: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="Text; default: standard input.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Default: standard output.")] = None,
    search: Annotated[
        str | None, typer.Option(metavar="SEARCH", help="greedy, beam5 or {beam: {beam_size: 4}}; default: the system's own.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda:0, or auto.")] = "auto",
    batch: Annotated[int, typer.Option(min=1, metavar="LINES", help="Lines translated together at most.")] = 64,
    no_verify: NoVerify = False,
    store: StorePath = STORE,
) -> None:
    """Translate text line by line, in order, as it comes; or summarise it, with a system that learnt to."""
    from pipeline.commands.translate import system_directory, translate_files

    directory = system_directory(store, where, system)
    translate_files(directory, source, output, search=search, device=device, batch=batch, verify=not no_verify)


@app.command()
def export(
    where: Annotated[str, typer.Argument(metavar="RUN|DIRECTORY", help="Run id or directory, or the directory of a system.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.", show_default=False)],
    system: Annotated[str | None, typer.Argument(metavar="[SYSTEM]", help="Name of a system of that run.")] = None,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="ctranslate2.")] = "ctranslate2",
    precision: Annotated[
        str, typer.Option(metavar="PRECISION", help="Of the weights: float32, int8, float16 or bfloat16.")
    ] = "float32",
    no_verify: NoVerify = False,
    store: StorePath = STORE,
) -> None:
    """Give a finished autoregressive system to another program: as a CTranslate2 model with its vocabularies."""
    from pipeline.commands.export import PRECISIONS
    from pipeline.commands.export import export as export_system
    from pipeline.commands.translate import system_directory
    from pipeline.errors import DataError

    if to != "ctranslate2" or precision not in PRECISIONS:
        raise DataError(f"export: expected --to ctranslate2 and --precision {', '.join(PRECISIONS)}, got {to} and {precision}")
    export_system(system_directory(store, where, system), output, precision, not no_verify)
    print(f"written: {output}; encode lines with source.spm, decode pieces with target.spm (docs/benchmark.md)")


@app.command()
def publish(name: RunName = "latest", store: StorePath = STORE) -> None:
    """Bring MLflow up to date with a run, finished or not."""
    from pipeline.config.schema import Tracking
    from pipeline.run.history import find_run
    from pipeline.tracking.mlflow_server import publish as publish_run

    found = find_run(store, name)
    tracking = found.spec["config"]["tracking"]
    settings = Tracking(uri=tracking["uri"], experiment=tracking["experiment"])
    print(f"published to {publish_run(found.path, settings)}")


@app.command()
def gc(
    store: StorePath = STORE,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; else it is only listed.")] = False,
    shards: Annotated[bool, typer.Option("--shards", help="Decoded shards too, which spare work when text is appended.")] = False,
) -> None:
    """List what the store can do without: artifacts that no run names, leftovers of crashes. What a living run uses stays."""
    from pipeline.errors import DataError
    from pipeline.store import garbage
    from pipeline.store.artifacts import Store

    if not store.is_dir():
        raise DataError(f"{store}: expected the directory of a store, got none; name it with --store")
    found = (garbage.remove if delete else garbage.collect)(Store(store), shards=shards)
    _show_table(("bytes", "path", "reason"), [(f"{item.bytes:,}", str(item.path), item.reason) for item in found])
    total = f"{sum(item.bytes for item in found) / 2**20:,.1f} MiB in {len(found)} places"
    print(f"{total} removed" if delete else f"{total} can go; give --delete to remove them")


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="Also check this config and its files.")] = None,
    store: Annotated[Path | None, typer.Option("--store", metavar="DIRECTORY", help="Default: that of CONFIG.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every artifact of the store anew.")] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="Check what run --in-process needs: all but Ray.")] = False,
) -> None:
    """Check this machine: versions, kernels, Ray, disk, memory, GPUs. Ends with exit code 1 if something needed is broken."""
    from pipeline.commands.doctor import examine

    checks = []
    for check in examine(config, store, verify=verify, in_process=in_process):
        checks.append(check)
        print(f"{check.verdict:<5} {check.name}: {check.text}", flush=True)
    if any(check.verdict == "FAIL" for check in checks):
        raise typer.Exit(1)


def _show_estimate(settings: RunConfig, steps: Plan, store: Store) -> None:
    from pipeline.plan.estimate import estimate, totals
    from pipeline.run.progress import duration

    def told(seconds: float | None, size: int | None) -> tuple[str, str]:
        return "?" if seconds is None else duration(seconds), "?" if size is None else f"{size / 2**20:,.1f} MiB"

    found = estimate(steps, store, {str(stage): asked for stage, asked in settings.cluster.resources.items()})
    rows = [
        (
            one.step.name,
            "HIT" if one.hit else "MISS",
            "" if one.rows is None else f"{one.rows:,}",
            *told(one.seconds, one.bytes),
            one.basis,
        )
        for one in found
    ]
    _show_table(("step", "", "rows", "time", "storage", "from"), rows)
    all_of = totals(found)
    time, size = told(all_of.seconds, all_of.bytes)
    print(f"in all {time} one after the other, {duration(all_of.longest)} along the longest chain of steps; {size}")
    if all_of.unknown:
        print(f"not estimated, for want of an earlier one in {store.root}: {', '.join(all_of.unknown)}")


def _planned(config: Path, overrides: Sequence[str] | None, until: str | None) -> tuple[RunConfig, Plan, Store]:
    from pipeline.config.load import load_config
    from pipeline.plan.wiring import build_plan
    from pipeline.store.artifacts import Store

    settings = load_config(config, overrides or ())
    store = Store(settings.store.path)
    return settings, build_plan(settings, store).until(until), store


def _report_directory(run: Run) -> Path | None:
    """The finished report of a run."""
    from pipeline.run.records import step_directory

    for entry in run.spec["plan"]:
        directory = step_directory(run.store, entry)
        if entry["stage"] == "report" and directory.suffix != ".partial":
            return directory
    return None


def _show_report(run: Run) -> None:
    directory = _report_directory(run)
    assert directory is not None
    text = (directory / "records/report.md").read_text(encoding="utf-8")
    print(f"\n{text}\nReport: {directory / 'records/report.html'}")


def _show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Colours and folding on a terminal, aligned columns elsewhere."""
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style={"HIT": "green", "FETCH": "green", "MISS": "yellow"}.get(cell, "")) for cell in row))
    Console().print(table)
