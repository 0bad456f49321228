"""The sections of the report page below its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.report.figures.canvas import inlined
from stages.report.findings.analysis_tables import analysis_tables
from stages.report.findings.results import NAMES, Findings, Sample
from stages.report.page.extras import Extras, Figure
from stages.report.page.markdown import cut_line, number
from stages.report.page.markup import Markup, count, element, join, table
from stages.score.tasks import Task


def figure_element(figure: Figure) -> Markup:
    """Return an inline figure with its caption."""
    svg = Markup(inlined(figure.svg, figure.name))
    return element("figure", element("div", svg, class_="scroll") if figure.wide else svg, element("figcaption", figure.caption))


def training(extras: Extras, task: Task) -> Markup | None:
    """Return a table of trainings and their curves; None if there are no trainings."""
    if not extras.trainings:
        return None
    heads = ["training", "updates", "epochs", f"best valid. {NAMES[task.metric]}", "best valid. loss", "weights averaged"]
    rows = [[name, *_training_cells(report, task.metric)] for name, report in extras.trainings.items()]
    parts = [element("h2", "Training"), table(heads, rows)]
    return join([*parts, figure_element(extras.curves) if extras.curves else None])


def _training_cells(report: Mapping[str, Any], metric: str) -> list[str]:
    validations = report.get("validations", [])
    losses = [float(found["loss"]) for found in validations]
    qualities = [float(found[metric]) for found in validations if found.get(metric) is not None]
    updates = f"{report.get('updates', 0):,}" + (" (stopped early)" if report.get("stopped_early") else "")
    averaged = ", ".join(f"{update:,}" for update in report.get("averaged", []))
    best = [number(max(qualities, default=None), 2), number(min(losses, default=None), 3)]
    return [updates, str(report.get("epochs", "-")), *best, averaged or "-"]


def corpus(findings: Findings) -> Markup:
    """Return the ledger of the training text: pairs read, dropped by reason, kept, and truncated."""
    title, ledger, cut = element("h2", "Training text"), findings.corpus, cut_line(findings)
    below = element("p", cut, class_="note") if cut else None
    if "pairs_in" not in ledger:
        return join([title, element("p", f"{ledger['rows']:,} pairs.", class_="note"), below])
    dropped = {reason: pairs for reason, pairs in ledger["dropped"].items() if pairs}
    total, largest = max(ledger["pairs_in"], 1), max(dropped.values(), default=1)
    rows: list[list[object]] = [[element("b", "read"), f"{ledger['pairs_in']:,}", "", "", ""]]
    for reason, pairs in dropped.items():
        bar = element("span", "", class_="bar", style=f"width:{9 * pairs / largest:.2f}rem")
        rows.append(
            [_words(reason), f"−{pairs:,}", f"{pairs / total:.2%}", bar, _examples(ledger.get("samples", {}).get(reason, []))]
        )
    rows.append([element("b", "kept"), element("b", f"{ledger['pairs_out']:,}"), f"{ledger['pairs_out'] / total:.2%}", "", ""])
    note = "A pair is counted under the first reason that applies."
    if unused := [_words(reason) for reason in ledger["dropped"] if reason not in dropped]:
        note += f" No pair was dropped for: {', '.join(unused)}."
    heads = ["", "pairs", "share", "", "examples"]
    return join([title, table(heads, rows, text=(0, 3, 4)), element("p", note, class_="note"), below])


def _examples(samples: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not samples:
        return None
    texts = [element("div", sample["source"], element("br"), sample["target"], class_="pair") for sample in samples]
    return element("details", element("summary", count(len(samples), "example")), *texts)


def _words(name: str) -> str:
    return name.replace("_", " ")


def samples(findings: Findings) -> Markup:
    """Return some sentences with their references and the hypotheses of all entries."""
    parts = [
        element("h2", f"{findings.task.outputs.capitalize()} side by side"),
        element(
            "p", "Words that are in no reference are ", element("mark", "marked"), "; they may still be correct.", class_="note"
        ),
    ]
    for test, samples in findings.samples.items():
        if len(findings.samples) > 1:
            parts.append(element("h3", test))
        parts += [_sample(sample) for sample in samples]
    return join(parts)


def _sample(sample: Sample) -> Markup:
    sentence = sample.sentence
    given = [element("dt", "source"), element("dd", sentence.source)]
    for reference in sentence.references:
        given += [element("dt", "reference"), element("dd", reference)]
    known = {_bare(word) for reference in sentence.references for word in reference.split()}
    made = []
    for entry, text in sample.hypotheses.items():
        made += [element("dt", entry), element("dd", _marked(text, known))]
    return element("div", element("dl", *given, class_="given"), element("dl", *made), class_="sample")


def _marked(text: str, known: set[str]) -> Markup:
    if not text.strip():
        return element("span", "(nothing)", class_="faint")
    words = text.split()
    if len(words) == 1 and len(known) == 1:  # a language without spaces
        return join([text])
    return join([word if not _bare(word) or _bare(word) in known else element("mark", word) for word in words], " ")


def _bare(word: str) -> str:
    return "".join(letter for letter in word.casefold() if letter.isalnum())


def tables(extras: Extras) -> Iterable[Markup]:
    """Yield the tables and figures of the records of steps."""
    for found in extras.tables:
        yield element("h2", found["title"])
        yield table(found["columns"], found["rows"], caption=found.get("caption"))
    for figure in extras.figures:
        yield figure_element(figure)


def analyses(findings: Findings, extras: Extras) -> Iterable[Markup]:
    """Yield the tables and figures of analyses."""
    for found in analysis_tables(findings.analyses):
        yield element("h2", found["title"])
        yield table(found["columns"], found["rows"], text=range(found["text_columns"]), caption=found["caption"])
    for figure in [*filter(None, [extras.agreement]), *extras.spread, *extras.by_length, *extras.diversity]:
        yield figure_element(figure)
    for title, figures in extras.dag_drawings.items():
        yield element("h2", title)
        yield from map(figure_element, figures)


def reproduction(findings: Findings, extras: Extras) -> Markup:
    """Return the signatures of metrics, the machines of timings and the fingerprints of steps."""
    lines = [[name, element("code", signature)] for name, signature in findings.signatures()]
    parts = [
        element("h2", "To reproduce"),
        element(
            "p",
            "A fingerprint covers the config of a step, its inputs and the version of its stage. On processors of one level "
            "of instructions, steps with equal fingerprints have equal results, bit for bit.",
            class_="note",
        ),
        table(["metric", "signature"], lines, text=(0, 1)),
    ]
    for test, benchmark in findings.benchmarks.items():
        where = [[name.replace("_", " "), _plain(value)] for name, value in benchmark["environment"].items()]
        parts.append(table([f"timed on {test}", "machine"], where, text=(0, 1)))
    levels = sorted({level for one in extras.provenance for level in one.isa})
    if len(levels) > 1:
        parts.append(
            element("p", f"The steps were computed on processors of different levels: {', '.join(levels)}.", class_="note")
        )
    rows = [[one.step, element("code", one.fingerprint[:16]), one.revision[:10], ", ".join(one.isa)] for one in extras.provenance]
    words = element("summary", f"Fingerprints of {count(len(rows), 'step')}")
    columns = ["step", "fingerprint", "source revision", "level of instructions"]
    return join([*parts, element("details", words, table(columns, rows, text=(0, 1, 2, 3)))])


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
