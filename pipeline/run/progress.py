"""How far a run is: a table on demand, a live display on a terminal, plain lines elsewhere; read from the run directory alone."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.run.history import Run, RunState, StepState
from pipeline.run.records import Progress, driver_gone, progress_of, step_directory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

POLL_SECONDS = 0.5
LINE_SECONDS = 10.0
"""At least this long between two plain lines about the progress of a step."""
PIPE_WIDTH = 160
COLORS = {"done": "green", "hit": "green", "running": "cyan", "failed": "red", "interrupted": "red", "skipped": "yellow"}


@dataclass(frozen=True)
class Row:
    """What is shown of one step."""

    step: str
    status: str
    """A status of `pipeline.run.history`, or `interrupted`: it was running when its driver went."""
    progress: Progress | None = None
    rate: float | None = None
    """Units a second within this attempt."""
    eta: float | None = None
    """Seconds left at that rate."""
    seconds: float | None = None
    """Seconds it took, or has been running for."""
    error: str | None = None


def rows(run: Run, now: float | None = None) -> tuple[list[Row], RunState, bool]:
    """A row for each step of the plan, the run's state, and whether its driver is gone."""
    now = time.time() if now is None else now
    state = run.state()
    gone = driver_gone(run, state, now)
    ended = gone or state.status in ("stopped", "failed", "done")
    entries = {entry["step"]: entry for entry in run.spec["plan"]}
    return [_row(run, entries[s.step], s, now, ended=ended) for s in state.steps.values()], state, gone


def _row(run: Run, entry: dict[str, Any], step: StepState, now: float, *, ended: bool) -> Row:
    if step.status != "running":
        return Row(step.step, step.status, seconds=step.seconds, error=step.error)
    progress = progress_of(step_directory(run.store, entry))
    if progress is None or progress.attempt != step.attempts[-1]:  # of an attempt before
        progress = None
    if ended:
        return Row(step.step, "interrupted", progress, error=step.error)
    rate, eta = (progress.rate, progress.seconds_left) if progress else (None, None)
    return Row(step.step, "running", progress, rate, eta, now - (step.started or now), step.error)


def duration(seconds: float) -> str:
    """`0.4s`, `42s`, `1m23s`, `2h05m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _amount(row: Row) -> str:
    return f"{row.progress.done}/{row.progress.total} {row.progress.unit}" if row.progress else ""


def _speed(row: Row) -> str:
    return "" if row.rate is None else f"{row.rate:.1f}/s" if row.rate < 100 else f"{row.rate:.0f}/s"


def _eta(row: Row) -> str:
    return "" if row.eta is None else duration(row.eta)


def show_status(run_dir: Path, *, once: bool = True) -> None:
    """Print how far a run is. With `once=False` the table is kept up to date until the run ends or its driver is gone."""
    from rich.live import Live

    run, console = Run(Path(run_dir).resolve()), _console()
    found, state, gone = rows(run)
    if once:
        console.print(_table(found))
    else:
        with Live(_table(found), console=console, auto_refresh=False) as live:
            while state.status in ("running", "pending") and not gone:
                time.sleep(POLL_SECONDS)
                found, state, gone = rows(run)
                live.update(_table(found), refresh=True)
    console.print(_verdict(run, state, found, gone=gone), markup=False, highlight=False)


def _verdict(run: Run, state: RunState, found: list[Row], *, gone: bool) -> str:
    name, counts = run.path.name, f"{sum(row.status in ('done', 'hit') for row in found)} of {len(found)} steps are done"
    counts += _faults(state)
    if gone:
        return f"{name}: {counts}; no driver is at work: repeat the run command to continue"
    if state.status == "stopped":
        return f"{name}: {counts}; it was stopped: repeat the run command to continue"
    if state.status == "failed":
        failed = ", ".join(row.step for row in found if row.status == "failed")
        return f"{name}: {counts}; failed: {failed} (logs in {run.path / 'logs'}): repeat the run command to try again"
    return f"{name}: {counts}; {'it is not started' if state.status == 'pending' else f'the run is {state.status}'}"


def _faults(state: RunState) -> str:
    """What was retried and lost, where something was."""
    if not (state.retried or state.deaths):
        return ""
    return f" ({state.retried} retried, {state.deaths} workers replaced: {state.lost_seconds / 60:.1f} minutes of work lost)"


def _console(file: Any = None) -> Console:
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
        table.add_row(row.step, status, _amount(row), _speed(row), _eta(row), seconds, Text(_first_line(row.error)))
    return table


def _bars(found: Iterable[Row]) -> Table:
    """The running steps only, with bars."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for row in found:
        if row.status == "running":
            total = row.progress.total if row.progress else None
            bar = ProgressBar(total=total, completed=row.progress.done if row.progress else 0, width=24, pulse=not total)
            eta = f"ETA {_eta(row)}" if row.eta is not None else ""
            table.add_row(row.step, bar, _amount(row), _speed(row), eta, duration(row.seconds or 0.0))
    return table


def _first_line(text: str | None) -> str:
    return text.splitlines()[0] if text else ""


def event_line(event: dict[str, Any], attempts: int) -> str | None:
    """What is said of an event, without time and step; None if nothing is. `attempts` counts those at the step so far."""
    error = event.get("error") or ""
    seconds = event.get("seconds")
    said = {
        "step_waiting": f"waits: {error}",
        "step_started": "started" if attempts <= 1 else f"started (attempt {attempts})",
        "step_hit": "hit",
        "step_done": "done" if seconds is None else f"done in {duration(seconds)}",
        "step_failed": f"failed: {error}",
        "step_retried": f"retried (attempt {attempts + 1}): {error}",
        "step_skipped": f"skipped: {error}",
    }
    return said.get(event["event"])


def progress_line(row: Row) -> str | None:
    """`350/700 updates (50 %), 4.2/s, ETA 1m23s`; None without progress."""
    if row.progress is None:
        return None
    share = f" ({100 * row.progress.done // row.progress.total} %)" if row.progress.total else ""
    eta = f"ETA {_eta(row)}" if row.eta is not None else ""
    return ", ".join(filter(None, (_amount(row) + share, _speed(row), eta)))


class Narrator:
    """Tells a run since its last start in plain lines, each thing once; `starts=False` leaves the starts of steps out."""

    def __init__(self, run: Run, *, starts: bool = True) -> None:
        self._run = run
        self._starts = starts
        self._told = max((i for i, e in enumerate(run.events()) if e["event"] == "run_started"), default=0)
        self._attempts: dict[str, int] = {}
        self._spoken: dict[str, tuple[float, Progress | None]] = {}

    def events(self) -> Iterator[str]:
        """What happened since the last call."""
        events = self._run.events()
        new, self._told = events[self._told :], max(self._told, len(events))
        for event in new:
            step = event.get("step", "")
            if event["event"] == "step_started":
                self._attempts[step] = self._attempts.get(step, 0) + 1
            line = event_line(event, self._attempts.get(step, 0))
            if line is not None and (self._starts or event["event"] != "step_started"):
                yield f"{_clock(event['time'])} {step} {line}"

    def progress(self, found: Iterable[Row], now: float) -> Iterator[str]:
        """How far the running steps are, each at most every LINE_SECONDS and only when it moved."""
        for row in found:
            line = progress_line(row)
            if row.status != "running" or row.progress is None or line is None:
                continue
            moment, told = self._spoken.setdefault(row.step, (now - (row.seconds or 0.0), None))
            if now - moment >= LINE_SECONDS and row.progress != told:
                self._spoken[row.step] = (now, row.progress)
                yield f"{_clock(now)} {row.step} {line}"


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


class LiveDisplay:
    """Shows a run to whoever started it, from a thread that only reads: bars on a terminal, else one line an event."""

    def __init__(self, run_dir: Path, *, console: Console | None = None, poll_seconds: float = POLL_SECONDS) -> None:
        self._run = Run(Path(run_dir).resolve())
        self._console = console or _console(sys.stderr)
        self._poll_seconds = poll_seconds
        self._narrator = Narrator(self._run, starts=not self._console.is_terminal)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="display", daemon=True)
        self._live: Live | None = None

    def __enter__(self) -> LiveDisplay:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(_bars([]), console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError):
            self._poll(progress=False)
        if self._live is not None:
            self._live.stop()

    def _work(self) -> None:
        while not self._over.wait(self._poll_seconds):
            with suppress(OSError):  # a file system that stutters ends neither the display nor the run
                self._poll(progress=True)

    def _poll(self, *, progress: bool) -> None:
        now = time.time()
        for line in self._narrator.events():
            self._say(line)
        found, _, _ = rows(self._run, now)
        if self._live is not None:
            self._live.update(_bars(found if progress else []), refresh=True)
        elif progress:
            for line in self._narrator.progress(found, now):
                self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
