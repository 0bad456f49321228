"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping

from stages.report.figures.canvas import PANEL, line, panel, style
from stages.report.figures.drawing import Drawing, Entry, panel_of
from stages.report.findings.curves import Series, thinned


def training_curves(
    trainings: Mapping[str, Mapping[str, Series]], losses: tuple[str, str], quality: tuple[str, str], colours: Mapping[str, str]
) -> Drawing:
    """Draw loss (training: faint, validation: with points) and validation quality by update, with a colour for each training.

    `losses` names the curves of the training and the validation loss; `quality` is the name of a curve and its display name.
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
        return Drawing((panel_of("Loss by update", left), panel_of(f"Validation {quality[1]} by update", right)), key)
