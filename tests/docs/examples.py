"""Code on the pages, copied from files of the repository.

A line `<!-- file: PATH -->` or `<!-- file: PATH#NAME -->` is followed by a block with the file, or with one function, class or
constant of a Python file. `python -m tests.docs.examples` writes the blocks again.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.pages import PAGES, ROOT

PLACE = re.compile(r"^<!-- file: (?P<path>[^\s#]+)(?:#(?P<name>\w+))? -->\n(?:\n?```\w*\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".h": "cpp", ".cc": "cpp"}


def with_blocks(page: str, root: Path = ROOT) -> str:
    """Return a page with the current code in all blocks. Raises FileNotFoundError or LookupError for a missing file or name."""
    return PLACE.sub(lambda place: _block(place, root), page)


def places(page: str) -> list[str]:
    """Return the path of each block of code that a page copies from a file."""
    return [place["path"] for place in PLACE.finditer(page)]


def _block(place: re.Match[str], root: Path) -> str:
    path, name = place["path"], place["name"]
    source = (root / path).read_text(encoding="utf-8")
    code = _definition(source, name, path) if name else source.strip()
    mark = place[0].split("\n", 1)[0]
    return f"{mark}\n```{LANGUAGES[Path(path).suffix]}\n{code}\n```\n"


def _definition(source: str, name: str, path: str) -> str:
    """Return the lines of a definition at the top level, decorators included."""
    for node in ast.parse(source).body:
        if name in _names(node):
            start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
            return "\n".join(source.splitlines()[start - 1 : node.end_lineno])
    raise LookupError(f"{path}: expected a definition of {name} at the top level, found none")


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [target.id for target in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(target, ast.Name)]


def main() -> None:
    """Write the blocks of all pages."""
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        path.write_text(with_blocks(page), encoding="utf-8")


if __name__ == "__main__":
    main()
