"""Figures of the page."""

from __future__ import annotations

from stages.report.page.markup import Markup, element
from stages.shared.figures.canvas import CARD, inlined, page_colour
from stages.shared.figures.drawing import Drawing, Entry, Figure


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
