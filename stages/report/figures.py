"""Figures of quality, speed and trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.report.findings.curves import Costs, Series, thinned
from stages.shared.figures.canvas import CARD, MUTED, PANEL, WIDE_PANEL, line, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Entry, Panel, panel_of, plot_entries

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
