"""Drawing of the DAG of a sentence as SVG (Huang et al. 2022, figure 9).

Layers run from left to right; transitions are routed around the vertices of the layers that they pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from stages.shared.figures.canvas import INK, MUTED, SERIES, as_svg, cycle, panels, style

if TYPE_CHECKING:
    from models.dag.analysis import View

HIDDEN = 0.1
"""Vertices with a lower passing probability are not shown."""
TRANSITIONS = 0.9
"""Probability mass of the transitions that are shown, most probable first."""
TOKENS = 0.05
"""Tokens with a lower probability are not shown, except the best token of a vertex."""
LINE = 15
"""Height of a line, in pixels."""
LETTER = 7.0
"""Width of a letter, in pixels."""
GAP = 52
"""Gap between layers, in pixels."""
LANE = 12
"""Gap within a layer, in pixels."""
MARGIN = 10
"""Margin, in pixels."""

SWEEPS = 8
"""Number of times that the layers are reordered, alternately from the left and from the right."""


@dataclass(frozen=True)
class Vertex:
    """A vertex of a drawing."""

    number: int
    passing: float
    tokens: Sequence[tuple[str, float]]
    """Pieces with their probabilities, best first."""

    @property
    def lines(self) -> list[str]:
        """The text of the vertex."""
        return [f"{self.number} · {self.passing:.2f}", *(f"{piece} {probability:.2f}" for piece, probability in self.tokens)]


@dataclass(frozen=True)
class Drawing:
    """The vertices and transitions of a drawing."""

    vertices: Sequence[Vertex]
    """Vertices by increasing number."""
    transitions: Sequence[tuple[int, int, float]]
    """Triples (from, to, probability)."""


def drawing_of(view: View, piece: Callable[[int], str]) -> Drawing:
    """Select the vertices, tokens and transitions to draw. `piece` returns the piece of a token id."""
    from models.dag.analysis import most_probable

    passing = view.passing.tolist()
    shown = [vertex for vertex, probability in enumerate(passing) if probability >= HIDDEN]
    vertices = []
    for vertex in shown:
        pairs = list(zip(view.top_tokens.ids[vertex].tolist(), view.top_tokens.scores[vertex].tolist(), strict=True))
        tokens = [
            (piece(token), probability) for rank, (token, probability) in enumerate(pairs) if not rank or probability >= TOKENS
        ]
        vertices.append(Vertex(vertex, passing[vertex], tokens))
    kept = most_probable(view.transitions, TRANSITIONS)
    transitions = [(i, j, float(view.transitions[i, j])) for i in shown for j in shown if kept[i, j]]
    return Drawing(vertices, transitions)


@dataclass
class _Box:
    """The rectangle of a vertex, or the space that a passing transition takes in a layer."""

    layer: int
    width: float
    """Width in pixels; for a passing transition 0 until it is set to the width of the layer."""
    height: float
    x: float = 0.0
    """Left side."""
    y: float = 0.0
    """Vertical middle."""


def draw(drawing: Drawing) -> str:
    """Return an SVG document. The same drawing gives the same bytes."""
    boxes, routes = _laid_out(drawing)
    top = min(box.y - box.height / 2 for box in boxes.values()) - MARGIN
    bottom = max(box.y + box.height / 2 for box in boxes.values()) + MARGIN
    right = max(box.x + box.width for box in boxes.values()) + MARGIN
    body = [_transition(route, probability) for route, (_, _, probability) in zip(routes, drawing.transitions, strict=True)]
    body += [_vertex(vertex, boxes[vertex.number]) for vertex in drawing.vertices]
    size = f'width="{right:.0f}" height="{bottom - top:.0f}" viewBox="0 {top:.1f} {right:.0f} {bottom - top:.1f}"'
    style = f"width: {right:.0f}px; max-width: none; font: 12px sans-serif"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">\n{"".join(body)}</svg>\n'


def _laid_out(drawing: Drawing) -> tuple[dict[int | tuple[int, int, int], _Box], list[list[_Box]]]:
    """Return the boxes of vertices and passing transitions, and for each transition the boxes on its route."""
    boxes: dict[int | tuple[int, int, int], _Box] = {}
    last = 0
    for vertex in drawing.vertices:
        before = [boxes[i].layer for i, j, _ in drawing.transitions if j == vertex.number]
        if boxes:
            last = max(before, default=last) + 1  # a vertex that no drawn transition leads to follows the one before it
        longest = max(map(len, vertex.lines))
        boxes[vertex.number] = _Box(last, longest * LETTER + 14, len(vertex.lines) * LINE + 8)
    routes = []
    for i, j, _ in drawing.transitions:
        passed = range(boxes[i].layer + 1, boxes[j].layer)
        boxes |= {(i, j, layer): _Box(layer, 0, 4) for layer in passed}
        routes.append([boxes[i], *(boxes[i, j, layer] for layer in passed), boxes[j]])
    _arrange(list(boxes.values()), routes)
    return boxes, routes


def _arrange(boxes: list[_Box], routes: list[list[_Box]]) -> None:
    """Set x by layer, and y by an order in which each box is close to the mean of the boxes that it is connected to."""
    layers = [[box for box in boxes if box.layer == layer] for layer in range(max(box.layer for box in boxes) + 1)]
    x = float(MARGIN)
    for layer in layers:
        width = max(box.width for box in layer) if layer else 0.0
        for box in layer:
            box.width = box.width or width
            box.x = x + (width - box.width) / 2
        x += width + GAP
        _stack(layer)
    joined: dict[int, list[_Box]] = {id(box): [] for box in boxes}
    for route in routes:
        for one, other in pairwise(route):
            joined[id(one)].append(other)
            joined[id(other)].append(one)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            middles = {id(p): sum(o.y for o in joined[id(p)]) / max(1, len(joined[id(p)])) for p in layer}
            layer.sort(key=lambda box: middles[id(box)])
            _stack(layer)


def _stack(layer: list[_Box]) -> None:
    """Stack the boxes of a layer around y = 0."""
    y = -(sum(box.height + LANE for box in layer) - LANE) / 2
    for box in layer:
        box.y = y + box.height / 2
        y += box.height + LANE


def _transition(route: list[_Box], probability: float) -> str:
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


def _vertex(vertex: Vertex, box: _Box) -> str:
    top = box.y - box.height / 2
    outline = f'x="{box.x:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5"'
    style = f"fill: {SERIES[0]}; fill-opacity: {0.06 + 0.3 * vertex.passing:.2f}; stroke: {SERIES[0]}; stroke-opacity: 0.6"
    looks = [f"fill: {MUTED}; font-size: 9px", f"fill: {INK}; font-weight: 600", *[f"fill: {MUTED}"] * len(vertex.tokens)]
    texts = [
        f'<text x="{box.x + box.width / 2:.1f}" y="{top + 14 + LINE * line:.1f}" style="{look}; text-anchor: middle">'
        f"{escape(text)}</text>"
        for line, (text, look) in enumerate(zip(vertex.lines, looks, strict=False))
    ]
    return f'<g class="vertex" id="vertex-{vertex.number}"><rect {outline} style="{style}"/>{"".join(texts)}</g>\n'


def posteriors(tokens: Sequence[str], networks: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Draw the posterior over vertices of each token, with a panel for each network (one or two). Posteriors have shape [M][L]."""
    with style():
        figure, (left, right) = panels()
        if len(networks) == 1:
            right.remove()
        for axes, (name, rows) in zip((left, right), networks.items(), strict=False):
            for token, row, colour in zip(tokens, rows, cycle(len(tokens)), strict=True):
                axes.plot(row, color=colour, linewidth=1.4)
                peak = max(range(len(row)), key=row.__getitem__)
                label = token.replace("$", r"\$")
                axes.annotate(
                    label, (peak, row[peak]), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7, rotation=90
                )
            axes.set(title=name, xlabel="vertex", ylim=(0, 1.35), yticks=(0, 0.5, 1))
            axes.margins(x=0.02)
        left.set_ylabel("probability given the target")
        return as_svg(figure)


def statistics(joint: Sequence[Sequence[int]], out_degrees: Mapping[str, int]) -> str:
    """Draw the joint distribution of passing and token probabilities (left, as areas) and of out-degrees (right, in per cent)."""
    with style():
        figure, (left, right) = panels()
        total = max(1, sum(map(sum, joint)))
        cells = len(joint)
        points = [
            (
                (column + 0.5) / cells,
                (row + 0.5) / cells,
                3000 * count / total,
                _colour((row + 0.5) / cells, (column + 0.5) / cells),
            )
            for row, counts in enumerate(joint)
            for column, count in enumerate(counts)
            if count
        ]
        if points:
            xs, ys, areas, colours = zip(*points, strict=True)
            left.scatter(xs, ys, s=areas, c=colours, alpha=0.8, linewidths=0)
        left.set(title="Vertices", xlabel="probability of the best token", ylabel="passing probability", xlim=(0, 1), ylim=(0, 1))
        reached = max(1, sum(out_degrees.values()))
        right.bar(
            [int(degree) for degree in out_degrees], [100 * count / reached for count in out_degrees.values()], color=SERIES[0]
        )
        right.set(title="Successors of a vertex, % of vertices", xlabel="distinct tokens at the end of 80 % of its transitions")
        right.set_xticks([int(degree) for degree in out_degrees])
        right.grid(visible=False, axis="x")
        return as_svg(figure)


def _colour(passing: float, token: float) -> str:
    """Return the colour of the category of a vertex: likely, confident, vague, or another."""
    if passing > 0.5:
        return SERIES[0]
    if token > 0.5:
        return SERIES[2]
    return SERIES[1] if max(passing, token) < 0.2 else MUTED
