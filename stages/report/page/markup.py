"""HTML elements whose text is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

VOID = {"meta", "br", "hr", "wbr"}


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


def breakable(text: str) -> Markup:
    """Return a text that may be broken after a slash and an underscore, such as the name of an entry."""
    return Markup(re.sub(r"(?<=[/_])", element("wbr"), join([text]))) if not isinstance(text, Markup) else text


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 system`, `1,200 systems`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def table(
    heads: Sequence[object],
    rows: Iterable[Sequence[object]],
    text: Collection[int] = (0,),
    caption: str | None = None,
    sortable: bool = True,
) -> Markup:
    """Return a table that scrolls sideways if it is wide, and whose rows can be sorted if it has several.

    The columns `text` hold text, all others numbers.
    """
    lines = [list(row) for row in rows]
    heading = [element("th", value, scope="col", **({"class_": "text"} if i in text else {})) for i, value in enumerate(heads)]
    body = [element("tr", *(_table_cell(value, column, column in text) for column, value in enumerate(row))) for row in lines]
    attributes = {"class_": "sortable"} if sortable and len(lines) > 1 else {}
    parts = [element("thead", element("tr", *heading)), element("tbody", *body)]
    scrolled = element("div", element("table", *parts, **attributes), class_="scroll", tabindex="0")
    return element("figure", scrolled, element("figcaption", caption), class_="table") if caption else scrolled


def _table_cell(value: object, column: int, is_text: bool) -> Markup:
    if column == 0:
        return element(
            "th", breakable(value) if isinstance(value, str) else value, scope="row", **({"class_": "text"} if is_text else {})
        )
    return element("td", value, **({"class_": "text wrap"} if is_text else {}))


@dataclass(frozen=True)
class Section:
    """A section of the page, with its place in the navigation."""

    name: str
    """Name from which its id follows."""
    title: str
    body: Sequence[object]
    label: str = ""
    """Title in the navigation. Empty: the title."""

    @property
    def id(self) -> str:
        """The id of the section's element."""
        return "section-" + re.sub(r"[^\w-]+", "-", self.name)

    @property
    def short(self) -> str:
        """The title in the navigation."""
        return self.label or self.title


def section_element(section: Section) -> Markup:
    """Return a section with its heading."""
    heading = element("h2", section.title, id=f"{section.id}-title")
    return element("section", heading, *section.body, id=section.id, aria_labelledby=f"{section.id}-title")
