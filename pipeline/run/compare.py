"""Compare runs by their records: config, data, scores with significance, speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.run.run_directory import Run
from pipeline.store.files import read_json
from pipeline.store.manifest import manifest_values
from pipeline.store.records import scores_of, step_directory
from stages.artifacts import RECORDS, Hypotheses, Ngram, Tables, Text, Vocabulary
from stages.table import STAGES

ELSEWHERE = ("store", "cluster", "tracking")
"""Sections of the config that change no result."""
DATA_STAGES = tuple(stage.name for stage in STAGES if issubclass(stage.output, (Text, Vocabulary, Ngram, Tables)))
"""Stages whose artifacts are data that systems learn from or search with."""


@dataclass(frozen=True)
class Result:
    """A system with one search on one test set, as a run recorded it."""

    test: str
    entry: str
    """`system/search`."""
    scores: dict[str, float]
    signatures: dict[str, str]
    milliseconds: float | None
    """Median latency of a sentence in the run's benchmark."""
    directory: Path
    """Artifact of its scores."""

    def to_json(self) -> dict[str, Any]:
        """Return test, entry, scores and latency as plain values."""
        return {"test": self.test, "entry": self.entry, "scores": self.scores, "milliseconds": self.milliseconds}


@dataclass(frozen=True)
class ScorePair:
    """One metric of an entry that both runs have."""

    test: str
    entry: str
    metric: str
    first: float
    second: float
    p: float | None
    """Two-sided p of a randomization test over the same sentences; None for other metrics, sentences or signatures."""


@dataclass(frozen=True)
class SpeedPair:
    """Milliseconds a sentence (median) of an entry that both runs timed."""

    test: str
    entry: str
    first: float
    second: float


@dataclass(frozen=True)
class Difference:
    """All that two runs differ in."""

    config: list[tuple[str, str, str]]
    """Key, value in the first run, value in the second."""
    data: list[tuple[str, str, str]]
    """Step, fingerprint in the first run, fingerprint in the second."""
    scores: list[ScorePair]
    speed: list[SpeedPair]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def compare(first: Run, second: Run) -> Difference:
    """Compare two runs, of one store or of two."""
    results = [{(row.test, row.entry): row for row in rows_of(run)} for run in (first, second)]
    common = [key for key in results[0] if key in results[1]]
    pairs = [(results[0][key], results[1][key]) for key in common]
    return Difference(
        config=list(_config_changes(first.spec["config"], second.spec["config"])),
        data=list(_data_changes(first, second)),
        scores=[pair for one, other in pairs for pair in _score_pairs((first, one), (second, other))],
        speed=[
            SpeedPair(one.test, one.entry, one.milliseconds, other.milliseconds)
            for one, other in pairs
            if one.milliseconds and other.milliseconds
        ],
    )


def rows_of(run: Run) -> Iterator[Result]:
    """Yield the scored entries of a run, in the order of its plan."""
    timings = dict(_timings(run))
    for entry in run.spec["plan"]:
        if entry["stage"] != "score":
            continue
        directory = step_directory(run.store, entry)
        name, _, test = entry["step"].removeprefix("score:").rpartition(":")
        found = scores_of(directory)
        if found:
            scores = {metric: value for metric, (value, _) in found.items()}
            signatures = {metric: signature for metric, (_, signature) in found.items()}
            yield Result(test, name, scores, signatures, timings.get((test, name)), directory)


def _timings(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    for entry in run.spec["plan"]:
        if entry["stage"] == "benchmark":
            test = entry["step"].rpartition(":")[2]
            found = read_json(step_directory(run.store, entry) / RECORDS / "benchmark.json").get("entries", {})
            for name, figures in found.items():
                if (median := figures.get("latency_ms", {}).get("median")) is not None:
                    yield (test, name), float(median)


def _config_changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    one, other = (dict(_flattened({k: v for k, v in config.items() if k not in ELSEWHERE})) for config in (first, second))
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            yield key, one.get(key, ""), other.get(key, "")


def _flattened(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flattened(item, f"{name}.{key}".lstrip("."))
    else:
        yield name, str(value)


def _data_changes(first: Run, second: Run) -> Iterator[tuple[str, str, str]]:
    one, other = (
        {entry["step"]: entry["fingerprint"] for entry in run.spec["plan"] if entry["stage"] in DATA_STAGES}
        for run in (first, second)
    )
    for step in dict.fromkeys([*one, *other]):
        if one.get(step) != other.get(step):
            yield step, one.get(step, "")[:12], other.get(step, "")[:12]


def _score_pairs(first: tuple[Run, Result], second: tuple[Run, Result]) -> Iterator[ScorePair]:
    one, other = first[1], second[1]
    for metric in one.scores:
        if metric in other.scores:
            p = _significance(metric, first, second)
            yield ScorePair(one.test, one.entry, metric, one.scores[metric], other.scores[metric], p)


def _significance(metric: str, first: tuple[Run, Result], second: tuple[Run, Result]) -> float | None:
    """Return the p of a randomization test, or None for other metrics and for runs whose sentences or signatures differ."""
    from stages.report.findings.significance import TESTED, comparison_of, randomization_tests
    from stages.shared.decoding.sentences import best_in_order, read_sentences

    if metric not in TESTED:
        return None
    signature = first[1].signatures[metric]
    inputs = [manifest_values(result.directory).get("inputs", {}) for _, result in (first, second)]
    if signature != second[1].signatures[metric] or inputs[0].get("text") != inputs[1].get("text"):
        return None
    sentences = read_sentences(first[0].store / "corpus" / inputs[0]["text"])
    hypotheses = [
        best_in_order(Hypotheses(run.store / "decode" / part["hypotheses"], part["hypotheses"]), sentences)
        for (run, _), part in zip((first, second), inputs, strict=True)
    ]
    runs = dict(zip(("first", "second"), hypotheses, strict=True))
    references = [sentence.references for sentence in sentences]
    return randomization_tests(metric, comparison_of(signature), runs, references)["second"]
