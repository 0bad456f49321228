"""Rules of prose for docstrings, comments, error messages, help texts and pages.

`tests/test_prose.py` applies them; `python -m tests.prose_rules` prints all findings and their number by folder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.prose_texts import Passage, passages


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


if __name__ == "__main__":
    main()
