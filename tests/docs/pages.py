"""The pages of the documentation, as the tests of this folder read them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
AT_ROOT = sorted(ROOT.glob("*.md"))
PAGES = AT_ROOT + sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page, and the line that it begins on."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", text(page))


def blocks(language: str) -> list[Block]:
    """Return all blocks of one language; those of commands have none."""
    return [
        Block(name(page), text(page)[: found.start()].count("\n") + 1, found[2], found[3])
        for page in PAGES
        for found in FENCE.finditer(text(page))
        if found[2] == language
    ]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are derived where Markdown is shown."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")
        count = seen.setdefault(slug, 0)
        found.add(f"{slug}-{count}" if count else slug)
        seen[slug] += 1
    return found
