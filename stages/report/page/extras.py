"""Figures, tables of other steps, and the provenance of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts import MANIFEST, Artifact
from stages.report import Evaluated, ReportInputs
from stages.report.figures import drafting as drafting_figures
from stages.report.figures.evaluation import Point, agreement, length_curves, quality_diversity, quality_speed, speed_spread
from stages.report.figures.training import training_curves
from stages.report.findings import drafting
from stages.report.findings.breakdown_tables import bin_name
from stages.report.findings.curves import Series, read_curves
from stages.report.findings.results import NAMES, Findings
from stages.score.tasks import Task

LOSSES = ("nll", "valid_loss")
"""Metrics of a training: losses on the training and the validation text, both without label smoothing."""


@dataclass(frozen=True)
class Figure:
    """An SVG document with its caption."""

    name: str
    svg: str
    caption: str
    wide: bool = False
    """True to show the figure at its own size, even if it is wider than the page."""


class Provenance(NamedTuple):
    """The origin of an input of a report."""

    step: str
    fingerprint: str
    revision: str
    """Source revision; empty if unknown."""
    isa: list[str]
    """Levels of instructions of the processes that made it; empty if they were not recorded."""


@dataclass(frozen=True)
class Extras:
    """Contents of the page beside `Findings`."""

    speed: dict[str, Figure]
    """Quality against speed, by test set."""
    agreement: Figure | None
    """Accuracy on minimal pairs by distance."""
    spread: list[Figure]
    """Speed-up over sentences, for each test set on which several entries were timed."""
    by_length: list[Figure]
    """BLEU by reference length, for each test set with this analysis."""
    diversity: list[Figure]
    """Quality against diversity of samples, for each test set with this analysis."""
    dag_drawings: dict[str, list[Figure]]
    """Figures of DAG analyses, by heading."""
    curves: Figure | None
    figures: list[Figure]
    """Figures in the records of steps."""
    tables: list[dict[str, Any]]
    """Tables in the records of steps: title, caption, columns, rows."""
    trainings: dict[str, dict[str, Any]]
    """`training.json` by training."""
    provenance: list[Provenance]


def collect(inputs: ReportInputs, findings: Findings) -> Extras:
    """Draw the figures and read the records of the inputs."""
    drafts = drafting.read(inputs)
    lattices = [found for systems in inputs.lattice_analyses.values() for found in systems.values()]
    recorded = [*inputs.counts.values(), *inputs.trainings.values(), *lattices, *inputs.timings.values()]
    return Extras(
        speed={test: figure for test in findings.benchmarks if (figure := _speed(test, findings))},
        agreement=_agreement(findings.analyses.contrastive),
        spread=[figure for test, found in findings.benchmarks.items() if (figure := _spread(test, found, findings.task.unit))],
        by_length=[_by_length(test, entries) for test, entries in findings.analyses.by_length.items()],
        diversity=[figure for test, found in findings.analyses.diversity.items() if (figure := _diversity(test, found))],
        dag_drawings=_dag_drawings(inputs),
        curves=_curves({name: read_curves(trained.path) for name, trained in inputs.trainings.items()}, findings.task),
        figures=[*(figure for artifact in recorded for figure in _figures(artifact)), *_drafting(drafts)],
        tables=[
            *(
                json.loads(path.read_text(encoding="utf-8"))
                for artifact in recorded
                for path in _records(artifact, "tables/*.json")
            ),
            *(drafting.table(test, entries) for test, entries in drafts.items()),
        ],
        trainings={name: _optional(trained.path / "training.json") for name, trained in inputs.trainings.items()},
        provenance=list(_provenance(inputs)),
    )


def _speed(test: str, findings: Findings) -> Figure | None:
    points = [
        Point(row.entry, row.system, quality, row.timing["latency_ms"]["median"], row.timing["sentences_per_second"]["median"])
        for row in findings.of(test)
        if row.timing and (quality := row.score(findings.task.metric)) is not None
    ]
    if not points:
        return None
    caption = (
        "Quality against speed. Filled points on the dashed line form the Pareto front: no other entry is better in one respect "
        "without being worse in the other. The upper left (latency) and the upper right (throughput) are better."
    )
    return Figure(f"quality_speed.{test}", quality_speed(points, NAMES[findings.task.metric], findings.task.unit), caption)


def _agreement(contrastive: dict[str, dict[str, Any]]) -> Figure | None:
    if not contrastive:
        return None
    curves = {
        system: [(band["distance"], 100 * band["correct"] / band["pairs"]) for band in found["bands"] if band["pairs"]]
        for system, found in contrastive.items()
    }
    caption = (
        "Percentage of minimal pairs in which a system gives the correct translation a higher probability than the one whose verb "
        "has the wrong number, by distance in words from the subject to the verb (50 % by chance)."
    )
    return Figure("agreement", agreement(curves), caption)


def _spread(test: str, benchmark: dict[str, Any], unit: str) -> Figure | None:
    baseline = benchmark["protocol"]["baseline"]
    curves = {entry: found for entry, found in benchmark["by_sentence"].items() if entry != baseline}
    if not curves:
        return None
    caption = (
        f"Speed-up of each entry over {baseline} for single {unit}s of {test}, from the {unit} with the lowest speed-up to the one "
        "with the highest."
    )
    return Figure(f"speed_spread.{test}", speed_spread(curves, unit), caption)


def _by_length(test: str, entries: dict[str, dict[str, Any]]) -> Figure:
    curves = {entry: [(bin_name(part), part["bleu"]) for part in found["bins"]] for entry, found in entries.items()}
    return Figure(f"by_length.{test}", length_curves(curves), f"BLEU on {test} by the length of the reference.")


def _diversity(test: str, entries: dict[str, dict[str, Any]]) -> Figure | None:
    points = {
        entry: (found["pairwise_bleu"], found["bleu"]) for entry, found in entries.items() if found["pairwise_bleu"] is not None
    }
    if not points:
        return None
    caption = (
        f"Quality (BLEU, mean over ranks) of samples on {test} against the similarity of the samples of a sentence. Points further "
        "up are better, points further left more diverse."
    )
    return Figure(f"diversity.{test}", quality_diversity(points), caption)


def _dag_drawings(inputs: ReportInputs) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for text, systems in inputs.dag_analyses.items():
        for system, artifact in systems.items():
            drawn = [
                replace(figure, name=f"dag.{system}.{text}.{figure.name}", wide=figure.name.endswith("-dag"))
                for figure in _figures(artifact)
            ]
            if drawn:
                found[f"DAGs of {system} on {text}"] = drawn
    return found


def _curves(trainings: dict[str, dict[str, Series]], task: Task) -> Figure | None:
    metric, quality = NAMES[task.metric], f"valid_{task.metric}"
    found = {name: curves for name, curves in trainings.items() if any(key in curves for key in (*LOSSES, quality))}
    if not found:
        return None
    caption = (
        f"Loss without label smoothing (training: faint, with dropout; validation: points) and {metric} of greedy {task.outputs} "
        "of the validation text, by update of the optimiser."
    )
    return Figure("training_curves", training_curves(found, LOSSES, (quality, metric)), caption)


def _figures(artifact: Artifact) -> Iterator[Figure]:
    for path in _records(artifact, "figures/*.svg"):
        words = _optional(path.with_suffix(".json"))
        yield Figure(path.stem, path.read_text(encoding="utf-8"), str(words.get("caption", path.stem)))


def _drafting(drafts: dict[str, dict[str, dict[str, Any]]]) -> Iterator[Figure]:
    for test, entries in drafts.items():
        if any(decoded["search"]["strategy"] in drafting.VERIFIED for decoded in entries.values()):
            svg = drafting_figures.acceptance(entries)
            yield Figure(f"drafting.{test}", svg, f"Drafting on {test}. {drafting_figures.CAPTION}")


def _records(artifact: Artifact, pattern: str) -> list[Path]:
    return sorted(artifact.records.glob(pattern))


def _optional(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _provenance(inputs: ReportInputs) -> Iterator[Provenance]:
    artifacts: dict[str, Artifact] = {"corpus:train": inputs.corpus}
    artifacts |= {f"corpus:{name}": text for name, text in inputs.tests.items()}
    artifacts |= inputs.counts
    artifacts |= {f"train:{name}": trained for name, trained in inputs.trainings.items()}
    for item in inputs.evaluated:
        artifacts |= {f"{verb}:{item.system}/{item.search}:{item.test}": artifact for verb, artifact in _parts(item)}
    artifacts |= {f"benchmark:all:{test}": timing for test, timing in inputs.timings.items()}
    for test, likelihoods in inputs.likelihoods.items():
        artifacts |= {f"likelihood:{system}:{test}": found for system, found in likelihoods.items()}
    artifacts |= {f"contrastive:{system}": found for system, found in inputs.contrasts.items()}
    for text, systems in inputs.dag_analyses.items():
        artifacts |= {f"dag_analysis:{system}:{text}": found for system, found in systems.items()}
    for test, analyses in inputs.lattice_analyses.items():
        artifacts |= {f"lattice_analysis:{system}:{test}": found for system, found in analyses.items()}
    for step, artifact in artifacts.items():
        manifest = _optional(artifact.path / MANIFEST)
        isa = list(manifest.get("environment", {}).get("isa", ()))
        yield Provenance(step, artifact.fingerprint, str(manifest.get("git_revision") or ""), isa)


def _parts(item: Evaluated) -> list[tuple[str, Artifact]]:
    return [("decode", item.hypotheses), ("score", item.scores)]
