"""Hooks of the site: files outside docs/ become part of it, and links to them are rewritten.

README.md is the front page, and the other pages at the repository's root keep their names. Links that leave docs/
(`../../configs/demo.yaml`) point to the repository's root there and to the site's root here, so one step up falls away.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.name: "index.md" if path.name == "README.md" else path.name for path in ROOT.glob("*.md")}
FILES = [path for pattern in ("configs/**/*.yaml", "benchmarks/results/*.json") for path in sorted(ROOT.glob(pattern))]
OUTSIDE = ("configs/", "benchmarks/results/", *PAGES)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's root, and the configs and results that pages link to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in FILES:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between the repository's root and docs/. A link to source code becomes its text: the site has no sources."""
    source = page.file.src_uri

    def rewrite(match: re.Match[str]) -> str:
        start, text, target = match.groups()
        found = _on_site(source, target)
        return text if found is None else f"{start}[{text}]({found})"

    return LINK.sub(rewrite, markdown)


def _on_site(source: str, target: str) -> str | None:
    """Return the target of a link on the site; None if the site does not have it."""
    if "://" in target or target.startswith(("#", "mailto:")):
        return target
    leaving = "../" * source.count("/") + "../"
    if source in PAGES.values():
        if not target.startswith(("docs/", *OUTSIDE)):
            return None
        target = target.removeprefix("docs/")
    elif target.startswith(leaving):
        if not target.removeprefix(leaving).startswith(OUTSIDE):
            return None
        target = target.removeprefix("../")
    return re.sub(r"README\.md(#|$)", r"index.md\1", target)
