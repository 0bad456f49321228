"""Links of the pages lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def prose(page: Path) -> str:
    """Return the text of a page without fenced code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in (first or second for first, second in LINK.findall(prose(page))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists():
            broken.append(f"{link}: expected a file at {target.resolve()}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{link}: expected one of the headings {sorted(anchors(target))}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    found = broken_links(page)
    assert not found, f"{page.relative_to(ROOT)}: " + "\n".join(found)


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# A `title`, with [a link](c)\n```\n# none\n```\n")
    page = tmp_path / "a.md"
    good = "[1](b.md#a-title-with-a-link) [2](#here) [3](https://x/y)"
    page.write_text(f"# Here\n{good} [4](c.md) [5](b.md#none) [6](#there)\n```\n[7](d.md)\n```\n")
    assert [link.partition(":")[0] for link in broken_links(page)] == ["c.md", "b.md#none", "#there"]
