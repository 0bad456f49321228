"""Headline figures and result tables of the report page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.findings.results import LOWER_IS_BETTER, NAMES, Findings, Row, computed
from stages.report.page.markdown import machine, number, p_value
from stages.report.page.markup import Markup, element
from stages.score.tasks import Task


def tiles(findings: Findings) -> Markup:
    """Return the headline figures. Speeds are those of entries whose score is close to the best one (`OF_USE`)."""
    shown: list[tuple[str, str]] = []
    task = findings.task
    scored = [(score, row) for row in findings.rows if (score := row.score(task.metric)) is not None]
    if scored:
        top, best = max(scored, key=lambda pair: pair[0])
        shown.append((f"{top:.2f}", f"best {NAMES[task.metric]}: {best.entry} on {best.test}"))
    timed = [row for row in findings.rows if row.timing and _is_of_use(row, task, top if scored else 0.0)]
    if timed:
        fastest = min(timed, key=_latency)
        shown.append((f"{_latency(fastest):.2f} ms", f"lowest median latency a {task.unit}: {_with_score(fastest, task)}"))
        gain = max(timed, key=lambda row: _timing(row, "latency_ratio"))
        if _timing(gain, "latency_ratio") > 1:
            shown.append((f"{_timing(gain, 'latency_ratio'):.2f}×", f"largest speed-up: {_with_score(gain, task)}"))
        busiest = max(timed, key=lambda row: _timing(row, "sentences_per_second"))
        shown.append(
            (f"{_timing(busiest, 'sentences_per_second'):,.0f}", f"{task.units} a second in batches: {_with_score(busiest, task)}")
        )
    shown.append((f"{findings.corpus['rows']:,}", "training pairs after cleaning"))
    return element(
        "div",
        *(element("div", element("b", value), element("span", label), class_="tile") for value, label in shown),
        class_="tiles",
    )


OF_USE = 0.9
"""Fraction of the best score that an entry needs for its speed to be a headline figure."""


def _is_of_use(row: Row, task: Task, best: float) -> bool:
    score = row.score(task.metric)
    return score is None or score >= OF_USE * best


def _with_score(row: Row, task: Task) -> str:
    """Return the name of the entry with its score, since a speed means nothing without it."""
    score = row.score(task.metric)
    return row.entry if score is None else f"{row.entry} ({score:.1f} {NAMES[task.metric]})"


def _latency(row: Row) -> float:
    return _timing(row, "latency_ms")


def _timing(row: Row, name: str) -> float:
    return float(row.timing[name]["median"]) if row.timing else 0.0


def explanation(rows: Sequence[Row], benchmark: dict[str, Any] | None, task: Task) -> str:
    """Return the note above the table of one test set."""
    parts = ["The best value of each column is bold."]
    if any(row.comparison for row in rows):
        difference = f"Δ is the difference in {NAMES[task.metric]} to the baseline"
        parts.append(f"{difference} with the p of a paired bootstrap (1,000 resamples).")
    if benchmark:
        protocol = benchmark["protocol"]
        parts.append(
            f"Latency: one {task.unit} at a time; throughput: batches of {protocol['batch_size']}; "
            f"{protocol['sentences']} {task.units}, {protocol['rounds']} interleaved rounds, tokenisation included; "
            f"× compares with {protocol['baseline']}. Measured on {machine(benchmark['environment'])}."
        )
    return " ".join(parts)


@dataclass(frozen=True)
class Column:
    """A column of the results: its head, its value in a row, and the format of the value."""

    group: str
    head: str
    value: Callable[[Row], float | None]
    show: Callable[[float], str]
    sign: int = 1
    """1 if higher values are better, -1 if lower values are."""


def _columns(rows: Sequence[Row], task: Task) -> list[Column]:
    columns = [Column("quality", _heading(name), _score_of(name), _digits(2), _sign(name)) for name in computed(rows)]
    if any(row.timing for row in rows):
        columns += [
            Column("latency", "ms ↓", _timing_of("latency_ms"), _digits(2), -1),
            Column("latency", "p95 ↓", _timing_of("latency_ms", "p95"), _digits(2), -1),
            Column("latency", "×", _timing_of("latency_ratio"), lambda value: f"{value:.2f}×"),
            Column("throughput", task.per_second, _timing_of("sentences_per_second"), _digits(1)),
            Column("throughput", "×", _timing_of("throughput_ratio"), lambda value: f"{value:.2f}×"),
        ]
    return columns


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


def results_table(rows: Sequence[Row], task: Task) -> Markup:
    """Return a table of the quality of each entry, and of its speed if any was timed."""
    columns = _columns(rows, task)
    compared = any(row.comparison for row in rows)
    best = [
        max((column.sign * value for row in rows if (value := column.value(row)) is not None), default=None) for column in columns
    ]
    heads = [element("th", "system and search", class_="text"), *(element("th", column.head) for column in columns)]
    groups = [element("th", "", class_="blank")]
    for group in dict.fromkeys(column.group for column in columns):
        span = sum(column.group == group for column in columns) + (compared and group == "quality")
        groups.append(element("th", group, colspan=str(span)))
    where = 1 + next((index for index, name in enumerate(computed(rows), 1) if name == task.metric), 1)
    if compared:
        heads.insert(where, element("th", f"Δ {NAMES[task.metric]}"))
    body = []
    for row in rows:
        cells = [_name_cell(row)]
        for column, top in zip(columns, best, strict=True):
            value = column.value(row)
            emphasis = {"class_": "best"} if value is not None and column.sign * value == top and len(rows) > 1 else {}
            cells.append(element("td", "–" if value is None else column.show(value), **emphasis))
        if compared:
            cells.insert(where, _delta_cell(row))
        body.append(element("tr", *cells, **({"class_": "baseline"} if row.baseline else {})))
    head = element("thead", element("tr", *groups, class_="groups"), element("tr", *heads))
    return element("table", head, element("tbody", *body))


def _name_cell(row: Row) -> Markup:
    tag = element("span", "baseline", class_="tag") if row.baseline else None
    return element(
        "th", element("b", row.system), " ", element("span", row.search, class_="search"), tag, class_="text", scope="row"
    )


def _delta_cell(row: Row) -> Markup:
    if row.comparison is None:
        return element("td", element("span", "–", class_="faint"))
    delta, p = row.comparison["delta"], row.comparison["p"]
    mood = "faint" if p >= 0.05 else "up" if delta > 0 else "down"
    interval = f"95 % interval {row.comparison['low']:+.2f} to {row.comparison['high']:+.2f}"
    return element("td", element("span", f"{delta:+.2f}", class_=mood), " ", element("small", p_value(p)), title=interval)
