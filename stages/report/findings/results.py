"""Gather the results of a run: scores, comparisons with the baseline, timings and samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.artifacts import Artifact
from stages.errors import DataError
from stages.report import Evaluated, ReportConfig, ReportInputs
from stages.report.findings.comparisons import Comparison, compare
from stages.report.findings.mutual_information import compare_pairs, information_tables
from stages.report.findings.seeds import over_seeds, seed_tables
from stages.shared.decoding.sentences import Sentence, best_in_order, read_sentences
from stages.shared.figures.canvas import colours_of
from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Json, Part, Table, part_of
from stages.shared.scoring.rouge import ROUGE, f_measures, sentences, tokens_of
from stages.shared.tasks import SUMMARIZATION, TASKS, TRANSLATION, Task

NAMES = {
    "bleu": "BLEU", "chrf": "chrF++", "ter": "TER", "tokenized_bleu": "tok. BLEU", "compound_split_bleu": "split BLEU",
    "otem": "OTEM", "utem": "UTEM", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum",
    "comet": "COMET", "perplexity": "perplexity",
}  # fmt: skip
"""Display names of metrics, in the order of their columns."""
LOWER_IS_BETTER = {"ter", "otem", "utem", "perplexity"}


@dataclass(frozen=True)
class Row:
    """A system with one search on one test set."""

    system: str
    search: str
    test: str
    metrics: dict[str, dict[str, Any]]
    baseline: bool = False
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    """Comparisons with the baseline by metric; none of the baseline itself."""
    timing: dict[str, Any] | None = None
    """Timings of the entry (`stages.benchmark.timing.summarise`)."""

    @property
    def entry(self) -> str:
        """The name of the row: `system/search`."""
        return f"{self.system}/{self.search}"

    def score(self, metric: str) -> float | None:
        """Return the score of a metric; None if it was not computed."""
        return float(self.metrics[metric]["score"]) if metric in self.metrics else None


@dataclass(frozen=True)
class Outputs:
    """The sentences of a test set with the hypotheses of all entries."""

    sentences: list[Sentence]
    hypotheses: dict[str, list[str]]
    """Hypotheses by entry, in the order of the sentences."""


@dataclass(frozen=True)
class Findings:
    """All results of a run. They are deterministic except for `Row.timing`, `benchmarks` and `parts`."""

    rows: list[Row]
    outputs: dict[str, Outputs]
    """Sentences and hypotheses by test set."""
    corpus: dict[str, Any]
    """Number of `rows` of the training text, and its ledger if there is one."""
    tests: dict[str, int]
    """Number of sentences of each test set."""
    benchmarks: dict[str, dict[str, Any]]
    """`records/benchmark.json` by test set."""
    task: Task = TRANSLATION
    samples: int = 5
    """Number of sentences of each test set that are shown without scripts."""
    leads: dict[str, Lead] = field(default_factory=dict)
    """Lead baselines of summarization, by test set."""
    cut: dict[str, dict[str, int]] = field(default_factory=dict)
    """If long sources are truncated: `tokens.json` of the training text (`train`) and of each test set."""
    analyses: Json = field(default_factory=dict)
    """Results of analyses by name."""
    parts: list[Part] = field(default_factory=list)
    """The parts of the other stages."""
    colours: Colours = field(default_factory=dict)
    """The colour of each system and training in all figures and tables."""
    unknown: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By test set, the number of `sentences` with source pieces that a vocabulary lacks, and the `first` of these pieces."""
    seeds: list[dict[str, Any]] = field(default_factory=list)
    """Means and standard deviations over seeds (`stages.report.findings.seeds.over_seeds`)."""

    def of(self, test: str) -> list[Row]:
        """Return the rows of one test set."""
        return [row for row in self.rows if row.test == test]

    def tables(self) -> list[Table]:
        """Return the tables of comparisons and analyses."""
        found = information_tables(self.analyses.get("mutual_information", {}), self.analyses.get("likelihood", {}))
        return [*seed_tables(self.seeds, NAMES), *found, *(table for part in self.parts for table in part.tables)]

    def signatures(self) -> list[tuple[str, str]]:
        """Return pairs (name, signature) of metrics without repetition. A metric has several if rows were scored differently."""
        found = ((NAMES[name], row.metrics[name]["signature"]) for name in NAMES for row in self.rows if name in row.metrics)
        return list(dict.fromkeys(found))


def computed(rows: Sequence[Row]) -> list[str]:
    """Return the metrics that were computed for at least one row, in the order of their columns."""
    return [name for name in NAMES if any(name in row.metrics for row in rows)]


def gather(inputs: ReportInputs, config: ReportConfig) -> Findings:
    """Read all inputs.

    Raises DataError when the baseline was not evaluated, ArtifactError for hypotheses of other sentences than those of the text.
    """
    entries = list(dict.fromkeys(item.entry for item in inputs.evaluated))
    if config.baseline not in entries:
        raise DataError(f"evaluation.baseline: expected one of {', '.join(entries) or 'no results'}, got {config.baseline!r}")
    benchmarks = {test: _read(timing.records / "benchmark.json") for test, timing in inputs.timings.items()}
    colours = colours_of([*(item.system for item in inputs.evaluated), *inputs.trainings])
    parts = [part_of(stage, artifacts, colours) for stage, artifacts in _of_stages(inputs).items()]
    analyses = {name: found for part in parts for name, found in part.results.items()}
    analyses["mutual_information"] = compare_pairs(config.system_pairs, analyses.get("likelihood", {}))
    rows: list[Row] = []
    task = TASKS[config.task]
    outputs = {}
    leads = {}
    unknown = {}
    for test in dict.fromkeys(item.test for item in inputs.evaluated):
        items = [item for item in inputs.evaluated if item.test == test]
        sentences = read_sentences(inputs.tests[test].path)
        hypotheses = [best_in_order(item.hypotheses, sentences) for item in items]
        timings = benchmarks.get(test, {}).get("entries", {})
        found = _rows(items, timings, config.baseline)
        for part in parts:
            found = _with_metrics(found, part.metrics.get(test, {}))
        rows += _compared(found, hypotheses, sentences, task.metric)
        if task is SUMMARIZATION:
            leads[test] = lead_of(sentences, found[0].metrics)
        unknown[test] = max(map(_unknown, items), key=lambda counted: int(counted["sentences"]))
        outputs[test] = Outputs(sentences, {item.entry: texts for item, texts in zip(items, hypotheses, strict=True)})
    tests = {test: _read(text.path / "text.json")["rows"] for test, text in inputs.tests.items()}
    cut = {name: _read(tokens.path / "tokens.json") for name, tokens in inputs.cut.items()}
    corpus = _corpus(inputs.corpus.path)
    seeds = over_seeds(rows, config.seeds)
    return Findings(
        rows, outputs, corpus, tests, benchmarks, task, config.samples, leads, cut, analyses, parts, colours, unknown, seeds
    )


def _of_stages(inputs: ReportInputs) -> dict[str, Artifacts]:
    """Return the artifacts of the stages that have a part in the report; those of entries depend on the search."""
    hypotheses: dict[str, dict[str, Artifact]] = {}
    scores: dict[str, dict[str, Artifact]] = {}
    for item in inputs.evaluated:
        hypotheses.setdefault(item.test, {})[item.entry] = item.hypotheses
        scores.setdefault(item.test, {})[item.entry] = item.scores
    return {"tune": {"": inputs.tuned}, "decode": hypotheses, "score": scores, **inputs.analyses}


def _unknown(item: Evaluated) -> dict[str, Any]:
    """Return the count of unknown pieces of a decode step; that of hypotheses without one is 0."""
    path = item.hypotheses.path / "decode.json"
    counted: dict[str, Any] = _read(path).get("unknown", {}) if path.is_file() else {}
    return counted or {"sentences": 0, "first": []}


def _rows(items: Sequence[Evaluated], timings: Mapping[str, Any], baseline: str) -> list[Row]:
    """Return the rows of one test set. `baseline` is the entry of one of them; `timings` are by entry."""
    return [
        Row(
            item.system,
            item.search,
            item.test,
            _read(item.scores.path / "scores.json"),
            baseline=item.entry == baseline,
            timing=timings.get(item.entry),
        )
        for item in items
    ]


def _with_metrics(rows: list[Row], metrics: Mapping[str, dict[str, Any]]) -> list[Row]:
    """Return the rows with further metrics of their systems, which do not depend on the search."""
    return [replace(row, metrics={**row.metrics, **metrics[row.system]}) if row.system in metrics else row for row in rows]


def _compared(rows: list[Row], hypotheses: list[list[str]], sentences: list[Sentence], metric: str) -> list[Row]:
    """Return the rows, each with its comparisons with the baseline; `metric` is the one with intervals."""
    base = next((row.entry for row in rows if row.baseline), None)
    if base is None or len(rows) == 1 or any(metric not in row.metrics for row in rows):
        return rows
    texts = {row.entry: found for row, found in zip(rows, hypotheses, strict=True)}
    scores = {row.entry: row.metrics for row in rows}
    found = compare(base, texts, [sentence.references for sentence in sentences], scores, metric)
    return [replace(row, comparisons=found.get(row.entry, {})) for row in rows]


def shortfalls(findings: Findings, minima: Mapping[str, float]) -> list[str]:
    """Return a message for each test set and metric in which the baseline scores less than the minimum (0: no minimum)."""
    messages = []
    for row in findings.rows:
        for metric, minimum in minima.items():
            score = row.score(metric)
            if row.baseline and minimum > 0 and (score is None or score < minimum):
                got = f"scores {'no' if score is None else f'{score:.2f}'} {NAMES[metric]}"
                messages.append(f"system {row.system} {got} on test {row.test}, expected at least {minimum:g}")
    return messages


def results_json(findings: Findings, config: ReportConfig) -> dict[str, Any]:
    """Return the deterministic part of the findings for `results.json`."""
    ledger = {name: value for name, value in findings.corpus.items() if name not in ("samples", "files")}
    rows = [
        {
            "system": row.system,
            "search": row.search,
            "test": row.test,
            "metrics": row.metrics,
            "comparisons": {metric: asdict(found) for metric, found in row.comparisons.items()},
        }
        for row in findings.rows
    ]
    analyses = {name: found for name, found in findings.analyses.items() if found}
    result = {"title": config.title, "baseline": config.baseline, "corpus": ledger, "tests": findings.tests, "rows": rows}
    if findings.leads:
        result["lead_baselines"] = {test: asdict(lead) for test, lead in findings.leads.items()}
    if findings.seeds:
        result["seeds"] = findings.seeds
    return result | ({"analyses": analyses} if analyses else {})


def _corpus(directory: Path) -> dict[str, Any]:
    ledger = directory / "ledger.json"
    return {"rows": _read(directory / "text.json")["rows"], **(_read(ledger) if ledger.is_file() else {})}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Lead:
    """The lead baseline of a test set."""

    sentences: int
    """Sentences of a summary: the mean number of sentences of a reference."""
    scores: dict[str, float]
    """ROUGE scores by metric."""


def lead_of(rows: Sequence[Sentence], metrics: Mapping[str, Mapping[str, Any]]) -> Lead:
    """Score the lead baseline with the ROUGE metrics among `metrics` (of an entry), computed as their signatures state."""
    references = [row.references for row in rows]
    count = max(1, round(fmean(len(sentences(text)) for texts in references for text in texts)))
    leads = [" ".join(sentences(row.source)[:count]) for row in rows]
    tokens = {name: tokens_of(metrics[name]["signature"]) for name in ROUGE if name in metrics}
    return Lead(count, {name: round(fmean(f_measures(name, how, leads, references)), 4) for name, how in tokens.items()})
