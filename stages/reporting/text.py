"""The report as Markdown, narrow enough for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from stages.reporting.results import LOWER_IS_BETTER, NAMES, Findings, Row, computed

MAIN = ("bleu", "chrf")
"""Metrics that stand beside the speed of each entry."""


def markdown(title: str, findings: Findings, failures: Sequence[str]) -> str:
    """`records/report.md`: for each test set its tables, what it is compared with and the conditions; analyses; signatures."""
    parts = [f"# {title}", _corpus_line(findings.corpus)]
    for test, sentences in findings.tests.items():
        rows = findings.of(test)
        if not rows:
            continue
        parts += [f"## {test}: {sentences:,} sentences", results_table(rows)]
        parts += list(filter(None, [_conditions(findings.benchmarks.get(test)), _comparisons(rows), _other_scores(rows)]))
    for found in findings.analyses.tables():
        parts += [f"## {found['title']}", table(found["columns"], found["rows"], found["words"]), fill(found["caption"], 100)]
    parts.append(_signatures(findings))
    parts += [f"**Check failed:** {failure}" for failure in failures]
    return "\n\n".join(parts) + "\n"


def results_table(rows: Sequence[Row]) -> str:
    """Quality of each entry, and its speed where it was timed."""
    header = ["system", "search", *(NAMES[name] for name in MAIN)]
    timed = any(row.timing for row in rows)
    if timed:
        header += ["ms (p50)", "ms (p95)", "speed-up", "sent/s"]
    lines = []
    for row in rows:
        scores = [number(row.score(name), 2) for name in MAIN]
        lines.append([row.system, row.search, *scores, *(_speed(row.timing) if timed else [])])
    return table(header, lines, text_columns=2)


def _speed(timing: dict[str, Any] | None) -> list[str]:
    if timing is None:
        return ["-"] * 4
    return [
        number(timing["latency_ms"]["median"], 1),
        number(timing["latency_ms"]["p95"], 1),
        f"{timing['latency_ratio']['median']:.2f}x",
        number(timing["sentences_per_second"]["median"], 1),
    ]


def number(value: float | None, digits: int) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def p_value(p: float) -> str:
    """`p = 0.012`, or `p < 0.002` where no resample was as extreme."""
    return "p < 0.002" if p < 0.002 else f"p = {p:.3f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """A Markdown table whose columns line up; all but the first `text_columns` are set to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column < text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if column < text_columns else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def _corpus_line(corpus: dict[str, Any]) -> str:
    if "pairs_in" not in corpus:
        return f"Training text: {corpus['rows']:,} pairs."
    dropped = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in corpus["dropped"].items() if count)
    kept = f"Training text: {corpus['pairs_out']:,} of {corpus['pairs_in']:,} pairs"
    return f"{kept} (dropped: {dropped})." if dropped else f"{kept}."


def _conditions(benchmark: dict[str, Any] | None) -> str | None:
    if benchmark is None:
        return None
    protocol = benchmark["protocol"]
    return (
        f"Times: {machine(benchmark['environment'])};\n"
        f"{protocol['sentences']} sentences in {protocol['rounds']} interleaved rounds, tokenisation included;\n"
        f"latency one sentence at a time, throughput in batches of {protocol['batch_size']}; speed-up over {protocol['baseline']}."
    )


def machine(environment: dict[str, Any]) -> str:
    """Where times were measured, in one line."""
    device = environment["cpu"] if environment["device"] == "cpu" else environment["device"]
    threads = f"{environment['threads']} thread{'' if environment['threads'] == 1 else 's'}"
    return f"{device}, {threads}, {environment['precision']}, torch {environment['torch']}"


def _comparisons(rows: Sequence[Row]) -> str | None:
    base = next((row for row in rows if row.baseline), None)
    lines = [
        f"- {row.entry}: {row.comparison['delta']:+.2f} BLEU"
        f" (95 % interval {row.comparison['low']:+.2f} to {row.comparison['high']:+.2f}, {p_value(row.comparison['p'])})"
        for row in rows
        if row.comparison
    ]
    return "\n".join([f"Against {base.entry}, paired bootstrap:", "", *lines]) if base and lines else None


def _other_scores(rows: Sequence[Row]) -> str | None:
    metrics = [name for name in computed(rows) if name not in MAIN]
    if not metrics:
        return None
    lines = [[row.system, row.search, *(number(row.score(name), 2) for name in metrics)] for row in rows]
    falling = ", ".join(NAMES[name] for name in metrics if name in LOWER_IS_BETTER)
    title = f"Other scores (less {falling} is better):" if falling else "Other scores:"
    return f"{title}\n\n{table(['system', 'search', *(NAMES[name] for name in metrics)], lines, text_columns=2)}"


def _signatures(findings: Findings) -> str:
    return "\n".join(["Signatures:", "", *(f"- {name}: `{signature}`" for name, signature in findings.signatures())])
