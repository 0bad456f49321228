"""Write HTML so that text cannot become markup by accident."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence

VOID = {"meta", "br", "hr"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str) -> Markup:
    """`<name attribute="...">children</name>`. Strings are escaped, `Markup` is not; a trailing `_` of an attribute is dropped."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[object], separator: str = "") -> Markup:
    """Children one after the other, escaped unless they are `Markup`; None is left out."""
    return Markup(
        separator.join(child if isinstance(child, Markup) else html.escape(str(child)) for child in children if child is not None)
    )


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 system`, `1,200 systems`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], text: Collection[int] = (0,), caption: str | None = None
) -> Markup:
    """A table that scrolls sideways where it must; the columns `text` hold words, all others numbers."""

    def cells(name: str, values: Sequence[object], kind: str) -> list[Markup]:
        return [element(name, value, **({"class_": kind} if column in text else {})) for column, value in enumerate(values)]

    head = element("thead", element("tr", *cells("th", heads, "text")))
    body = element("tbody", *(element("tr", *cells("td", row, "text wrap")) for row in rows))
    return element("div", element("table", element("caption", caption) if caption else None, head, body), class_="scroll")
