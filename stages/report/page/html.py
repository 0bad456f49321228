"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

from stages.report.figures import figure_element
from stages.report.findings.results import Findings
from stages.report.findings.verdict import verdict_text
from stages.report.page.browser import browser
from stages.report.page.extras import Extras
from stages.report.page.markdown import lead_line, short_lines, unknown_line
from stages.report.page.markup import Markup, Section, breakable, count, element, section_element
from stages.report.page.results_table import differences_table, explanation, results_table, tiles
from stages.report.page.sections import analyses, corpus, reproduction, tables, training
from stages.report.page.timeline import run_timeline


def page(title: str, findings: Findings, extras: Extras, failures: Sequence[str]) -> str:
    """Return the content of `records/report.html`."""
    sections = list(_sections(findings, extras))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} · results"),
        element("style", Markup(_asset("page.css"))),
    )
    main = element("main", *map(section_element, sections), id="results")
    script = element("script", Markup(_asset("page.js")))
    body = element("body", _header(title, findings, failures), _navigation(sections), main, _footer(), script)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _sections(findings: Findings, extras: Extras) -> Iterator[Section]:
    yield from _results(findings, extras)
    yield from analyses(findings, extras)
    yield browser(findings)
    yield from filter(None, [training(extras, findings.task), corpus(findings, extras.distilled), run_timeline(extras.timeline)])
    yield from tables(extras)
    yield reproduction(findings, extras)


def _asset(name: str) -> str:
    return (files("stages.report.page") / "assets" / name).read_text(encoding="utf-8")


def _header(title: str, findings: Findings, failures: Sequence[str]) -> Markup:
    systems, tests = {row.system for row in findings.rows}, {row.test for row in findings.rows}
    sizes = ", ".join(f"{name}: {findings.tests[name]:,} {findings.task.units}" for name in sorted(tests))
    lede = (
        f"{count(len(systems), 'system')} with {count(len({row.entry for row in findings.rows}), 'search', 'searches')} on "
        f"{count(len(tests), 'test set')} ({sizes}), trained on {findings.corpus['rows']:,} pairs."
    )
    alarm = element("div", element("b", "The check failed."), " ", "; ".join(failures), ".", class_="alarm") if failures else None
    overline = element("p", f"fewstep · {findings.task.name} in few steps", class_="overline")
    verdict = verdict_text(findings)
    said = None if verdict is None else element("p", breakable(verdict), class_="lede verdict")
    return element("header", overline, element("h1", title), element("p", lede, class_="lede"), alarm, tiles(findings), said)


def _navigation(sections: Sequence[Section]) -> Markup:
    links = [element("li", element("a", section.short, href=f"#{section.id}")) for section in sections]
    return element("nav", element("ol", *links), aria_label="Sections")


def _results(findings: Findings, extras: Extras) -> Iterator[Section]:
    task = findings.task
    for test, size in findings.tests.items():
        rows = findings.of(test)
        if not rows:
            continue
        found = explanation(rows, findings.benchmarks.get(test), task)
        lines = [lead_line(findings, test), unknown_line(findings, test), *short_lines(findings, test)]
        notes = [f"{size:,} {task.units}.", found, *lines]
        parts = [
            element("p", " ".join(filter(None, notes)), class_="note"),
            element("div", results_table(rows, task, findings.colours), class_="scroll", tabindex="0"),
            differences_table(rows, task),
            figure_element(extras.speed[test]) if test in extras.speed else None,
        ]
        yield Section(f"results-{test}", f"Results on {test}", parts)


def _footer() -> Markup:
    scores, timings = element("code", "results.json"), element("code", "records/benchmark.json")
    text = ("Written by fewstep. Scores, comparisons and analyses are also in ", scores, ", and timings in ", timings)
    return element("footer", *text, " of the benchmark.")
