"""Training curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stages.report.findings.curves import Costs, Series, thinned
from stages.shared.figures.canvas import PANEL, line, panel, style
from stages.shared.figures.drawing import Drawing, Entry, Panel, panel_of


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
