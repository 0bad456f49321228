"""Figures of a report, as SVG text that is the same whenever it is drawn again from the same numbers."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.report.curves import Series, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, RULE, CARD = "#1d2433", "#667085", "#d9dde5", "#ffffff"
SERIES = ("#2f6fde", "#d9622b", "#16907a", "#8a55d7", "#b3831a", "#cf3f6f", "#3f8fb5", "#6d7a28")
"""Colours of systems, in order."""
KEY_COLUMNS, KEY_LETTERS = 3, 115
"""Of the names below a figure: columns at most, and letters that fit beside each other."""
KEY_ROW = 0.21
"""Inches of a row of these."""
STROKES = ("solid", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Of the searches of a system, in order."""

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fewstep",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Point:
    """An entry in the plane of quality and speed."""

    entry: str
    system: str
    quality: float
    latency_ms: float
    sentences_per_second: float


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points (cost, quality) that none other beats in one without losing in the other, by rising cost."""
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1])):
        if not front or points[index][1] > points[front[-1]][1]:
            front.append(index)
    return front


def quality_speed(points: Sequence[Point], metric: str, unit: str) -> str:
    """Quality against latency (better to the upper left) and against throughput (better to the upper right).

    Entries have a number each, which the key below explains: names beside the points would cover each other. `metric` is what
    quality is called, `unit` what is timed: a sentence, say.
    """
    with style():
        return _quality_speed(points, metric, unit)


def _quality_speed(points: Sequence[Point], metric: str, unit: str) -> str:
    figure, (left, right) = panels()
    colours = colours_of(point.system for point in points)
    _scatter(left, points, [(point.latency_ms, point.quality) for point in points], colours, -1)
    _scatter(right, points, [(point.sentences_per_second, point.quality) for point in points], colours, 1)
    dots = [left.scatter([], [], s=40, color=colours[point.system]) for point in points]
    names = [f"{number} {point.entry}" for number, point in enumerate(points, 1)]
    key(figure, dots, names)
    left.set(title=f"One {unit} at a time", xlabel=f"latency, ms a {unit} (median)", ylabel=metric)
    right.set(title="In batches", xlabel=f"throughput, {unit}s a second")
    return as_svg(figure)


def _scatter(
    axes: Axes, points: Sequence[Point], places: Sequence[tuple[float, float]], colours: Mapping[str, str], better: int
) -> None:
    """Points at `places` (speed, quality) by their numbers; `better` is -1 where less of the first is better."""
    front = pareto([(-better * x, y) for x, y in places])
    axes.plot(*zip(*[places[index] for index in front], strict=True), color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2)
    for index, (point, (x, y)) in enumerate(zip(points, places, strict=True)):
        colour, first = colours[point.system], index in front
        axes.scatter([x], [y], s=125, facecolors=colour if first else "none", edgecolors=colour, linewidths=1.4, zorder=3 + first)
        ink = CARD if first else colour
        axes.annotate(str(index + 1), (x, y), ha="center", va="center_baseline", fontsize=7.5, color=ink, zorder=3.5 + first)
    axes.margins(x=0.1, y=0.12)


def training_curves(trainings: Mapping[str, Mapping[str, Series]], losses: tuple[str, str], quality: tuple[str, str]) -> str:
    """Loss (training faint, validation with points) and validation quality against the update, a colour for each training.

    `losses` names the training and the validation loss; `quality` is the name of a metric among the curves, and for readers.
    """
    with style():
        return _training_curves(trainings, losses, quality)


def _training_curves(trainings: Mapping[str, Mapping[str, Series]], losses: tuple[str, str], quality: tuple[str, str]) -> str:
    figure, (left, right) = panels()
    for (name, curves), colour in zip(trainings.items(), cycle(len(trainings)), strict=True):
        training, validation = (thinned(curves.get(key, [])) for key in losses)
        _line(left, training, color=colour, linewidth=1.0, alpha=0.45)
        _line(left, validation, color=colour, linewidth=1.8, marker="o", markersize=3, label=name)
        _line(right, curves.get(quality[0], []), color=colour, linewidth=1.8, marker="o", markersize=3, label=name)
    left.set(title="Loss (nats a token; faint: training)", xlabel="update")
    right.set(title=f"Validation {quality[1]}", xlabel="update")
    for axes in (left, right):
        axes.margins(x=0.02)
    key(figure, *left.get_legend_handles_labels())
    return as_svg(figure)


def _line(axes: Axes, series: Series, **style: Any) -> None:
    if series:
        axes.plot(*zip(*series, strict=True), **style)


def recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Recall (a share of 1) against K, by powers of two, a line for each name."""
    with style():
        return _recall_curves(curves)


def _recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    figure, axes = panel()
    for (name, curve), colour in zip(curves.items(), cycle(len(curves)), strict=True):
        _line(
            axes,
            [(count, 100 * share) for count, share in curve],
            color=colour,
            linewidth=1.8,
            marker="o",
            markersize=3,
            label=name,
        )
    ticks = sorted({count for curve in curves.values() for count, _ in curve})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, labels=[str(count) for count in ticks])
    axes.set(title="Recall of target tokens, %", xlabel="K, candidates of a slot")
    axes.set_ylim(0, 100)
    axes.legend(fontsize=9)
    return as_svg(figure)


def key(figure: Figure, marks: Sequence[Any], names: Sequence[str]) -> None:
    """What stands for what, below the figure, which grows by as much: beside or within it many names would cover it."""
    if not names:
        return
    columns = max(1, min(KEY_COLUMNS, KEY_LETTERS // max(map(len, names))))
    figure.set_figheight(figure.get_figheight() + KEY_ROW * math.ceil(len(names) / columns))
    figure.legend(marks, names, loc="outside lower left", ncols=columns, fontsize=9)


def agreement(curves: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Accuracy in per cent by distance, a line for each system; all lines have the same distances."""
    with style():
        return _agreement(curves)


def _agreement(curves: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    figure, axes = panel()
    for (system, points), colour in zip(curves.items(), cycle(len(curves)), strict=True):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.8, marker="o", markersize=4, label=system)
    axes.axhline(50, color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.set(title="Right verb preferred, %", xlabel="words from subject to verb")
    axes.margins(x=0.03)
    key(figure, *axes.get_legend_handles_labels())
    return as_svg(figure)


def length_curves(curves: Mapping[str, Sequence[tuple[str, float | None]]]) -> str:
    """BLEU by bin of reference lengths, a line for each entry `system/search`, all with the same bins, some without a value."""
    with style():
        figure, axes = panel()
        heights = {entry: [math.nan if bleu is None else bleu for _, bleu in points] for entry, points in curves.items()}
        _entries(axes, heights, marker="o", markersize=3)
        names = [name for name, _ in next(iter(curves.values()))]
        axes.set_xticks(range(len(names)), labels=names)
        axes.set(title="BLEU", xlabel="words of the reference")
        axes.margins(x=0.03)
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)


def speed_spread(quantiles: Mapping[str, Sequence[float]], unit: str) -> str:
    """Speed-up over sentences, from the one that gains least to the one that gains most, a line for each entry `system/search`.
    `unit` is what is timed: a sentence, say."""
    with style():
        figure, axes = panel()
        _entries(axes, quantiles)
        axes.axhline(1, color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)))
        last = len(next(iter(quantiles.values()))) - 1
        axes.set_xticks([0, last / 4, last / 2, 3 * last / 4, last], labels=["0", "25", "50", "75", "100"])
        axes.set(title="Times as fast as the baseline", xlabel=f"{unit}s, %", ylim=(0, None))
        axes.margins(x=0.02)
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)


def _entries(axes: Axes, heights: Mapping[str, Sequence[float]], **style: Any) -> None:
    """A line for each entry `system/search`: a system has one colour, its searches different strokes."""
    colours, seen = colours_of(entry.partition("/")[0] for entry in heights), dict[str, int]()
    for entry, line in heights.items():
        system = entry.partition("/")[0]
        stroke = STROKES[seen.get(system, 0) % len(STROKES)]
        seen[system] = seen.get(system, 0) + 1
        axes.plot(range(len(line)), line, color=colours[system], linestyle=stroke, linewidth=1.6, label=entry, **style)


def quality_diversity(points: Mapping[str, tuple[float, float]]) -> str:
    """(pairwise BLEU, BLEU) of entries `system/search`; those of one system are joined."""
    with style():
        figure, axes = panel()
        colours = colours_of(entry.partition("/")[0] for entry in points)
        for system, colour in colours.items():
            own = sorted(place for entry, place in points.items() if entry.partition("/")[0] == system)
            axes.plot(*zip(*own, strict=True), color=colour, linewidth=1.4, marker="o", markersize=5, label=system)
        for entry, place in points.items():
            search = entry.partition("/")[2]
            axes.annotate(search, place, xytext=(5, 5), textcoords="offset points", fontsize=8)
        axes.set(title="BLEU of samples", xlabel="pairwise BLEU among samples: to the left the more diverse")
        axes.margins(x=0.1, y=0.15)
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)


def style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def panel() -> tuple[Figure, Any]:
    """A figure of one panel."""
    figure = _figure()
    return figure, figure.subplots()


def panels() -> tuple[Figure, Any]:
    """Two panels side by side."""
    figure = _figure()
    return figure, figure.subplots(1, 2)


def _figure() -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(9.6, 3.5), layout=ConstrainedLayoutEngine(wspace=0.06))


def cycle(count: int) -> list[str]:
    return [SERIES[index % len(SERIES)] for index in range(count)]


def colours_of(names: Any) -> dict[str, str]:
    unique = list(dict.fromkeys(names))
    return dict(zip(unique, cycle(len(unique)), strict=True))


def as_svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def inlined(svg: str, prefix: str) -> str:
    """An SVG document as an element of an HTML page: no prolog, no outside names, ids of its own, the page's colours."""
    prefix = re.sub(r"\W", "-", prefix)
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    opening = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", opening)
    body = f"{opening}>{rest}".replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)
    for name, colour in {
        "ink": INK,
        "muted": MUTED,
        "rule": RULE,
        "card": CARD,
        **{f"series{i}": c for i, c in enumerate(SERIES)},
    }.items():
        body = body.replace(colour, f"var(--{name})")
    return body.strip()
