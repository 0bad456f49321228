"""Figures, tables of other steps, and the provenance of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts import MANIFEST, Artifact
from stages.context import StepSpan
from stages.report import Evaluated, ReportInputs
from stages.report.findings import drafting
from stages.report.findings.curves import Costs, read_costs, read_curves
from stages.report.findings.results import Findings
from stages.report.page.draw import Draw
from stages.report.page.figure import Figure
from stages.shared.figures.canvas import colours_of
from stages.shared.figures.drawing import Drawing, Panel


class Provenance(NamedTuple):
    """The origin of an input of a report."""

    step: str
    fingerprint: str
    revision: str
    """Source revision; empty if unknown."""
    isa: list[str]
    """Instruction-set levels of the processes that made it; empty if they were not recorded."""
    origin: list[dict[str, str]]
    """Its inputs that were made elsewhere: `name`, `from`, `sha256` and `licence` of each file."""


@dataclass(frozen=True)
class Extras:
    """Contents of the page in addition to `Findings`."""

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
    costs: dict[str, Costs]
    """Device-hours of the trainings that recorded them."""
    trainings: dict[str, dict[str, Any]]
    """`training.json` by training."""
    provenance: list[Provenance]
    colours: dict[str, str]
    """The colour of each system and training in all figures and tables."""
    distilled: dict[str, dict[str, Any]]
    """`distill.json` (rows, kept, and those left out by reason) of each distilled text, by step."""
    timeline: tuple[StepSpan, ...]
    """The steps of the run so far."""


def collect(inputs: ReportInputs, findings: Findings, timeline: tuple[StepSpan, ...]) -> Extras:
    """Draw the figures and read the records of the inputs."""
    drafts = drafting.read(inputs)
    lattices = [found for systems in inputs.lattice_analyses.values() for found in systems.values()]
    recorded = [*inputs.counts.values(), *inputs.trainings.values(), *lattices, *inputs.timings.values()]
    colours = colours_of([*(row.system for row in findings.rows), *inputs.trainings])
    draw = Draw(findings, colours)
    costs = {name: cost for name, trained in inputs.trainings.items() if (cost := read_costs(trained.path))}
    return Extras(
        speed={test: figure for test in findings.benchmarks if (figure := draw.speed(test))},
        agreement=draw.agreement(),
        spread=[figure for test, found in findings.benchmarks.items() if (figure := draw.spread(test, found))],
        by_length=[draw.by_length(test, entries) for test, entries in findings.analyses.by_length.items()],
        diversity=[figure for test, found in findings.analyses.diversity.items() if (figure := draw.diversity(test, found))],
        dag_drawings=_dag_drawings(inputs),
        curves=draw.curves({name: read_curves(trained.path) for name, trained in inputs.trainings.items()}, costs),
        figures=[*(figure for artifact in recorded for figure in _figures(artifact)), *draw.drafting(drafts)],
        tables=[
            *(
                json.loads(path.read_text(encoding="utf-8"))
                for artifact in recorded
                for path in _records(artifact, "tables/*.json")
            ),
            *(drafting.table(test, entries) for test, entries in drafts.items()),
        ],
        costs=costs,
        trainings={name: _optional(trained.path / "training.json") for name, trained in inputs.trainings.items()},
        provenance=list(_provenance(inputs)),
        colours=colours,
        distilled={step: found for step, artifact in inputs.counts.items() if (found := _optional(artifact.path / "distill.json"))},
        timeline=timeline,
    )


def _dag_drawings(inputs: ReportInputs) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for text, systems in inputs.dag_analyses.items():
        for system, artifact in systems.items():
            drawn = [
                replace(
                    figure,
                    name=f"dag.{system}.{text}.{figure.name}",
                    layout="own" if figure.name.endswith("-dag") else figure.layout,
                )
                for figure in _figures(artifact)
            ]
            if drawn:
                found[f"DAGs of {system} on {text}"] = drawn
    return found


def _figures(artifact: Artifact) -> Iterator[Figure]:
    for path in _records(artifact, "figures/*.svg"):
        caption = str(_optional(path.with_suffix(".json")).get("caption", path.stem))
        panel = Panel(caption.partition(". ")[0], path.read_text(encoding="utf-8"))
        yield Figure(path.stem, Drawing((panel,)), caption, "page")


def _records(artifact: Artifact, pattern: str) -> list[Path]:
    return sorted(artifact.records.glob(pattern))


def _optional(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _provenance(inputs: ReportInputs) -> Iterator[Provenance]:
    artifacts: dict[str, Artifact] = {"corpus:train": inputs.corpus}
    artifacts |= {"import_network:teacher": inputs.imported} if inputs.imported else {}
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
    for text, slots in inputs.parallel_analyses.items():
        artifacts |= {f"parallel_analysis:{system}:{text}": found for system, found in slots.items()}
    for test, analyses in inputs.lattice_analyses.items():
        artifacts |= {f"lattice_analysis:{system}:{test}": found for system, found in analyses.items()}
    for step, artifact in artifacts.items():
        manifest = _optional(artifact.path / MANIFEST)
        isa = list(manifest.get("environment", {}).get("isa", ()))
        yield Provenance(step, artifact.fingerprint, str(manifest.get("git_revision") or ""), isa, manifest.get("origin", []))


def _parts(item: Evaluated) -> list[tuple[str, Artifact]]:
    return [("decode", item.hypotheses), ("score", item.scores)]
