"""The tables of results and of differences from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.findings.comparisons import Comparison
from stages.report.findings.results import LOWER_IS_BETTER, NAMES, Findings, Row, computed
from stages.report.findings.significance import LEVEL
from stages.report.page.markdown import machine, p_value
from stages.report.page.markup import Markup, breakable, element, table
from stages.shared.figures.canvas import page_colour
from stages.shared.report_parts import number
from stages.shared.tasks import Task

Colours = Mapping[str, str]


def explanation(rows: Sequence[Row], benchmark: dict[str, Any] | None, task: Task) -> str:
    """Return the note above the table of one test set."""
    parts = ["The best value of each column is bold."]
    if benchmark:
        parts[0] += f" The best speed is that of the entries with at least 90 % of the best {NAMES[task.metric]}."
    compared = [row for row in rows if row.comparisons]
    if compared:
        names = ", ".join(NAMES[name] for name in compared[0].comparisons)
        parts.append(
            f"Δ is the difference in {NAMES[task.metric]} from the baseline. ▲ and ▼ mark entries that are significantly better "
            f"and worse than the baseline ({names}; p < {LEVEL:g} after Holm's correction for {len(compared)} entries)."
        )
    if benchmark:
        protocol = benchmark["protocol"]
        parts.append(
            f"Latency: one {task.unit} at a time; throughput: batches of {protocol['batch_size']}; "
            f"{protocol['sentences']} {task.units}, {protocol['rounds']} interleaved rounds, tokenisation included; "
            f"× compares with {protocol['baseline']}. Measured on {machine(benchmark['environment'])}."
        )
    return " ".join(parts)


def results_table(rows: Sequence[Row], task: Task, colours: Colours) -> Markup:
    """Return a table of the quality of each entry, and of its speed if any was timed."""
    columns = columns_of(rows, task)
    best = [{row.entry for row in column.best(rows, task)} if len(rows) > 1 else set() for column in columns]
    tested = {name for row in rows for name in row.comparisons}
    compared = bool(tested)
    where = 2 + next((index for index, column in enumerate(columns) if column.metric == task.metric), 0)
    heads = [element("th", "system and search", class_="text", scope="col"), *map(_head, columns)]
    if compared:
        heads.insert(where, element("th", f"Δ {NAMES[task.metric]}", scope="col", data_better="high"))
    body = []
    for row in rows:
        cells = [_name_cell(row, colours)]
        cells += [
            _cell(column, row, row.entry in found, column.metric in tested) for column, found in zip(columns, best, strict=True)
        ]
        if compared:
            cells.insert(where, _delta_cell(row.comparisons.get(task.metric)))
        body.append(element("tr", *cells, **({"class_": "baseline"} if row.baseline else {})))
    head = element("thead", _groups(columns, compared), element("tr", *heads))
    return element("table", head, element("tbody", *body), class_="results sortable")


def _head(column: Column) -> Markup:
    return element("th", column.head, scope="col", data_better="high" if column.sign > 0 else "low")


def _groups(columns: Sequence[Column], compared: bool) -> Markup:
    groups = [element("th", "", class_="blank")]
    for group in dict.fromkeys(column.group for column in columns):
        span = sum(column.group == group for column in columns) + (compared and group == "quality")
        groups.append(element("th", group, colspan=str(span), scope="colgroup"))
    return element("tr", *groups, class_="groups")


def _cell(column: Column, row: Row, best: bool, tested: bool) -> Markup:
    value = column.value(row)
    if value is None:
        return element("td", "–")
    attributes = {"data_value": f"{value:g}", **({"class_": "best"} if best else {})}
    mark = _mark(column.metric, row.comparisons.get(column.metric)) if tested else None
    return element("td", column.show(value), mark, **attributes)


def _name_cell(row: Row, colours: Colours) -> Markup:
    tag = element("span", "baseline", class_="tag") if row.baseline else None
    search = element("span", breakable(row.search), class_="search")
    return element("th", dot(row.system, colours), element("b", row.system), " ", search, tag, class_="text", scope="row")


def dot(system: str, colours: Colours) -> Markup:
    """Return a point in the colour of a system."""
    return element("span", "", class_="dot", style=f"background:{page_colour(colours[system])}", aria_hidden="true")


def _mark(metric: str, found: Comparison | None) -> Markup:
    """Return the mark of a tested metric, empty without a significant difference; its width is always the same."""
    if found is None or not found.significant:
        return element("span", "", class_="sig")
    better = (found.delta > 0) != (metric in LOWER_IS_BETTER)
    words = f"significantly {'better' if better else 'worse'} than the baseline, adjusted p {p_value(found.adjusted)}"
    return element(
        "span", "▲" if better else "▼", class_=f"sig {'up' if better else 'down'}", role="img", aria_label=words, title=words
    )


def _delta_cell(found: Comparison | None) -> Markup:
    if found is None:
        return element("td", element("span", "–", class_="faint"))
    mood = "up" if found.delta > 0 else "down"
    if not found.significant:
        mood = "faint"
    return element("td", element("span", f"{found.delta:+.2f}", class_=mood), data_value=f"{found.delta:g}")


def differences_table(rows: Sequence[Row], task: Task) -> Markup | None:
    """Return a folded table of all differences from the baseline with their p; None if nothing was compared."""
    compared = [row for row in rows if row.comparisons]
    base = next((row.entry for row in rows if row.baseline), "")
    if not compared:
        return None
    metrics = list(compared[0].comparisons)
    heads: list[object] = ["system and search"]
    for name in metrics:
        heads += [f"Δ {NAMES[name]}", *(["95 % interval"] if name == task.metric else []), "p", "adjusted"]
    lines = [[row.entry, *(cell for name in metrics for cell in _difference(row.comparisons[name]))] for row in compared]
    caption = (
        f"Differences from {base}. p: paired randomization test, exact where few sentences differ; adjusted: with Holm's "
        f"correction for {len(compared)} entries. Interval: paired bootstrap, 1,000 resamples."
    )
    return element("details", element("summary", "All differences with their p"), table(heads, lines, caption=caption))


def _difference(found: Comparison) -> list[str]:
    interval = [] if found.low is None or found.high is None else [f"{found.low:+.2f} to {found.high:+.2f}"]
    return [f"{found.delta:+.2f}", *interval, p_value(found.p), p_value(found.adjusted)]


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
    rows = findings.of(test)
    task = findings.task
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
