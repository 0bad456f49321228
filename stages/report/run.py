"""Run the report stage."""

from __future__ import annotations

from stages.errors import StageError
from stages.report import ReportConfig, ReportInputs
from stages.report.extras import collect
from stages.report.page import page
from stages.report.results import gather, results_json, shortfalls
from stages.report.text import markdown
from stages.stage import Work


def run(inputs: ReportInputs, config: ReportConfig, work: Work) -> None:
    """Write `results.json`, `records/report.md`, `records/report.html` and the figures.

    Raises DataError when the baseline was not evaluated or perplexities cannot be compared, and StageError, once the page is
    written, when the baseline scores too little.
    """
    findings = gather(inputs, config)
    failures = shortfalls(findings, {"bleu": config.min_bleu, "rougeL": config.min_rouge})
    extras = collect(inputs, findings)
    single = filter(None, [extras.curves, extras.agreement])
    for figure in [*extras.speed.values(), *single, *extras.spread, *extras.by_length, *extras.diversity]:
        work.write_text(work.records("figures", f"{figure.name}.svg"), figure.svg)
    work.write_text(work.records("report.md"), markdown(config.title, findings, failures))
    work.write_text(work.records("report.html"), page(config.title, findings, extras, failures))
    work.write_json(work.directory / "results.json", results_json(findings, config))
    if failures:
        raise StageError(f"the check failed: {'; '.join(failures)}; the page is {work.records('report.html')}")
