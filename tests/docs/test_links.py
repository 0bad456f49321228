"""Links, anchors and the navigation of the documentation lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import AT_ROOT, PAGES, ROOT, anchors, name, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")


def problem(page: Path, target: str) -> str | None:
    """Return what is wrong with a link, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: no such file"
    if anchor and anchor not in anchors(file):
        return f"{target}: no such heading; there are {', '.join(sorted(anchors(file)))}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_anchors_resolve(page: Path) -> None:
    targets = [target for target in LINK.findall(prose(page)) if "://" not in target and not target.startswith("mailto:")]
    assert [found for target in targets if (found := problem(page, target))] == []


def test_a_broken_link_and_a_broken_anchor_are_found() -> None:
    assert problem(ROOT / "README.md", "docs/nowhere.md") is not None
    assert problem(ROOT / "README.md", "docs/methods/dag.md#nowhere") is not None
    assert problem(ROOT / "README.md", "docs/methods/dag.md#options") is None


def test_the_navigation_of_the_site_lists_every_page() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    at_root = {"index.md" if page.name == "README.md" else page.name for page in AT_ROOT}
    inside = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page not in AT_ROOT}
    assert sorted(listed) == sorted(at_root | inside)


@pytest.mark.parametrize("figure", sorted((ROOT / "docs").rglob("*.svg")), ids=name)
def test_every_figure_is_shown_on_a_page(figure: Path) -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in LINK.findall(prose(page)) if target.endswith(".svg")}
    assert figure in shown
