"""The sections of the report page on trainings, analyses, the records of steps, and reproduction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.report.figures import figure_element
from stages.report.findings.curves import Costs
from stages.report.findings.results import NAMES, Findings
from stages.report.page.extras import Extras
from stages.report.page.markdown import cut_line
from stages.report.page.markup import Markup, Section, count, element, table
from stages.shared.report_parts import Table, number
from stages.shared.tasks import Task


def training(extras: Extras, task: Task) -> Section | None:
    """Return a table of trainings and their curves; None if there are no trainings."""
    if not extras.trainings:
        return None
    heads = [
        "training", "updates", "epochs", f"best valid. {NAMES[task.metric]}", "best valid. loss", "weights averaged",
        "device-hours",
    ]  # fmt: skip
    rows = [
        [name, *_training_cells(report, task.metric), _hours(extras.costs.get(name))] for name, report in extras.trainings.items()
    ]
    return Section("training", "Training", [table(heads, rows), figure_element(extras.curves) if extras.curves else None])


def _hours(costs: Costs | None) -> str:
    return f"{max(costs.hours.values()):.3g} {costs.device}" if costs else "-"


def _training_cells(report: Mapping[str, Any], metric: str) -> list[str]:
    validations = report.get("validations", [])
    losses = [float(found["loss"]) for found in validations]
    qualities = [float(found[metric]) for found in validations if found.get(metric) is not None]
    passes = [float(found["tokens_per_pass"]) for found in validations if found.get("tokens_per_pass") is not None]
    updates = f"{report.get('updates', 0):,}" + (" (stopped early)" if report.get("stopped_early") else "")
    averaged = ", ".join(f"{update:,}" for update in report.get("averaged", []))
    quality = f"{max(passes):.2f} tokens a pass" if passes else number(max(qualities, default=None), 2)
    best = [quality, number(min(losses, default=None), 3)]
    return [updates, str(report.get("epochs", "-")), *best, averaged or "-"]


def tables(extras: Extras) -> Iterator[Section]:
    """Yield a section with the tables and figures of the records of steps."""
    parts: list[object] = []
    for found in extras.tables:
        parts += _table(found)
    parts += map(figure_element, extras.figures)
    if parts:
        yield Section("details", "Details of the steps", parts, "Details")


def analyses(findings: Findings, extras: Extras) -> Iterator[Section]:
    """Yield a section with the tables and figures of comparisons and analyses, and the sections that analyses have of their own."""
    parts: list[object] = [part for found in findings.tables() for part in _table(found)]
    parts += map(figure_element, [*extras.spread, *(figure for part in findings.parts for figure in part.figures)])
    if parts:
        yield Section("analyses", "Analyses", parts)
    for title, figures in (section for part in findings.parts for section in part.sections.items()):
        if figures:
            yield Section(title, title, list(map(figure_element, figures)))


def _table(found: Table) -> list[object]:
    text = range(found.text_columns)
    return [element("h3", found.title), table(found.columns, found.rows, text=text, caption=found.caption or None)]


def _origin(file: dict[str, str]) -> list[object]:
    """Return the cells for a file that was made elsewhere."""
    return [file["name"], file["from"], element("code", file["sha256"][:16]), file["licence"]]


def reproduction(findings: Findings, extras: Extras) -> Section:
    """Return the signatures of metrics, the machines of timings and the fingerprints of steps."""
    lines = [[name, element("code", signature)] for name, signature in findings.signatures()]
    note = (
        "A fingerprint covers the config of a step, its inputs and the version of its stage. On processors of one level of "
        "instructions, steps with equal fingerprints have equal results, bit for bit."
    )
    parts: list[object] = [element("p", note, class_="note"), table(["metric", "signature"], lines, (0, 1), sortable=False)]
    for test, benchmark in findings.benchmarks.items():
        where = [[name.replace("_", " "), _plain(value)] for name, value in benchmark["environment"].items()]
        parts.append(table([f"timed on {test}", "machine"], where, (0, 1), sortable=False))
    levels = sorted({level for one in extras.provenance for level in one.isa})
    if len(levels) > 1:
        text = f"The steps were computed on processors of different levels: {', '.join(levels)}."
        parts.append(element("p", text, class_="note"))
    rows = [[one.step, element("code", one.fingerprint[:16]), one.revision[:10], ", ".join(one.isa)] for one in extras.provenance]
    if elsewhere := [[one.step, *_origin(file)] for one in extras.provenance for file in one.origin]:
        parts.append(table(["step", "file", "from", "sha256", "licence"], elsewhere, (0, 1, 2, 3, 4), sortable=False))
    columns = ["step", "fingerprint", "source revision", "instruction-set level"]
    words = element("summary", f"Fingerprints of {count(len(rows), 'step')}")
    parts.append(element("details", words, table(columns, rows, (0, 1, 2, 3))))
    return Section("reproduce", "To reproduce", parts, "Reproduce")


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def corpus(findings: Findings, distilled: Mapping[str, Mapping[str, Any]]) -> Section:
    """Return the funnel; `distilled` holds the counts of distilled texts by step."""
    ledger = findings.corpus
    cut = cut_line(findings)
    below = element("p", cut, class_="note") if cut else None
    funnels = list(_texts(ledger, distilled))
    if "pairs_in" not in ledger:
        funnels.insert(0, element("p", f"{ledger['rows']:,} pairs.", class_="note"))
    note = _note(ledger)
    return Section("corpus", "Training text", [*funnels, element("p", note, class_="note") if note else None, below], "Corpus")


def _texts(ledger: Mapping[str, Any], distilled: Mapping[str, Mapping[str, Any]]) -> Iterator[Markup]:
    heads = ["", "pairs left", "share", "", "dropped", "examples"]
    if "pairs_in" in ledger:
        rows = list(_rows("read", ledger["pairs_in"], ledger["dropped"], "kept", ledger.get("samples", {})))
        yield table(heads, rows, text=(0, 3, 5), sortable=False)
    for step, found in distilled.items():
        dropped = {name: pairs for name, pairs in found.items() if name not in ("rows", "kept") and isinstance(pairs, int)}
        rows = list(_rows("decoded by the teacher", found["rows"], dropped, "usable targets", {}))
        yield table([step, *heads[1:]], rows, text=(0, 3, 5), sortable=False)


def _rows(
    first: str, total: int, dropped: Mapping[str, int], last: str, samples: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[list[object]]:
    """Yield the rows of a funnel: all pairs, those left after each reason that dropped some, and those kept."""
    left = total
    yield [element("b", first), f"{total:,}", "", _bar(left, 0, total), "", ""]
    for reason, pairs in dropped.items():
        if pairs:
            left -= pairs
            examples = _examples(samples.get(reason, []))
            yield [_words(reason), f"{left:,}", f"{left / total:.1%}", _bar(left, pairs, total), f"−{pairs:,}", examples]
    yield [element("b", last), element("b", f"{left:,}"), f"{left / max(total, 1):.1%}", _bar(left, 0, total), "", ""]


def _bar(left: int, dropped: int, total: int) -> Markup:
    """Return a bar of the pairs that are left, and behind it those that were dropped."""
    parts = [("left", left), ("dropped", dropped)]
    spans = [element("span", "", class_=kind, style=f"width:{100 * pairs / max(total, 1):.2f}%") for kind, pairs in parts if pairs]
    return element("span", *spans, class_="funnel", role="img", aria_label=f"{left:,} of {total:,} pairs")


def _note(ledger: Mapping[str, Any]) -> str:
    if "pairs_in" not in ledger:
        return ""
    unused = [_words(reason) for reason, pairs in ledger["dropped"].items() if not pairs]
    note = "A pair is counted under the first reason that applies."
    return f"{note} No pair was dropped for: {', '.join(unused)}." if unused else note


def _examples(samples: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not samples:
        return None
    texts = [element("div", sample["source"], element("br"), sample["target"], class_="pair") for sample in samples]
    return element("details", element("summary", count(len(samples), "example")), *texts)


def _words(name: str) -> str:
    return name.replace("_", " ")
