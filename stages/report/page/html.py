"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stages.report.findings.results import Findings
from stages.report.page.css import CSS
from stages.report.page.extras import Extras
from stages.report.page.markdown import lead_line
from stages.report.page.markup import Markup, count, element
from stages.report.page.results_table import explanation, results_table, tiles
from stages.report.page.sections import analyses, corpus, figure_element, reproduction, samples, tables, training


def page(title: str, findings: Findings, extras: Extras, failures: Sequence[str]) -> str:
    """Return the content of `records/report.html`."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} · results"),
        element("style", Markup(CSS)),
    )
    parts = [
        *_results(findings, extras),
        *analyses(findings, extras),
        training(extras, findings.task),
        corpus(findings),
        samples(findings),
        *tables(extras),
        reproduction(findings, extras),
    ]
    body = element("body", _header(title, findings, failures), element("main", *parts), _footer())
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(title: str, findings: Findings, failures: Sequence[str]) -> Markup:
    systems, tests = {row.system for row in findings.rows}, {row.test for row in findings.rows}
    sizes = ", ".join(f"{name}: {findings.tests[name]:,} {findings.task.units}" for name in sorted(tests))
    lede = (
        f"{count(len(systems), 'system')} with {count(len({row.entry for row in findings.rows}), 'search', 'searches')} on "
        f"{count(len(tests), 'test set')} ({sizes}), trained on {findings.corpus['rows']:,} pairs."
    )
    alarm = element("div", element("b", "The check failed."), " ", "; ".join(failures), ".", class_="alarm") if failures else None
    overline = element("p", f"fewstep · {findings.task.name} in few steps", class_="overline")
    return element("header", overline, element("h1", title), element("p", lede, class_="lede"), alarm, tiles(findings))


def _results(findings: Findings, extras: Extras) -> Iterable[Markup]:
    task = findings.task
    for test, size in findings.tests.items():
        rows = findings.of(test)
        if not rows:
            continue
        yield element("h2", f"Results on {test}")
        notes = [f"{size:,} {task.units}.", explanation(rows, findings.benchmarks.get(test), task), lead_line(findings, test)]
        yield element("p", " ".join(filter(None, notes)), class_="note")
        yield element("div", results_table(rows, task), class_="scroll")
        if test in extras.speed:
            yield figure_element(extras.speed[test])


def _footer() -> Markup:
    return element("footer", "Written by fewstep. The numbers are also in ", element("code", "results.json"), ".")
