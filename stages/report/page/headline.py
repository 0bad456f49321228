"""Columns of the results, their best values, and the headline figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stages.report.findings.results import LOWER_IS_BETTER, NAMES, Findings, Row, computed
from stages.report.page.markup import Markup, breakable, element
from stages.shared.report_parts import number
from stages.shared.tasks import Task

OF_USE = 0.9
"""Fraction of the best score of a test set that an entry needs for its speed to be the best one."""


@dataclass(frozen=True)
class Column:
    """A column of the results: its head, its value in a row, and the format of the value."""

    group: str
    head: str
    value: Callable[[Row], float | None]
    show: Callable[[float], str]
    sign: int = 1
    """1 if higher values are better, -1 if lower values are."""
    metric: str = ""
    """Name of the metric; empty for a speed."""

    def best(self, rows: Sequence[Row], task: Task) -> list[Row]:
        """Return the rows with the best value of one test set. A speed is the best of the rows whose score is of use."""
        compared = rows if self.metric else useful(rows, task)
        values = [(self.sign * value, row) for row in compared if (value := self.value(row)) is not None]
        top = max((value for value, _ in values), default=0.0)
        return [row for value, row in values if value == top]


def columns_of(rows: Sequence[Row], task: Task) -> list[Column]:
    """Return a column for each metric, and those of speeds if any row was timed."""
    columns = [Column("quality", _heading(name), _score_of(name), _digits(2), _sign(name), name) for name in computed(rows)]
    return [*columns, *speed_columns(task)] if any(row.timing for row in rows) else columns


def speed_columns(task: Task) -> list[Column]:
    """Return the columns of latency and throughput."""
    return [
        Column("latency", "ms ↓", _timing_of("latency_ms"), _digits(2), -1),
        Column("latency", "p95 ↓", _timing_of("latency_ms", "p95"), _digits(2), -1),
        Column("latency", "×", _timing_of("latency_ratio"), lambda value: f"{value:.2f}×"),
        Column("throughput", task.per_second, _timing_of("sentences_per_second"), _digits(1)),
        Column("throughput", "×", _timing_of("throughput_ratio"), lambda value: f"{value:.2f}×"),
    ]


def useful(rows: Sequence[Row], task: Task) -> list[Row]:
    """Return the rows of a test set whose score is at least `OF_USE` of the best one."""
    scores = [score for row in rows if (score := row.score(task.metric)) is not None]
    least = OF_USE * max(scores, default=0.0)
    return [row for row in rows if (score := row.score(task.metric)) is None or score >= least]


def tiles(findings: Findings) -> Markup:
    """Return the headline figures: best values of the table of the timed test set, else of the first one."""
    test = next(iter(findings.benchmarks), next(iter(findings.tests)))
    rows, task = findings.of(test), findings.task
    latency, _, gain, throughput, _ = speed_columns(task)
    texts = [
        (Column("", "", _score_of(task.metric), _digits(2), metric=task.metric), f"best {NAMES[task.metric]} on {test}", ""),
        (latency, f"lowest median latency a {task.unit}", " ms"),
        (gain, "largest speed-up", ""),
        (throughput, f"{task.units} a second in batches", ""),
    ]
    shown = []
    for column, label, unit in texts:
        best = next(iter(column.best(rows, task)), None)
        value = None if best is None else column.value(best)
        if best is None or value is None or (column is gain and value <= 1):
            continue
        name = best.entry if column.metric else _with_score(best, task)
        shown.append((f"{column.show(value)}{unit}", f"{label}: {name}"))
    shown.append((f"{findings.corpus['rows']:,}", "training pairs after cleaning"))
    return element(
        "div",
        *(element("div", element("b", value), element("span", breakable(label)), class_="tile") for value, label in shown),
        class_="tiles",
    )


def _with_score(row: Row, task: Task) -> str:
    """Return the name of the entry with its score, since a speed means nothing without it."""
    score = row.score(task.metric)
    return row.entry if score is None else f"{row.entry} ({score:.1f} {NAMES[task.metric]})"


def _heading(metric: str) -> str:
    return f"{NAMES[metric]} ↓" if metric in LOWER_IS_BETTER else NAMES[metric]


def _sign(metric: str) -> int:
    return -1 if metric in LOWER_IS_BETTER else 1


def _digits(digits: int) -> Callable[[float], str]:
    return lambda value: number(value, digits)


def _score_of(metric: str) -> Callable[[Row], float | None]:
    return lambda row: row.score(metric)


def _timing_of(name: str, part: str = "median") -> Callable[[Row], float | None]:
    return lambda row: float(row.timing[name][part]) if row.timing else None
