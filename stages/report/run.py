"""Run the report stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.errors import StageError
from stages.report import ReportConfig, ReportInputs
from stages.report.findings.results import gather, results_json, shortfalls
from stages.report.page.extras import collect
from stages.report.page.html import page
from stages.report.page.markdown import markdown


def run(inputs: ReportInputs, config: ReportConfig, context: StepContext) -> None:
    """Write `results.json`, `records/report.md`, `records/report.html` and the figures.

    Raises DataError when the baseline was not evaluated or perplexities cannot be compared. Raises StageError, after the page is
    written, when the baseline scores less than required.
    """
    findings = gather(inputs, config)
    failures = shortfalls(findings, {"bleu": config.min_bleu, "rougeL": config.min_rouge})
    extras = collect(inputs, findings, context.timeline())
    drawn = [*extras.speed.values(), *filter(None, [extras.curves]), *extras.spread]
    for figure in [*drawn, *(figure for part in findings.parts for figure in part.figures)]:
        context.write_text(context.records("figures", f"{figure.name}.svg"), figure.drawing.document())
    context.write_text(context.records("report.md"), markdown(config.title, findings, failures))
    context.write_text(context.records("report.html"), page(config.title, findings, extras, failures))
    context.write_json(context.directory / "results.json", results_json(findings, config))
    if failures:
        raise StageError(f"report: the check failed: {'; '.join(failures)}; the page is {context.records('report.html')}")
