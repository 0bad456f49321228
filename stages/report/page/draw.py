"""The figures that a report draws from its findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stages.report.figures import drafting as drafting_figures
from stages.report.figures.evaluation import Point, agreement, length_curves, quality_diversity, quality_speed, speed_spread
from stages.report.figures.training import training_curves
from stages.report.findings import drafting
from stages.report.findings.breakdown_tables import bin_name
from stages.report.findings.curves import Costs, Series
from stages.report.findings.results import NAMES, Findings
from stages.report.page.figure import Figure

LOSSES = ("nll", "valid_loss")
"""Metrics of a training: losses on the training and the validation text, both without label smoothing."""


@dataclass(frozen=True)
class Draw:
    """Draws figures in the colours of systems."""

    findings: Findings
    colours: Mapping[str, str]

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
        return Figure(f"quality_speed.{test}", quality_speed(points, NAMES[task.metric], task.unit, self.colours), caption)

    def agreement(self) -> Figure | None:
        """Return the accuracy on pairs with verbs of the wrong number by distance; None without such pairs."""
        contrastive = {system: found for system, found in self.findings.analyses.contrastive.items() if found["bands"]}
        if not contrastive:
            return None
        curves = {
            system: [(band["distance"], 100 * band["correct"] / band["pairs"]) for band in found["bands"] if band["pairs"]]
            for system, found in contrastive.items()
        }
        caption = (
            "Percentage of minimal pairs in which a system gives the correct translation a higher probability than the one whose "
            "verb has the wrong number, by distance in words from the subject to the verb (50 % by chance)."
        )
        return Figure("agreement", agreement(curves, self.colours), caption)

    def spread(self, test: str, benchmark: Mapping[str, Any]) -> Figure | None:
        """Return the speed-up over sentences; None if only the baseline was timed."""
        baseline, unit = benchmark["protocol"]["baseline"], self.findings.task.unit
        curves = {entry: found for entry, found in benchmark["by_sentence"].items() if entry != baseline}
        if not curves:
            return None
        caption = (
            f"Speed-up of each entry over {baseline} for single {unit}s of {test}, from the {unit} with the lowest speed-up to the "
            "one with the highest."
        )
        return Figure(f"speed_spread.{test}", speed_spread(curves, unit, self.colours), caption)

    def by_length(self, test: str, entries: Mapping[str, Mapping[str, Any]]) -> Figure:
        """Return BLEU by the length of references."""
        curves = {entry: [(bin_name(part), part["bleu"]) for part in found["bins"]] for entry, found in entries.items()}
        caption = f"BLEU on {test} by the length of the reference."
        return Figure(f"by_length.{test}", length_curves(curves, self.colours), caption)

    def diversity(self, test: str, entries: Mapping[str, Mapping[str, Any]]) -> Figure | None:
        """Return quality against diversity of samples; None if no entry has several samples."""
        points = {
            entry: (found["pairwise_bleu"], found["bleu"]) for entry, found in entries.items() if found["pairwise_bleu"] is not None
        }
        if not points:
            return None
        caption = (
            f"Quality (BLEU, mean over ranks) of samples on {test} against the similarity of the samples of a sentence. Points "
            "further up are better, points further left more diverse."
        )
        return Figure(f"diversity.{test}", quality_diversity(points, self.colours), caption)

    def curves(self, trainings: Mapping[str, dict[str, Series]], costs: Mapping[str, Costs]) -> Figure | None:
        """Return the curves of trainings by name; None without any curve."""
        task = self.findings.task
        metric, quality = NAMES[task.metric], f"valid_{task.metric}"
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
        return Figure("training_curves", training_curves(found, LOSSES, (quality, metric), self.colours, costs), caption)

    def drafting(self, drafts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Figure]:
        """Yield a figure for each test set with entries whose drafts are verified."""
        for test, entries in drafts.items():
            if any(decoded["search"]["strategy"] in drafting.VERIFIED for decoded in entries.values()):
                drawn = drafting_figures.acceptance(entries, self.colours)
                parts = [f"Drafting on {test}.", drafting_figures.OVER_SENTENCES, drafting_figures.BY_WIDTH]
                yield Figure(f"drafting.{test}", drawn, " ".join(parts[: len(drawn.panels) + 1]))
