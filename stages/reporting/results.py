"""Gather what a report tells: rows of results, comparisons with the baseline, timings, samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.errors import DataError
from stages.metrics import Comparison, build_metric
from stages.reporting.analyses import Analyses, analyse, perplexity
from stages.reporting.significance import paired_bootstrap, sentence_statistics
from stages.sentences import Sentence, best_in_order, read_sentences
from stages.timing import evenly_spaced

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
    """Of BLEU with the baseline's (`stages.reporting.significance`)."""
    timing: dict[str, Any] | None = None
    """The entry's figures (`stages.timing.summarise`)."""

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
    systems = list(dict.fromkeys(item.system for item in inputs.evaluated))
    if config.baseline not in systems:
        raise DataError(f"evaluation.baseline: expected one of {', '.join(systems) or 'no systems'}, got {config.baseline!r}")
    benchmarks = {test: _read(timing.records / "benchmark.json") for test, timing in inputs.timings.items()}
    analyses = analyse(inputs, config)
    rows: list[Row] = []
    samples = {}
    for test in dict.fromkeys(item.test for item in inputs.evaluated):
        items = [item for item in inputs.evaluated if item.test == test]
        sentences = read_sentences(inputs.tests[test].path)
        hypotheses = [best_in_order(item.hypotheses, sentences) for item in items]
        entries = benchmarks.get(test, {}).get("entries", {})
        found = _with_perplexity(_rows(items, entries, config.baseline), analyses.likelihood.get(test, {}))
        rows += _compared(found, hypotheses, sentences)
        names = [f"{item.system}/{item.search}" for item in items]
        samples[test] = [
            Sample(sentences[index], {name: texts[index] for name, texts in zip(names, hypotheses, strict=True)})
            for index in evenly_spaced(len(sentences), config.samples)
        ]
    tests = {test: _read(text.path / "text.json")["rows"] for test, text in inputs.tests.items()}
    return Findings(rows, samples, _corpus(inputs.corpus.path), tests, benchmarks, analyses)


def _rows(items: Sequence[Evaluated], entries: Mapping[str, Any], baseline: str) -> list[Row]:
    """The rows of one test set. The first search of the baseline system is the baseline."""
    first = next((index for index, item in enumerate(items) if item.system == baseline), None)
    return [
        Row(
            item.system,
            item.search,
            item.test,
            _read(item.scores.path / "scores.json"),
            baseline=index == first,
            timing=entries.get(f"{item.system}/{item.search}"),
        )
        for index, item in enumerate(items)
    ]


def _with_perplexity(rows: list[Row], likelihood: Mapping[str, dict[str, Any]]) -> list[Row]:
    """The rows with the perplexity of their systems, whatever the search."""
    return [
        replace(row, metrics={**row.metrics, "perplexity": perplexity(likelihood[row.system])}) if row.system in likelihood else row
        for row in rows
    ]


def _compared(rows: list[Row], hypotheses: list[list[str]], sentences: list[Sentence]) -> list[Row]:
    """The rows, each but the baseline compared with it by BLEU as its signature says."""
    base = next((index for index, row in enumerate(rows) if row.baseline), None)
    if base is None or len(rows) == 1 or any("bleu" not in row.metrics for row in rows):
        return rows
    how = comparison_of(rows[base].metrics["bleu"]["signature"])
    metric: Any = build_metric("bleu", how)
    references = [sentence.references for sentence in sentences]
    statistics = [sentence_statistics(metric, texts, references) for texts in hypotheses]
    return [
        row if index == base else replace(row, comparison=paired_bootstrap(metric, statistics[base], statistics[index]))
        for index, row in enumerate(rows)
    ]


def comparison_of(signature: str) -> Comparison:
    """How sacreBLEU compared, from a signature such as `nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.6.0`."""
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    return Comparison(language="", tokenizer=parts["tok"], lowercase=parts["case"] == "lc")


def shortfalls(findings: Findings, minimum: float) -> list[str]:
    """What the baseline failed to reach, one message a test set."""
    messages = []
    for row in findings.rows:
        score = row.score("bleu")
        if row.baseline and minimum > 0 and (score is None or score < minimum):
            got = "scores no BLEU" if score is None else f"scores {score:.2f} BLEU"
            messages.append(f"system {row.system} {got} on test {row.test}, expected at least {minimum:g}")
    return messages


def results_json(findings: Findings, config: ReportConfig) -> dict[str, Any]:
    """What is the same whenever the run is repeated."""
    ledger = {name: value for name, value in findings.corpus.items() if name not in ("samples", "files")}
    rows = [
        {"system": row.system, "search": row.search, "test": row.test, "metrics": row.metrics, "comparison": row.comparison}
        for row in findings.rows
    ]
    analyses = {"analyses": told} if (told := findings.analyses.to_json()) else {}
    return {"title": config.title, "baseline": config.baseline, "corpus": ledger, "tests": findings.tests, "rows": rows, **analyses}


def _corpus(directory: Path) -> dict[str, Any]:
    ledger = directory / "ledger.json"
    return {"rows": _read(directory / "text.json")["rows"], **(_read(ledger) if ledger.is_file() else {})}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
