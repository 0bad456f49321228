"""The report as Markdown, narrow enough for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from stages.report.findings.results import LOWER_IS_BETTER, NAMES, Findings, Row, computed
from stages.report.findings.verdict import verdict_text
from stages.shared.environment import is_loaded
from stages.shared.report_parts import number
from stages.shared.tasks import Task


def markdown(title: str, findings: Findings, failures: Sequence[str]) -> str:
    """Return the content of `records/report.md`: tables, comparisons and conditions of each test set, analyses, signatures."""
    task = findings.task
    verdict = verdict_text(findings)
    above = [_corpus_line(findings.corpus), cut_line(findings), verdict and fill(verdict, 100)]
    parts = [f"# {title}", *filter(None, above)]
    for test, count in findings.tests.items():
        rows = findings.of(test)
        if not rows:
            continue
        parts += [f"## {test}: {count:,} {task.units}", results_table(rows, task)]
        lines = [lead_line(findings, test), unknown_line(findings, test), *short_lines(findings, test)]
        below = [*lines, _conditions(findings.benchmarks.get(test), task)]
        parts += list(filter(None, [*below, _comparisons(rows, task), _other_scores(rows, task)]))
    for found in findings.tables():
        parts += [f"## {found.title}", table(found.columns, found.rows, found.text_columns), fill(found.caption, 100)]
    parts.append(_signatures(findings))
    parts += [f"**Check failed:** {failure}" for failure in failures]
    return "\n\n".join(parts) + "\n"


def results_table(rows: Sequence[Row], task: Task) -> str:
    """Return a table of the quality of each entry, and of its speed if any was timed."""
    header = ["system", "search", *(NAMES[name] for name in task.shown)]
    timed = any(row.timing for row in rows)
    if timed:
        header += ["ms (p50)", "ms (p95)", "speed-up", task.per_second]
    lines = []
    for row in rows:
        scores = [number(row.score(name), 2) for name in task.shown]
        lines.append([row.system, row.search, *scores, *(_speed(row.timing) if timed else [])])
    return table(header, lines, text_columns=2)


def _speed(timing: dict[str, Any] | None) -> list[str]:
    if timing is None:
        return ["-"] * 4
    return [
        number(timing["latency_ms"]["median"], 2),
        number(timing["latency_ms"]["p95"], 2),
        f"{timing['latency_ratio']['median']:.2f}x",
        number(timing["sentences_per_second"]["median"], 1),
    ]


def p_value(p: float) -> str:
    """Format a p value with three digits."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """Return a Markdown table with aligned columns: the first `text_columns` to the left, the others to the right."""
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


def cut_line(findings: Findings) -> str | None:
    """Return a line with the number of truncated sources of each text; None if sources are not truncated."""
    if not findings.cut:
        return None
    counts = [f"{tokens['sources_cut']:,} of {tokens['rows']:,} in {name}" for name, tokens in findings.cut.items()]
    longest = next(iter(findings.cut.values()))["max_source_tokens"]
    return f"Sources truncated to {longest:,} tokens: {', '.join(counts)}."


def lead_line(findings: Findings, test: str) -> str | None:
    """Return a line with the scores of the lead baseline of a test set; None if there is no such baseline."""
    lead = findings.leads.get(test)
    if lead is None or not lead.scores:
        return None
    scores = ", ".join(f"{number(score, 2)} {NAMES[name]}" for name, score in lead.scores.items())
    first = "the first sentence" if lead.sentences == 1 else f"the first {lead.sentences} sentences"
    return f"Lead baseline ({first} of each document as its summary): {scores}."


def unknown_line(findings: Findings, test: str) -> str | None:
    """Return a line with the number of sources that hold unknown pieces; None without such sources."""
    counted = findings.unknown.get(test)
    if not counted or not counted["sentences"]:
        return None
    return (
        f"{counted['sentences']:,} of {findings.tests[test]:,} sources have characters that the vocabulary lacks and that are "
        f"lost: {' '.join(counted['first'])}."
    )


SHORT = 0.9
"""The brevity penalty below which a beam is reported."""


def short_lines(findings: Findings, test: str) -> list[str]:
    """Return a line for each exact beam whose brevity penalty is below `SHORT`, while that of the system's greedy search is not.

    Such a beam finds outputs that are more probable and too short (`docs/methods/interleaved.md`).
    """
    brevity = {row.entry: row.metrics.get("bleu", {}).get("brevity_penalty") for row in findings.of(test)}
    found = []
    for row in findings.of(test):
        own = brevity[row.entry]
        greedy = brevity.get(f"{row.system}/greedy")
        strategy, *options = row.search.split("-")
        exact = strategy == "beam" and not {"outer", "double"} & set(options)
        if exact and own is not None and greedy is not None and own < SHORT <= greedy:
            found.append(
                f"{row.entry} writes too little: its brevity penalty is {own:.2f}, that of greedy {greedy:.2f}. "
                "Exact search prefers short outputs here; use greedy, selection outer or a larger length penalty."
            )
    return found


def _conditions(benchmark: dict[str, Any] | None, task: Task) -> str | None:
    if benchmark is None:
        return None
    protocol = benchmark["protocol"]
    return (
        f"Times: {machine(benchmark['environment'])};\n"
        f"{protocol['sentences']} {task.units} in {protocol['rounds']} interleaved rounds, tokenisation included;\n"
        f"latency one {task.unit} at a time, throughput in batches of {protocol['batch_size']}; "
        f"speed-up over {protocol['baseline']}."
    )


def machine(environment: dict[str, Any]) -> str:
    """Return the machine and settings of a benchmark in one line, with a mark if other processes took much of the machine."""
    device = environment["cpu"] if environment["device"] == "cpu" else environment["device"]
    threads = f"{environment['threads']} thread{'' if environment['threads'] == 1 else 's'}"
    text = f"{device}, {threads}, {environment['precision']}, torch {environment['torch']}"
    if not is_loaded(environment):
        return text
    other = f"other work kept {environment['other_processors']:.1f} of {environment['cpus']} processors busy"
    return f"{text}; UNDER LOAD ({other}): time again on a quiet machine"


def _comparisons(rows: Sequence[Row], task: Task) -> str | None:
    base = next((row for row in rows if row.baseline), None)
    compared = [row for row in rows if row.comparisons]
    if base is None or not compared:
        return None
    title = (
        f"Difference from {base.entry} (interval by paired bootstrap; p by paired randomization,\n"
        f"corrected for {len(compared)} entries with Holm's method):"
    )
    return "\n".join([title, "", *(_comparison(row, task.metric) for row in compared)])


def _comparison(row: Row, metric: str) -> str:
    main = row.comparisons[metric]
    values = ", ".join(f"{NAMES[name]} {p_value(found.adjusted)}" for name, found in row.comparisons.items())
    interval = "" if main.low is None else f"95 % interval {main.low:+.2f} to {main.high:+.2f}; "
    return f"- {row.entry}: {main.delta:+.2f} {NAMES[metric]} ({interval}p: {values})"


def _other_scores(rows: Sequence[Row], task: Task) -> str | None:
    metrics = [name for name in computed(rows) if name not in task.shown]
    if not metrics:
        return None
    lines = [[row.system, row.search, *(number(row.score(name), 2) for name in metrics)] for row in rows]
    falling = ", ".join(NAMES[name] for name in metrics if name in LOWER_IS_BETTER)
    title = f"Other scores (lower {falling} is better):" if falling else "Other scores:"
    return f"{title}\n\n{table(['system', 'search', *(NAMES[name] for name in metrics)], lines, text_columns=2)}"


def _signatures(findings: Findings) -> str:
    return "\n".join(["Signatures:", "", *(f"- {name}: `{signature}`" for name, signature in findings.signatures())])
