"""Gather what a report tells: rows of results, comparisons with the baseline, timings, samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.benchmark.timing import evenly_spaced
from stages.decoding.sentences import Sentence, best_in_order, read_sentences
from stages.errors import DataError
from stages.report.analyses import Analyses, analyse, perplexity
from stages.report.lead import Lead, lead_of
from stages.report.significance import draft_statistics, paired_bootstrap
from stages.score.tasks import SUMMARIZATION, TASKS, TRANSLATION, Task

if TYPE_CHECKING:
    from stages.report import Evaluated, ReportConfig, ReportInputs

NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF++",
    "ter": "TER",
    "tokenized_bleu": "tok. BLEU",
    "compound_split_bleu": "split BLEU",
    "otem": "OTEM",
    "utem": "UTEM",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "perplexity": "perplexity",
}
"""What metrics are called in reports, in the order of their columns."""
LOWER_IS_BETTER = {"ter", "otem", "utem", "perplexity"}


@dataclass(frozen=True)
class Row:
    """A system with one search on one test set."""

    system: str
    search: str
    test: str
    metrics: dict[str, dict[str, Any]]
    baseline: bool = False
    comparison: dict[str, float] | None = None
    """Of the task's metric with the baseline's (`stages.report.significance`)."""
    timing: dict[str, Any] | None = None
    """The entry's figures (`stages.benchmark.timing.summarise`)."""

    @property
    def entry(self) -> str:
        return f"{self.system}/{self.search}"

    def score(self, metric: str) -> float | None:
        """The metric's score, if it was computed."""
        return float(self.metrics[metric]["score"]) if metric in self.metrics else None


@dataclass(frozen=True)
class Sample:
    """One test sentence and what each entry made of it."""

    sentence: Sentence
    hypotheses: dict[str, str]
    """By entry."""


@dataclass(frozen=True)
class Findings:
    """All that a page shows of results; deterministic but for `Row.timing` and `benchmarks`."""

    rows: list[Row]
    samples: dict[str, list[Sample]]
    """By test set."""
    corpus: dict[str, Any]
    """`rows`, and of a training text also its ledger."""
    tests: dict[str, int]
    """Sentences of each test set."""
    benchmarks: dict[str, dict[str, Any]]
    """`records/benchmark.json` by test set."""
    task: Task = TRANSLATION
    leads: dict[str, Lead] = field(default_factory=dict)
    """Of summaries: what the first sentences score, by test set."""
    cut: dict[str, dict[str, int]] = field(default_factory=dict)
    """Where long sources are cut: `tokens.json` of the training text (`train`) and of each test set."""
    analyses: Analyses = field(default_factory=Analyses)

    def of(self, test: str) -> list[Row]:
        """The rows of one test set."""
        return [row for row in self.rows if row.test == test]

    def signatures(self) -> list[tuple[str, str]]:
        """(what it is called, signature) of each metric, twice only where rows were scored differently."""
        found = ((NAMES[name], row.metrics[name]["signature"]) for name in NAMES for row in self.rows if name in row.metrics)
        return list(dict.fromkeys(found))


def computed(rows: Sequence[Row]) -> list[str]:
    """The metrics that any of the rows has, in the order of their columns."""
    return [name for name in NAMES if any(name in row.metrics for row in rows)]


def gather(inputs: ReportInputs, config: ReportConfig) -> Findings:
    """Read all inputs. Raises DataError when the baseline was not evaluated, ArtifactError for hypotheses of other sentences."""
    entries = list(dict.fromkeys(f"{item.system}/{item.search}" for item in inputs.evaluated))
    if config.baseline not in entries:
        raise DataError(f"evaluation.baseline: expected one of {', '.join(entries) or 'no results'}, got {config.baseline!r}")
    benchmarks = {test: _read(timing.records / "benchmark.json") for test, timing in inputs.timings.items()}
    analyses = analyse(inputs, config)
    rows: list[Row] = []
    task, samples, leads = TASKS[config.task], {}, {}
    for test in dict.fromkeys(item.test for item in inputs.evaluated):
        items = [item for item in inputs.evaluated if item.test == test]
        sentences = read_sentences(inputs.tests[test].path)
        hypotheses = [best_in_order(item.hypotheses, sentences) for item in items]
        timings = benchmarks.get(test, {}).get("entries", {})
        found = _with_perplexity(_rows(items, timings, config.baseline), analyses.likelihood.get(test, {}))
        found = _compared(found, hypotheses, sentences, task.metric)
        rows += found
        if task is SUMMARIZATION:
            leads[test] = lead_of(sentences, found[0].metrics)
        names = [f"{item.system}/{item.search}" for item in items]
        samples[test] = [
            Sample(sentences[index], {name: texts[index] for name, texts in zip(names, hypotheses, strict=True)})
            for index in evenly_spaced(len(sentences), config.samples)
        ]
    tests = {test: _read(text.path / "text.json")["rows"] for test, text in inputs.tests.items()}
    cut = {name: _read(tokens.path / "tokens.json") for name, tokens in inputs.cut.items()}
    return Findings(rows, samples, _corpus(inputs.corpus.path), tests, benchmarks, task, leads, cut, analyses)


def _rows(items: Sequence[Evaluated], entries: Mapping[str, Any], baseline: str) -> list[Row]:
    """Return the rows of one test set; `baseline` is the `system/search` of one of them."""
    return [
        Row(
            item.system,
            item.search,
            item.test,
            _read(item.scores.path / "scores.json"),
            baseline=f"{item.system}/{item.search}" == baseline,
            timing=entries.get(f"{item.system}/{item.search}"),
        )
        for item in items
    ]


def _with_perplexity(rows: list[Row], likelihood: Mapping[str, dict[str, Any]]) -> list[Row]:
    """The rows with the perplexity of their systems, whatever the search."""
    return [
        replace(row, metrics={**row.metrics, "perplexity": perplexity(likelihood[row.system])}) if row.system in likelihood else row
        for row in rows
    ]


def _compared(rows: list[Row], hypotheses: list[list[str]], sentences: list[Sentence], metric: str) -> list[Row]:
    """The rows, each but the baseline compared with it by the metric as its signature says."""
    base = next((index for index, row in enumerate(rows) if row.baseline), None)
    if base is None or len(rows) == 1 or any(metric not in row.metrics for row in rows):
        return rows
    references = [sentence.references for sentence in sentences]
    score_of, statistics = draft_statistics(metric, rows[base].metrics[metric]["signature"], hypotheses, references)
    return [
        row if index == base else replace(row, comparison=paired_bootstrap(score_of, statistics[base], statistics[index]))
        for index, row in enumerate(rows)
    ]


def shortfalls(findings: Findings, minima: Mapping[str, float]) -> list[str]:
    """What the baseline failed to reach, one message a test set and metric."""
    messages = []
    for row in findings.rows:
        for metric, minimum in minima.items():
            score = row.score(metric)
            if row.baseline and minimum > 0 and (score is None or score < minimum):
                got = f"scores {'no' if score is None else f'{score:.2f}'} {NAMES[metric]}"
                messages.append(f"system {row.system} {got} on test {row.test}, expected at least {minimum:g}")
    return messages


def results_json(findings: Findings, config: ReportConfig) -> dict[str, Any]:
    """What is the same whenever the run is repeated."""
    ledger = {name: value for name, value in findings.corpus.items() if name not in ("samples", "files")}
    rows = [
        {"system": row.system, "search": row.search, "test": row.test, "metrics": row.metrics, "comparison": row.comparison}
        for row in findings.rows
    ]
    told = findings.analyses.to_json()
    result = {"title": config.title, "baseline": config.baseline, "corpus": ledger, "tests": findings.tests, "rows": rows}
    if findings.leads:
        result["leads"] = {test: asdict(lead) for test, lead in findings.leads.items()}
    return result | ({"analyses": told} if told else {})


def _corpus(directory: Path) -> dict[str, Any]:
    ledger = directory / "ledger.json"
    return {"rows": _read(directory / "text.json")["rows"], **(_read(ledger) if ledger.is_file() else {})}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
