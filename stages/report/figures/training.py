"""Training curves."""

from __future__ import annotations

from collections.abc import Mapping

from stages.report.figures.canvas import as_svg, cycle, key, line, panels, style
from stages.report.findings.curves import Series, thinned


def training_curves(trainings: Mapping[str, Mapping[str, Series]], losses: tuple[str, str], quality: tuple[str, str]) -> str:
    """Draw loss (training: faint, validation: with points) and validation quality by update, with a colour for each training.

    `losses` names the curves of the training and the validation loss; `quality` is the name of a curve and its display name.
    """
    with style():
        return _training_curves(trainings, losses, quality)


def _training_curves(trainings: Mapping[str, Mapping[str, Series]], losses: tuple[str, str], quality: tuple[str, str]) -> str:
    figure, (left, right) = panels()
    for (name, curves), colour in zip(trainings.items(), cycle(len(trainings)), strict=True):
        training, validation = (thinned(curves.get(key, [])) for key in losses)
        line(left, training, color=colour, linewidth=1.0, alpha=0.45)
        line(left, validation, color=colour, linewidth=1.8, marker="o", markersize=3, label=name)
        line(right, curves.get(quality[0], []), color=colour, linewidth=1.8, marker="o", markersize=3, label=name)
    left.set(title="Loss (nats a token; faint: training)", xlabel="update")
    right.set(title=f"Validation {quality[1]}", xlabel="update")
    for axes in (left, right):
        axes.margins(x=0.02)
    key(figure, *left.get_legend_handles_labels())
    return as_svg(figure)
