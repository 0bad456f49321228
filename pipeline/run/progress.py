"""The progress of a run, read from its directory alone, and the table of the command `status`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewstep.text.escape import escaped
from pipeline.run.run_directory import Run, RunState, StepState
from pipeline.store.records import Progress, progress_of, step_directory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

POLL_SECONDS = 0.5
PIPE_WIDTH = 160
"""Columns of a table that is not printed on a terminal."""
COLORS = {"done": "green", "hit": "green", "running": "cyan", "failed": "red", "interrupted": "red", "skipped": "yellow"}


@dataclass(frozen=True)
class Row:
    """The progress of one step."""

    step: str
    status: str
    """A status of `StepState`, or `interrupted` for a step that was running when its driver ended."""
    progress: Progress | None = None
    rate: float | None = None
    """Units per second in this attempt."""
    eta: float | None = None
    """Seconds left at that rate."""
    seconds: float | None = None
    """Seconds that the step took, or has been running for."""
    error: str | None = None


def rows(run: Run, now: float | None = None) -> tuple[list[Row], RunState, bool]:
    """Return a row for each step of the plan, the state of the run, and whether its driver is gone."""
    now = time.time() if now is None else now
    state = run.state()
    gone = run.driver_gone(state, now)
    ended = gone or state.status in ("stopped", "failed", "done")
    entries = {entry["step"]: entry for entry in run.spec["plan"]}
    return [_row(run, entries[s.step], s, now, ended=ended) for s in state.steps.values()], state, gone


def _row(run: Run, entry: dict[str, Any], step: StepState, now: float, *, ended: bool) -> Row:
    if step.status != "running":
        return Row(step.step, step.status, seconds=step.seconds, error=step.error)
    progress = progress_of(step_directory(run.store, entry))
    if progress is None or progress.attempt != step.attempts[-1]:  # it is of an earlier attempt
        progress = None
    if ended:
        return Row(step.step, "interrupted", progress, error=step.error)
    rate, eta = (progress.rate, progress.seconds_left) if progress else (None, None)
    return Row(step.step, "running", progress, rate, eta, now - (step.started or now), step.error)


def show_status(run_dir: Path, *, once: bool = True) -> None:
    """Print the progress of a run. With `once=False` update the table until the run ends or its driver is gone."""
    from rich.live import Live

    run = Run(Path(run_dir).resolve())
    console = make_console()
    found, state, gone = rows(run)
    if once:
        console.print(_table(found))
    else:
        with Live(_table(found), console=console, auto_refresh=False) as live:
            while state.status in ("running", "pending") and not gone:
                time.sleep(POLL_SECONDS)
                found, state, gone = rows(run)
                live.update(_table(found), refresh=True)
    console.print(escaped(_summary(run, state, found, gone=gone)), markup=False, highlight=False)


def _summary(run: Run, state: RunState, found: list[Row], *, gone: bool) -> str:
    done = sum(row.status in ("done", "hit") for row in found)
    text = f"{run.path.name}: {done} of {len(found)} steps are done{_faults(state)}"
    if gone:
        return f"{text}; its driver has ended: repeat the run command to continue"
    if state.status == "stopped":
        return f"{text}; it was stopped: repeat the run command to continue"
    if state.status == "failed":
        failed = ", ".join(row.step for row in found if row.status == "failed")
        return f"{text}; failed: {failed} (logs in {run.path / 'logs'}): repeat the run command to try again"
    if state.status == "done" and state.until:
        return f"{text}; it was to end with {state.until} (--until): repeat the run command without it to go on"
    return f"{text}; {'it is not started' if state.status == 'pending' else f'the run is {state.status}'}"


def _faults(state: RunState) -> str:
    """Return the number of retries and lost workers, and the work lost with them; empty without faults."""
    if not (state.retried or state.deaths):
        return ""
    return f" ({state.retried} retried, {state.deaths} workers replaced: {state.lost_seconds / 60:.1f} minutes of work lost)"


def make_console(file: Any = None) -> Console:
    """Return a console that is wide enough for tables wherever it prints to."""
    from rich.console import Console

    console = Console(file=file)
    return console if console.is_terminal else Console(file=file, width=PIPE_WIDTH)


def _table(found: Iterable[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("step", no_wrap=True)
    table.add_column("status")
    for column in ("progress", "rate", "ETA", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for row in found:
        status = Text(row.status, style=COLORS.get(row.status, ""))
        seconds = "" if row.seconds is None else duration(row.seconds)
        error = Text(escaped((row.error or "").partition("\n")[0]))
        amount = Text(format_amount(row))
        table.add_row(Text(escaped(row.step)), status, amount, format_rate(row), format_eta(row), seconds, error)
    return table


def duration(seconds: float) -> str:
    """Return a duration in words, such as `0.4s`, `42s`, `1m23s` or `2h05m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_amount(row: Row) -> str:
    """Return the finished part of a step, such as `350/700 updates`."""
    return escaped(f"{row.progress.done}/{row.progress.total} {row.progress.unit}") if row.progress else ""


def format_rate(row: Row) -> str:
    """Return the rate of a step, such as `4.2/s`."""
    if row.rate is None:
        return ""
    return f"{row.rate:.1f}/s" if row.rate < 100 else f"{row.rate:.0f}/s"


def format_eta(row: Row) -> str:
    """Return the time left for a step, such as `1m23s`."""
    return "" if row.eta is None else duration(row.eta)
