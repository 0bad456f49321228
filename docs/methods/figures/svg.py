"""A small SVG canvas, so that all figures share their colours, fonts and arrows."""

from __future__ import annotations

from html import escape
from pathlib import Path

INK, MUTED, LINE, PAPER = "#1f2937", "#64748b", "#94a3b8", "#ffffff"
BLUE, ORANGE, GREEN, GREY = "#2563a8", "#c2560c", "#1f7a4d", "#e8edf3"
PALE = {BLUE: "#dbe9f8", ORANGE: "#fde3cf", GREEN: "#d9f0e3", MUTED: "#eef2f6"}
STEPS = ("#dbe9f8", "#fde3cf", "#d9f0e3", "#eadcf5", "#f8e3ea", "#e3eef0")
FONT = "font-family=\"'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\""


class Canvas:
    """Shapes on a white sheet of `width` x `height` pixels; coordinates start at the top left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self._parts = [""]

    def text(
        self, x: float, y: float, words: str, *, size: int = 14, color: str = INK, anchor: str = "middle", bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        *,
        fill: str = PAPER,
        stroke: str = LINE,
        bold: bool = False,
        size: int = 14,
    ) -> None:
        """Draw a rounded box with `words` in its centre."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{5 if height > 24 else 1}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )
        if words:
            self.text(x + width / 2, y + height / 2 + size * 0.36, words, bold=bold, size=size)

    def circle(
        self, x: float, y: float, radius: float, words: str = "", *, fill: str = PAPER, stroke: str = LINE, size: int = 13
    ) -> None:
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>')
        if words:
            self.text(x, y + size * 0.36, words, size=size)

    def line(self, points: str, *, color: str = LINE, width: float = 1.5, arrow: bool = False, dashed: bool = False) -> None:
        """Draw an SVG path, such as `M0 0 L10 10`, with an arrow head at its end where asked for."""
        head = f' marker-end="url(#{color[1:]})"' if arrow else ""
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self._parts.append(f'<path d="{points}" fill="none" stroke="{color}" stroke-width="{width:g}"{head}{dash}/>')

    def write(self, path: Path) -> None:
        """Write the figure, the same bytes for the same shapes."""
        width, height = self.size
        heads = "".join(
            f'<marker id="{color[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
            'markerWidth="10" markerHeight="10" orient="auto">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{color}"/></marker>'
            for color in (LINE, INK, BLUE, ORANGE, GREEN, MUTED)
        )
        body = "\n".join(self._parts[1:])
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'{FONT} role="img">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{heads}</defs>\n"
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n',
            encoding="utf-8",
        )
