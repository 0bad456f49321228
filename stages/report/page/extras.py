"""Figures, tables of other steps, and the provenance of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts import MANIFEST, Artifact
from stages.context import StepSpan
from stages.report import Evaluated, ReportInputs
from stages.report.figures import Draw
from stages.report.findings.curves import Costs, read_costs, read_curves
from stages.report.findings.results import Findings
from stages.shared.figures.drawing import Figure
from stages.shared.report_parts import Table, recorded_figures, recorded_tables


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
    spread: list[Figure]
    """Speed-up over sentences, for each test set on which several entries were timed."""
    curves: Figure | None
    figures: list[Figure]
    """Figures in the records of steps."""
    tables: list[Table]
    """Tables in the records of steps."""
    costs: dict[str, Costs]
    """Device-hours of the trainings that recorded them."""
    trainings: dict[str, dict[str, Any]]
    """`training.json` by training."""
    provenance: list[Provenance]
    distilled: dict[str, dict[str, Any]]
    """`distill.json` (rows, kept, and those left out by reason) of each distilled text, by step."""
    timeline: tuple[StepSpan, ...]
    """The steps of the run so far."""


def collect(inputs: ReportInputs, findings: Findings, timeline: tuple[StepSpan, ...]) -> Extras:
    """Draw the figures and read the records of the inputs."""
    recorded = [*inputs.counts.values(), *inputs.trainings.values(), *inputs.timings.values()]
    draw = Draw(findings)
    costs = {name: cost for name, trained in inputs.trainings.items() if (cost := read_costs(trained.path))}
    return Extras(
        speed={test: figure for test in findings.benchmarks if (figure := draw.speed(test))},
        spread=[figure for test, found in findings.benchmarks.items() if (figure := draw.spread(test, found))],
        curves=draw.curves({name: read_curves(trained.path) for name, trained in inputs.trainings.items()}, costs),
        figures=[figure for artifact in recorded for figure in recorded_figures(artifact)],
        tables=[table for artifact in recorded for table in recorded_tables(artifact)],
        costs=costs,
        trainings={name: _optional(trained.path / "training.json") for name, trained in inputs.trainings.items()},
        provenance=list(_provenance(inputs)),
        distilled={step: found for step, artifact in inputs.counts.items() if (found := _optional(artifact.path / "distill.json"))},
        timeline=timeline,
    )


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
    artifacts |= {
        ":".join(filter(None, (stage, system, text))): found
        for stage, texts in inputs.analyses.items()
        for text, systems in texts.items()
        for system, found in systems.items()
    }
    for step, artifact in artifacts.items():
        manifest = _optional(artifact.path / MANIFEST)
        isa = list(manifest.get("environment", {}).get("isa", ()))
        yield Provenance(step, artifact.fingerprint, str(manifest.get("git_revision") or ""), isa, manifest.get("origin", []))


def _parts(item: Evaluated) -> list[tuple[str, Artifact]]:
    return [("decode", item.hypotheses), ("score", item.scores)]
