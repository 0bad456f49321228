"""HTML elements whose text is escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence

VOID = {"meta", "br", "hr"}


class Markup(str):
    """Text that is HTML and is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str) -> Markup:
    """Return `<name attribute="...">children</name>`.

    Strings are escaped, `Markup` is not. A trailing `_` in the name of an attribute is dropped.
    """
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[object], separator: str = "") -> Markup:
    """Join children, escaped unless they are `Markup`. None is skipped."""
    return Markup(
        separator.join(child if isinstance(child, Markup) else html.escape(str(child)) for child in children if child is not None)
    )


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 system`, `1,200 systems`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], text: Collection[int] = (0,), caption: str | None = None
) -> Markup:
    """Return a table that scrolls sideways if it is wide. The columns `text` hold text, all others numbers."""

    def cells(name: str, values: Sequence[object], kind: str) -> list[Markup]:
        return [element(name, value, **({"class_": kind} if column in text else {})) for column, value in enumerate(values)]

    head = element("thead", element("tr", *cells("th", heads, "text")))
    body = element("tbody", *(element("tr", *cells("td", row, "text wrap")) for row in rows))
    return element("div", element("table", element("caption", caption) if caption else None, head, body), class_="scroll")
