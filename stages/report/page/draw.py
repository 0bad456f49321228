"""The figures that a report draws from its findings, and figures as elements of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.figures import Point, quality_speed, speed_spread, training_curves
from stages.report.findings.curves import Costs, Series
from stages.report.findings.results import NAMES, Findings
from stages.report.page.markup import Markup, element
from stages.shared.figures.canvas import CARD, inlined, page_colour
from stages.shared.figures.drawing import Drawing, Entry, Figure

LOSSES = ("nll", "valid_loss")
"""Metrics of a training: losses on the training and the validation text, both without label smoothing."""


@dataclass(frozen=True)
class Draw:
    """Draws figures in the colours of systems."""

    findings: Findings

    def speed(self, test: str) -> Figure | None:
        """Return quality against speed on a test set; None if nothing was timed."""
        task = self.findings.task
        points = [
            Point(row.entry, row.system, quality, row.timing["latency_ms"]["median"], row.timing["sentences_per_second"]["median"])
            for row in self.findings.of(test)
            if row.timing and (quality := row.score(task.metric)) is not None
        ]
        if not points:
            return None
        caption = (
            "Quality against speed. Filled points on the dashed line form the Pareto front: no other entry is better in one "
            "respect without being worse in the other. The upper left (latency) and the upper right (throughput) are better."
        )
        return Figure(f"quality_speed.{test}", quality_speed(points, NAMES[task.metric], task.unit, self.findings.colours), caption)

    def spread(self, test: str, benchmark: Mapping[str, Any]) -> Figure | None:
        """Return the speed-up over sentences; None if only the baseline was timed."""
        baseline = benchmark["protocol"]["baseline"]
        unit = self.findings.task.unit
        curves = {entry: found for entry, found in benchmark["by_sentence"].items() if entry != baseline}
        if not curves:
            return None
        caption = (
            f"Speed-up of each entry over {baseline} for single {unit}s of {test}, from the {unit} with the lowest speed-up to the "
            "one with the highest."
        )
        return Figure(f"speed_spread.{test}", speed_spread(curves, unit, self.findings.colours), caption)

    def curves(self, trainings: Mapping[str, dict[str, Series]], costs: Mapping[str, Costs]) -> Figure | None:
        """Return the curves of trainings by name; None without any curve."""
        task = self.findings.task
        metric = NAMES[task.metric]
        quality = f"valid_{task.metric}"
        found = {name: curves for name, curves in trainings.items() if any(key in curves for key in (*LOSSES, quality))}
        if not found:
            return None
        caption = (
            f"Loss without label smoothing (training: faint, with dropout; validation: points) and {metric} of greedy "
            f"{task.outputs} of the validation text, by update of the optimiser."
        )
        if costs:
            caption += (
                " Hours are those of all devices of a training together, with validations and without the training of a teacher or "
                "of initial weights."
            )
        return Figure("training_curves", training_curves(found, LOSSES, (quality, metric), self.findings.colours, costs), caption)


def figure_element(figure: Figure) -> Markup:
    """Return an inline figure with its key and its caption."""
    drawn = [
        Markup(inlined(panel.svg, f"{figure.name}-{index}", panel.title)) for index, panel in enumerate(figure.drawing.panels, 1)
    ]
    body = element("div", *drawn, class_=f"drawn {figure.layout}{' alone' if len(drawn) == 1 else ''}")
    return element("figure", element("div", body, _key(figure.drawing), class_="with-key"), element("figcaption", figure.caption))


def _key(drawing: Drawing) -> Markup | None:
    if not drawing.key:
        return None
    return element("ul", *(element("li", _mark(entry), entry.name) for entry in drawing.key), class_="key")


def _mark(entry: Entry) -> Markup:
    mark = entry.mark(0, 8).replace(entry.colour, page_colour(entry.colour)).replace(CARD, "var(--card)")
    return element("svg", Markup(mark), viewBox="0 0 20 16", width="20", height="16", aria_hidden="true")
