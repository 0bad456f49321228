"""The figures of a report, of quality, speed and trainings, and figures as elements of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.report.findings.curves import Costs, Series, thinned
from stages.report.findings.results import NAMES, Findings
from stages.report.page.markup import Markup, element
from stages.shared.figures.canvas import CARD, MUTED, PANEL, WIDE_PANEL, inlined, line, page_colour, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Entry, Figure, Panel, panel_of, plot_entries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = ("nll", "valid_loss")
"""Metrics of a training: losses on the training and the validation text, both without label smoothing."""


@dataclass(frozen=True)
class Point:
    """Quality and speed of an entry."""

    entry: str
    system: str
    quality: float
    latency_ms: float
    sentences_per_second: float


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the Pareto-optimal points (cost, quality), by increasing cost."""
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1])):
        if not front or points[index][1] > points[front[-1]][1]:
            front.append(index)
    return front


def quality_speed(points: Sequence[Point], metric: str, unit: str, colours: Colours) -> Drawing:
    """Draw quality against latency (the upper left is better) and against throughput (the upper right is better).

    Points are labelled with numbers that the key explains, since names beside the points would overlap. `metric` is the name of
    the quality metric, `unit` the name of a source, such as "sentence".
    """
    latency = f"One {unit} at a time"
    throughput = "In batches"
    with style():
        left, axes = panel(PANEL)
        _scatter(axes, points, [(point.latency_ms, point.quality) for point in points], colours, -1)
        axes.set(title=latency, xlabel=f"latency, ms a {unit} (median)", ylabel=metric)
        right, axes = panel(PANEL)
        _scatter(axes, points, [(point.sentences_per_second, point.quality) for point in points], colours, 1)
        axes.set(title=throughput, xlabel=f"throughput, {unit}s a second", ylabel=metric)
        key = [Entry(point.entry, colours[point.system], number=str(number)) for number, point in enumerate(points, 1)]
        return Drawing((panel_of(f"{metric} against latency", left), panel_of(f"{metric} against throughput", right)), tuple(key))


def _scatter(axes: Axes, points: Sequence[Point], positions: Sequence[tuple[float, float]], colours: Colours, better: int) -> None:
    """Draw numbered points at `positions` (speed, quality) and their Pareto front; `better` is -1 if lower speed values are
    better."""
    front = pareto([(-better * x, y) for x, y in positions])
    axes.plot(
        *zip(*[positions[index] for index in front], strict=True), color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2
    )
    for index, (point, (x, y)) in enumerate(zip(points, positions, strict=True)):
        colour = colours[point.system]
        first = index in front
        axes.scatter([x], [y], s=125, facecolors=colour if first else CARD, edgecolors=colour, linewidths=1.4, zorder=3 + first)
        ink = CARD if first else colour
        axes.annotate(str(index + 1), (x, y), ha="center", va="center_baseline", fontsize=7.5, color=ink, zorder=3.5 + first)
    axes.margins(x=0.1, y=0.12)


def speed_spread(quantiles: Mapping[str, Sequence[float]], unit: str, colours: Colours) -> Drawing:
    """Draw the distribution of speed-ups over sentences, with a line for each entry `system/search`.

    `quantiles` are from the lowest speed-up to the highest; `unit` is the name of a source, such as "sentence".
    """
    with style():
        figure, axes = panel(WIDE_PANEL)
        key = plot_entries(axes, {entry: list(enumerate(line)) for entry, line in quantiles.items()}, colours)
        axes.axhline(1, color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)))
        last = len(next(iter(quantiles.values()))) - 1
        axes.set_xticks([0, last / 4, last / 2, 3 * last / 4, last], labels=["0", "25", "50", "75", "100"])
        axes.set(title="Speed-up over the baseline", xlabel=f"{unit}s, %", ylim=(0, None))
        axes.margins(x=0.02)
        return Drawing((panel_of(f"Speed-up over the baseline by {unit}", figure),), key)


def training_curves(
    trainings: Mapping[str, Mapping[str, Series]],
    losses: tuple[str, str],
    quality: tuple[str, str],
    colours: Mapping[str, str],
    costs: Mapping[str, Costs],
) -> Drawing:
    """Draw loss (training: faint, validation: with points) and validation quality by update, with a colour for each training.

    Where `costs` are known, further panels show loss and quality by device-hours. `losses` names the curves of the training and
    the validation loss; `quality` is the name of a curve and its display name.
    """
    with style():
        left, loss = panel(PANEL)
        right, score = panel(PANEL)
        for name, curves in trainings.items():
            training, validation = (thinned(curves.get(key, [])) for key in losses)
            line(loss, training, color=colours[name], linewidth=1.0, alpha=0.45)
            line(loss, validation, color=colours[name], linewidth=1.8, marker="o", markersize=3)
            line(score, curves.get(quality[0], []), color=colours[name], linewidth=1.8, marker="o", markersize=3)
        loss.set(title="Loss (nats a token; faint: training)", xlabel="update")
        score.set(title=f"Validation {quality[1]}", xlabel="update")
        for axes in (loss, score):
            axes.margins(x=0.02)
        key = tuple(Entry(name, colours[name]) for name in trainings)
        by_update = (panel_of("Loss by update", left), panel_of(f"Validation {quality[1]} by update", right))
        return Drawing((*by_update, *_by_cost(trainings, losses[1], quality, colours, costs)), key)


def _by_cost(
    trainings: Mapping[str, Mapping[str, Series]],
    loss: str,
    quality: tuple[str, str],
    colours: Mapping[str, str],
    costs: Mapping[str, Costs],
) -> Iterator[Panel]:
    """Yield panels of validation loss and quality by the hours of each kind of device."""
    for device in sorted({cost.device for cost in costs.values()}):
        for curve, title in ((loss, "loss (nats a token)"), quality):
            figure, axes = panel(PANEL)
            for name, cost in costs.items():
                points = cost.over(trainings[name].get(curve, [])) if cost.device == device and name in trainings else []
                if points:
                    axes.plot(*zip(*points, strict=True), color=colours[name], linewidth=1.8, marker="o", markersize=3)
            axes.set(title=f"Validation {title}", xlabel=f"{device}-hours")
            axes.margins(x=0.02)
            yield panel_of(f"Validation {title} by {device}-hours", figure)


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
