"""Write the tables of papers' settings in `docs/methods`, from quotations and recipes: `python -m tests.recipes.settings`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipeline.config.load import load_config, resolved
from tests.recipes.twins import PAPERS, ROOT

METHODS = ROOT / "docs/methods"
HEADING = "### Settings of the paper, the authors' code and the recipe"
QUOTATIONS = Path(__file__).with_name("quotations.yaml")


class Quotation(NamedTuple):
    """A value that a paper states."""

    place: str
    """The section or table."""
    phrase: str
    """A short phrase of the paper's text, with white space joined."""
    value: str
    """The value, as the phrase has it."""


class Setting(NamedTuple):
    """A row of a table."""

    key: str
    paper: Quotation | None
    code: tuple[str, str] | None
    """The value in the authors' code, and the file that states it."""
    reason: str


class Page(NamedTuple):
    """The settings of a method."""

    recipe: str
    code: str
    """The authors' code."""
    settings: list[Setting]


def read_pages() -> dict[str, Page]:
    """Return the settings by page."""
    values = yaml.safe_load(QUOTATIONS.read_text(encoding="utf-8"))
    return {name: Page(page["recipe"], page["code"], list(_settings(page["rows"]))) for name, page in values.items()}


def _settings(rows: dict[str, dict[str, Any]]) -> Iterator[Setting]:
    for key, row in rows.items():
        paper, code = row.get("paper"), row.get("code")
        yield Setting(key, paper and Quotation(*paper), code and (code[0], code[1]), row.get("reason", ""))


def section(page: Page) -> str:
    """Return the heading and the table of a page."""
    found = resolved(load_config(PAPERS / f"{page.recipe}.yaml"))
    path = f"configs/papers/{page.recipe}.yaml"
    lines = [
        HEADING,
        "",
        f"Values of [{path}](../../{path}) by their keys in the resolved config, with the place in the paper and the file of the "
        f"code that state them. `tests/recipes/quotations.yaml` quotes the paper for each. Code: {page.code}.",
        "",
        "| key | paper | authors' code | recipe | reason for the difference |",
        "|---|---|---|---|---|",
        *(_line(one, found) for one in page.settings),
    ]
    return "\n".join(lines)


def _line(one: Setting, found: Any) -> str:
    paper = "not stated" if one.paper is None else f"{one.paper.value} ({one.paper.place})"
    code = "not stated" if one.code is None else f"{one.code[0]} ({_file(one.code[1])})"
    for part in one.key.split("."):
        found = found[part]
    own = yaml.safe_dump(found, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return f"| `{one.key}` | {paper} | {code} | `{own}` | {one.reason} |".replace("|  |", "| |")


def _file(name: str) -> str:
    return f"`{name}`" if "." in name and " " not in name else name


def replaced(text: str, page: Page) -> str:
    """Return the text of a page of `docs/methods` with its table."""
    before, _, after = text.partition(HEADING)
    return before + section(page) + "\n" + after[after.index("\n#") :]


def main() -> None:
    """Write the tables."""
    for name, page in read_pages().items():
        path = METHODS / f"{name}.md"
        path.write_text(replaced(path.read_text(encoding="utf-8"), page), encoding="utf-8")


if __name__ == "__main__":
    main()
