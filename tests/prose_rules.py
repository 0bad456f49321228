"""Rules of prose, and the texts that they hold for."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """A broken rule at a line of a file."""

    path: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


PHRASES = {
    r"tells|told": "'tells' and 'told' are not used; write states, reports, shows, distinguishes or names",
    r"of equals": "'of equals' is not used; name how ties are broken",
    r"so many": "'so many' is not used; name the number",
    r"anew": "'anew' is not used; write again, or name what is replaced",
    r"made of none": "'made of none' is not used; write that there are no such items",
    r"is none|are none": "'is none' is not used; write 'is not a ...' or 'there is no ...'",
    r"(?:go|goes|going|gone) together with": "'go together with' is not used; write 'is valid with' or 'can be combined with'",
    r"what \w+(?: \w+)? (?:has|have) not": "'what X has not' is not used; name what is missing",
    r"likewise": "'likewise' is not used; repeat the word that it stands for",
}
"""Phrases as regular expressions, and the advice for each."""

PATTERNS = {re.compile(r"\b(?:" + phrase.replace(" ", r"\s+") + r")\b"): advice for phrase, advice in PHRASES.items()}

OPENER = re.compile(r"(What|Which|Whose|Of)\b")
QUESTION = re.compile(r"(Does|Do|Is|Are|Has|Have|Can)\b[^.!?]*\?")
STARTS = "open with a verb ('Return ...') or a noun phrase with an article, and write a whole sentence"
CODE = re.compile(r"``[^`]*``|`[^`]*`")
ENDS = (".", "!", "?", ":", ".)", '."', ".'")


def check(passage: Passage) -> list[Finding]:
    """Return all broken rules of a passage, each with the line on which it is."""
    found = [*_phrases(passage)]
    first = passage.text.split("\n", 1)[0]
    excerpt = repr(first if len(first) <= 60 else f"{first[:57]}...")
    if passage.kind in ("docstring", "page"):
        found += [Finding(passage.path, passage.line, f"{excerpt} {problem}") for problem in _opening(passage.text)]
    if passage.kind == "docstring":
        found += [Finding(passage.path, passage.line, f"{excerpt} {problem}") for problem in _sentence(passage.text)]
    return found


def _phrases(passage: Passage) -> Iterator[Finding]:
    text = CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), passage.text)
    for pattern, advice in PATTERNS.items():
        for match in pattern.finditer(text):
            yield Finding(passage.path, passage.line + text.count("\n", 0, match.start()), advice)


def _opening(text: str) -> Iterator[str]:
    if match := OPENER.match(text):
        yield f"opens with {match[1]!r}; {STARTS}"
    elif QUESTION.match(text):
        yield "asks a question; write 'True if ...' or 'Return whether ...'"


def _sentence(text: str) -> Iterator[str]:
    if text[0].islower():
        yield f"starts with a lower-case letter; {STARTS}"
    *_, last = text.splitlines()
    if not last.startswith("    ") and not last.rstrip("`").endswith(ENDS):
        yield "does not end in punctuation; end the last sentence with a full stop"


def main() -> None:
    """Print all findings, then their number by folder."""
    found = [finding for passage in passages() for finding in check(passage)]
    print(*found, sep="\n")
    for folder, count in sorted(Counter("/".join(finding.path.split("/")[:-1][:2]) for finding in found).items()):
        print(f"{count:6} {folder or 'top level'}")
    print(f"{len(found):6} findings")


ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("fewstep", "durable", "kernels", "models", "stages", "pipeline", "benchmarks", "tests", "configs", "docker", "docs")
EXEMPT = ("tests/prose_rules.py", "tests/test_prose.py")
"""Files that name the phrases in order to forbid them."""


@dataclass(frozen=True)
class Passage:
    """A piece of text that starts at a line of a file.

    `kind` is `docstring` (a help text too), `comment`, `message` (of an exception), or `page` (a paragraph, heading or list item
    of Markdown).
    """

    path: str
    line: int
    kind: Literal["docstring", "comment", "message", "page"]
    text: str


def passages(root: Path = ROOT) -> Iterator[Passage]:
    """Yield the passages of all files below `root` that the rules apply to."""
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))] + sorted(root.glob("*.md"))
    for path in files:
        name = str(path.relative_to(root))
        if name not in EXEMPT and path.suffix in READERS and path.is_file():
            yield from READERS[path.suffix](name, path.read_text(encoding="utf-8"))


def of_python(path: str, source: str) -> Iterator[Passage]:
    """Yield docstrings (those below fields and constants included), help texts, comments, names of tests and messages of
    exceptions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and (text := _text_of(node.value)) and text.strip():
            yield Passage(path, node.lineno, "docstring", _dedented(text, node.col_offset))
        elif isinstance(node, ast.keyword) and node.arg == "help" and (text := _text_of(node.value)):
            yield Passage(path, node.value.lineno, "docstring", text)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Passage(path, node.lineno, "comment", node.name.replace("_", " "))
        elif isinstance(node, ast.Raise):
            yield from (Passage(path, node.lineno, "message", text) for part in ast.walk(node) if (text := _text_of(part)))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(path, token.start[0], "comment", token.string)


def of_lines(path: str, source: str) -> Iterator[Passage]:
    """Yield the comments of C++ (`//`), YAML and shell (`#`), line by line."""
    for number, line in enumerate(source.splitlines(), 1):
        if match := re.search(r"(?:^|\s)(?://|#)\s(.*)", line):
            yield Passage(path, number, "comment", match[1])


def of_markdown(path: str, source: str) -> Iterator[Passage]:
    """Yield headings, paragraphs, list items and rows of tables, without fenced code."""
    block: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        starts = re.match(r"\s*(?:[-*] |\d+\. |#+ |\||$|```)", line)
        if block and (starts or fenced or block[0].startswith("#")):
            yield Passage(path, start, "page", _unmarked("\n".join(block)))
            block = []
        fenced ^= line.lstrip().startswith("```")
        if not fenced and line.strip() and not line.lstrip().startswith(("```", "<!--")):
            start = start if block else number
            block.append(line)


def _unmarked(block: str) -> str:
    """The block without the marks of headings, lists, tables and emphasis before its first word."""
    return re.sub(r"^\s*(?:[-*] |\d+\. |#+ |\|)?\s*[*_]*", "", block)


def _dedented(text: str, margin: int) -> str:
    """The docstring without its margin; lines of code stay indented."""
    first, *rest = text.strip().split("\n")
    return "\n".join([first, *(line[margin:] for line in rest)])


def _text_of(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


READERS = {".py": of_python, ".pyi": of_python, ".md": of_markdown, ".yaml": of_lines, ".h": of_lines, ".cc": of_lines}
"""How to read a file by its suffix."""


if __name__ == "__main__":
    main()
