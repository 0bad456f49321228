"""The live display of a run: bars on a terminal, one line for each event elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewstep.text.escape import escaped
from pipeline.run.progress import POLL_SECONDS, Row, duration, format_amount, format_eta, format_rate, make_console, rows
from pipeline.run.run_directory import Run
from pipeline.store.records import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

LINE_SECONDS = 10.0
"""Minimum time between two lines about the progress of a step."""


class LiveDisplay:
    """A thread that shows a run while it goes on. It only reads the run directory."""

    def __init__(self, run_dir: Path, *, console: Console | None = None, poll_seconds: float = POLL_SECONDS) -> None:
        self._run = Run(Path(run_dir).resolve())
        self._console = console or make_console(sys.stderr)
        self._poll_seconds = poll_seconds
        self._lines = EventLines(self._run, starts=not self._console.is_terminal)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="display", daemon=True)
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

    def _loop(self) -> None:
        while not self._over.wait(self._poll_seconds):
            with suppress(OSError):  # a transient failure of the file system ends neither the display nor the run
                self._poll(progress=True)

    def _poll(self, *, progress: bool) -> None:
        now = time.time()
        for line in self._lines.events():
            self._print(line)
        found, _, _ = rows(self._run, now)
        if self._live is not None:
            self._live.update(_bars(found if progress else []), refresh=True)
        elif progress:
            for line in self._lines.progress(found, now):
                self._print(line)

    def _print(self, line: str) -> None:
        self._console.print(escaped(line), markup=False, highlight=False, soft_wrap=True)


class EventLines:
    """Lines about a run since its last start, each event once. `starts=False` leaves out the starts of steps."""

    def __init__(self, run: Run, *, starts: bool = True) -> None:
        self._run = run
        self._starts = starts
        self._position = max((i for i, e in enumerate(run.events()) if e["event"] == "run_started"), default=0)
        self._attempts: dict[str, int] = {}
        self._reported: dict[str, tuple[float, Progress | None]] = {}
        """Time and progress of the last line about each step."""

    def events(self) -> Iterator[str]:
        """Yield a line for each event since the last call."""
        events = self._run.events()
        new, self._position = events[self._position :], max(self._position, len(events))
        for event in new:
            step = event.get("step", "")
            if event["event"] == "step_started":
                self._attempts[step] = self._attempts.get(step, 0) + 1
            line = event_line(event, self._attempts.get(step, 0))
            if line is not None and (self._starts or event["event"] != "step_started"):
                yield f"{_clock(event['time'])} {step} {line}"

    def progress(self, found: Iterable[Row], now: float) -> Iterator[str]:
        """Yield a line for each running step with new progress, at most every LINE_SECONDS."""
        for row in found:
            line = progress_line(row)
            if row.status != "running" or row.progress is None or line is None:
                continue
            moment, progress = self._reported.setdefault(row.step, (now - (row.seconds or 0.0), None))
            if now - moment >= LINE_SECONDS and row.progress != progress:
                self._reported[row.step] = (now, row.progress)
                yield f"{_clock(now)} {row.step} {line}"


def event_line(event: dict[str, Any], attempts: int) -> str | None:
    """Return the text of an event without time and step, or None for an event that is not shown.

    `attempts` is the number of attempts at the step so far.
    """
    error = event.get("error") or ""
    seconds = event.get("seconds")
    texts = {
        "step_waiting": f"waits: {error}", "step_started": "started" if attempts <= 1 else f"started (attempt {attempts})",
        "step_hit": "hit", "step_done": "done" if seconds is None else f"done in {duration(seconds)}",
        "step_failed": f"failed: {error}", "step_retried": f"retried (attempt {attempts + 1}): {error}",
        "step_skipped": f"skipped: {error}",
    }  # fmt: skip
    return texts.get(event["event"])


def progress_line(row: Row) -> str | None:
    """Return a step's progress, such as `350/700 updates (50 %), 4.2/s, ETA 1m23s`; None without a progress report."""
    if row.progress is None:
        return None
    share = f" ({100 * row.progress.done // row.progress.total} %)" if row.progress.total else ""
    eta = f"ETA {format_eta(row)}" if row.eta is not None else ""
    return ", ".join(filter(None, (format_amount(row) + share, format_rate(row), eta)))


def _bars(found: Iterable[Row]) -> Table:
    """Return a table of the running steps with progress bars."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for row in found:
        if row.status == "running":
            total = row.progress.total if row.progress else None
            bar = ProgressBar(total=total, completed=row.progress.done if row.progress else 0, width=24, pulse=not total)
            eta = f"ETA {format_eta(row)}" if row.eta is not None else ""
            amount = Text(format_amount(row))  # names and units are no markup
            table.add_row(Text(escaped(row.step)), bar, amount, format_rate(row), eta, duration(row.seconds or 0.0))
    return table


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
