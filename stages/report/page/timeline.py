"""The Gantt chart of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stages.context import StepSpan
from stages.report.page.markup import Markup, Section, count, element

TICKS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
"""Distances of ticks, in seconds; longer runs have ticks at multiples of days."""
MAX_TICKS = 8
LAST_LABEL = 0.87
"""The part of the axis, from its left end, in which ticks have labels. A label is to the right of its tick, and needs the rest on a
phone."""


def run_timeline(spans: Sequence[StepSpan]) -> Section | None:
    """Return the Gantt chart of the run that wrote the report, a row for each stage; None if nothing is known of it."""
    if not spans:
        return None
    start = min(span.started for span in spans)
    end = max(span.finished for span in spans)
    length = max(end - start, 1e-9)
    rows = [_stage(stage, found, start, length) for stage, found in by_stage(spans).items()]
    hits = sum(span.outcome == "hit" for span in spans)
    made = sum(span.outcome == "done" for span in spans)
    summary = (
        f"{count(made, 'step')} computed and {count(hits, 'hit')} in {duration(length)}, up to this report. Bars: computed steps "
        "(misses); diamonds: hits, steps whose artifact was in the store; pale bars: attempts that later ones "
        "continued, up to their newest checkpoint; hatched bars: attempts that failed, and work that was lost."
    )
    chart = element("div", _axis(length), *rows, class_="gantt", role="list", aria_label="Steps of the run by stage")
    return Section("timeline", "The run in time", [element("figure", chart, element("figcaption", summary))], "Run")


def by_stage(spans: Sequence[StepSpan]) -> dict[str, list[StepSpan]]:
    """Return the spans by stage, in the order in which stages begin."""
    found: dict[str, list[StepSpan]] = {}
    for span in sorted(spans, key=lambda span: span.started):
        found.setdefault(span.step.partition(":")[0], []).append(span)
    return found


def lanes(spans: Sequence[StepSpan]) -> list[list[StepSpan]]:
    """Return the spans, given in the order of their starts, in as few rows as possible without an overlap in a row."""
    found: list[list[StepSpan]] = []
    for span in spans:
        free = next((lane for lane in found if lane[-1].finished <= span.started), None)
        if free is None:
            found.append([span])
        else:
            free.append(span)
    return found


def duration(seconds: float) -> str:
    """Return a duration in the largest units that fit, such as `3 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _stage(stage: str, spans: Sequence[StepSpan], start: float, length: float) -> Markup:
    busy = sum(span.finished - span.started for span in spans)
    hits = sum(span.outcome == "hit" for span in spans)
    words = ", ".join(filter(None, [duration(busy) if busy else "", count(hits, "hit") if hits else ""]))
    rows = [element("div", *(_bar(span, start, length) for span in lane), class_="lane") for lane in lanes(spans)]
    name = element("div", element("b", stage.replace("_", " ")), " ", element("span", words, class_="faint"), class_="stage")
    return element("div", name, element("div", *rows, class_="lanes"), class_="row", role="listitem")


def _bar(span: StepSpan, start: float, length: float) -> Markup:
    seconds = span.finished - span.started
    title = f"{span.step}: {span.outcome}" + (f", {duration(seconds)}" if span.outcome != "hit" else "")
    left = 100 * (span.started - start) / length
    width = 100 * seconds / length
    label = span.step.partition(":")[2] if width > 12 else ""
    style = f"left:{left:.2f}%" + ("" if span.outcome == "hit" else f";width:{width:.2f}%")
    return element("span", label, class_=f"span {span.outcome}", style=style, title=title, role="img", aria_label=title)


def _axis(length: float) -> Markup:
    """Return the ticks of the time axis."""
    step = next((tick for tick in TICKS if length / tick <= MAX_TICKS), 86400 * math.ceil(length / 86400 / MAX_TICKS))
    moments = [index * step for index in range(int(length // step) + 1)]
    ticks = [_tick(moment, moment / length) for moment in moments]
    return element("div", *ticks, class_="axis", aria_hidden="true")


def _tick(moment: int, place: float) -> Markup:
    """Return the tick of a moment in seconds at a place from 0 to 1 on the axis."""
    return element("span", _moment(moment) if place <= LAST_LABEL else "", style=f"left:{100 * place:.2f}%")


def _moment(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
