"""A sentence's graph as SVG (Huang et al. 2022, figure 9): layers from left to right, transitions led around other vertices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from stages.report.figures import INK, MUTED, SERIES

if TYPE_CHECKING:
    from models.dag.analysis import View

HIDDEN = 0.1
"""Vertices of less passing probability are not shown."""
TRANSITIONS = 0.9
"""The most probable transitions are shown until they make up so much."""
TOKENS = 0.05
"""Tokens of less probability are not shown, but for the best of a vertex."""
LINE, LETTER, GAP, LANE, MARGIN = 15, 7.0, 52, 12, 10
"""In pixels: height of a line, width of a letter, between layers, between what stands in one layer, around all."""

SWEEPS = 8
"""Times that all layers are put in order anew, to and fro."""


@dataclass(frozen=True)
class Vertex:
    """One that is shown."""

    number: int
    passing: float
    words: Sequence[tuple[str, float]]
    """Tokens with their probabilities, best first."""

    @property
    def lines(self) -> list[str]:
        return [f"{self.number} · {self.passing:.2f}", *(f"{word} {probability:.2f}" for word, probability in self.words)]


@dataclass(frozen=True)
class Drawing:
    """What is shown of a graph."""

    vertices: Sequence[Vertex]
    """By number."""
    transitions: Sequence[tuple[int, int, float]]
    """From, to, probability."""


def drawing_of(view: View, piece: Callable[[int], str]) -> Drawing:
    """What is shown of a graph; `piece` is the text of a token."""
    from models.dag.analysis import most_probable

    passing = view.passing.tolist()
    shown = [vertex for vertex, probability in enumerate(passing) if probability >= HIDDEN]
    vertices = []
    for vertex in shown:
        pairs = list(zip(view.top_tokens.ids[vertex].tolist(), view.top_tokens.scores[vertex].tolist(), strict=True))
        words = [
            (piece(token), probability) for rank, (token, probability) in enumerate(pairs) if not rank or probability >= TOKENS
        ]
        vertices.append(Vertex(vertex, passing[vertex], words))
    kept = most_probable(view.transitions, TRANSITIONS)
    transitions = [(i, j, float(view.transitions[i, j])) for i in shown for j in shown if kept[i, j]]
    return Drawing(vertices, transitions)


@dataclass
class _Place:
    """A vertex, or where a transition passes a layer."""

    layer: int
    width: float
    """0 at first where a transition passes: then that of the layer."""
    height: float
    x: float = 0.0
    """Of the left side."""
    y: float = 0.0
    """Of the middle."""


def draw(drawing: Drawing) -> str:
    """An SVG document. The same drawing gives the same bytes."""
    places, routes = _laid_out(drawing)
    top = min(place.y - place.height / 2 for place in places.values()) - MARGIN
    bottom = max(place.y + place.height / 2 for place in places.values()) + MARGIN
    right = max(place.x + place.width for place in places.values()) + MARGIN
    body = [_transition(route, probability) for route, (_, _, probability) in zip(routes, drawing.transitions, strict=True)]
    body += [_vertex(vertex, places[vertex.number]) for vertex in drawing.vertices]
    size = f'width="{right:.0f}" height="{bottom - top:.0f}" viewBox="0 {top:.1f} {right:.0f} {bottom - top:.1f}"'
    style = f"width: {right:.0f}px; max-width: none; font: 12px sans-serif"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">\n{"".join(body)}</svg>\n'


def _laid_out(drawing: Drawing) -> tuple[dict[int | tuple[int, int, int], _Place], list[list[_Place]]]:
    """Places of vertices and of the layers that transitions pass, and the places that each transition comes along."""
    places: dict[int | tuple[int, int, int], _Place] = {}
    last = 0
    for vertex in drawing.vertices:
        before = [places[i].layer for i, j, _ in drawing.transitions if j == vertex.number]
        last = max(before) + 1 if before else last + 1 if places else 0
        longest = max(map(len, vertex.lines))
        places[vertex.number] = _Place(last, longest * LETTER + 14, len(vertex.lines) * LINE + 8)
    routes = []
    for i, j, _ in drawing.transitions:
        passed = range(places[i].layer + 1, places[j].layer)
        places |= {(i, j, layer): _Place(layer, 0, 4) for layer in passed}
        routes.append([places[i], *(places[i, j, layer] for layer in passed), places[j]])
    _arrange(list(places.values()), routes)
    return places, routes


def _arrange(places: list[_Place], routes: list[list[_Place]]) -> None:
    """Set x by layer, and y by an order in which each stands near the middle of what it is joined with."""
    layers = [[place for place in places if place.layer == layer] for layer in range(max(place.layer for place in places) + 1)]
    x = float(MARGIN)
    for layer in layers:
        width = max(place.width for place in layer) if layer else 0.0
        for place in layer:
            place.width = place.width or width
            place.x = x + (width - place.width) / 2
        x += width + GAP
        _stack(layer)
    joined: dict[int, list[_Place]] = {id(place): [] for place in places}
    for route in routes:
        for one, other in pairwise(route):
            joined[id(one)].append(other)
            joined[id(other)].append(one)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            middles = {id(p): sum(o.y for o in joined[id(p)]) / max(1, len(joined[id(p)])) for p in layer}
            layer.sort(key=lambda place: middles[id(place)])
            _stack(layer)


def _stack(layer: list[_Place]) -> None:
    """One below the other around y = 0."""
    y = -(sum(place.height + LANE for place in layer) - LANE) / 2
    for place in layer:
        place.y = y + place.height / 2
        y += place.height + LANE


def _transition(route: list[_Place], probability: float) -> str:
    path = f"M{route[0].x + route[0].width:.1f},{route[0].y:.1f}"
    for one, other in pairwise(route):
        bend = (other.x - one.x - one.width) / 2
        path += f" H{one.x + one.width:.1f}" if one is not route[0] else ""
        path += f" C{one.x + one.width + bend:.1f},{one.y:.1f} {other.x - bend:.1f},{other.y:.1f} {other.x:.1f},{other.y:.1f}"
    style = f"fill: none; stroke: {MUTED}; stroke-width: {0.6 + 2.2 * probability:.2f}; opacity: {0.3 + 0.6 * probability:.2f}"
    x = (route[0].x + route[0].width + route[1].x) / 2
    y = (route[0].y + route[1].y) / 2 - 3
    label = f'<text x="{x:.1f}" y="{y:.1f}" style="fill: {MUTED}; font-size: 9px; text-anchor: middle">{probability:.2f}</text>'
    return f'<g class="transition"><path d="{path}" style="{style}"/>{label}</g>\n'


def _vertex(vertex: Vertex, place: _Place) -> str:
    top = place.y - place.height / 2
    box = f'x="{place.x:.1f}" y="{top:.1f}" width="{place.width:.1f}" height="{place.height:.1f}" rx="5"'
    style = f"fill: {SERIES[0]}; fill-opacity: {0.06 + 0.3 * vertex.passing:.2f}; stroke: {SERIES[0]}; stroke-opacity: 0.6"
    looks = [f"fill: {MUTED}; font-size: 9px", f"fill: {INK}; font-weight: 600", *[f"fill: {MUTED}"] * len(vertex.words)]
    texts = [
        f'<text x="{place.x + place.width / 2:.1f}" y="{top + 14 + LINE * line:.1f}" style="{look}; text-anchor: middle">'
        f"{escape(text)}</text>"
        for line, (text, look) in enumerate(zip(vertex.lines, looks, strict=False))
    ]
    return f'<g class="vertex" id="vertex-{vertex.number}"><rect {box} style="{style}"/>{"".join(texts)}</g>\n'
