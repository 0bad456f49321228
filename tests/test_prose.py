"""Docstrings, comments, messages, help texts and pages keep the rules of prose, and links and anchors lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import AT_ROOT, PAGES, ROOT, anchors, name, prose
from tests.prose_rules import Finding, Passage, check, of_lines, of_markdown, of_python, passages


def test_texts_keep_the_rules_of_prose() -> None:
    found = [finding for passage in passages() for finding in check(passage)]
    assert not found, "expected no findings, found:\n" + "\n".join(map(str, found))


# ---- rules


def problems(text: str, kind: str = "docstring") -> list[str]:
    return [finding.problem for finding in check(Passage("a.py", 1, kind, text))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Return the best path [B,M], -1 beyond its end.",
        "A candidate of a slot.",
        "`--set` overrides.",
        "8-bit weights.",
        "Write the tables:\n\n    python -m kernels.fast_align -i text -d -o -v",
        "Whatever the order, the sum is the same.",
        "Often the first is the best.",
        "The value is None.",
        "The key `tells` is not the word. Nor is ``so many``.",
        "Return the links (Och and Ney 2003).",
        "Isolate the worker.",
    ],
)
def test_good_docstrings_pass(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("What the step needs.", "opens with 'What'"),
        ("Which words are kept.", "opens with 'Which'"),
        ("Whose weights these are.", "opens with 'Whose'"),
        ("Of the length line.", "opens with 'Of'"),
        ("Does it hold?", "asks a question"),
        ("Is this the last update?", "asks a question"),
        ("Are all shards done?", "asks a question"),
        ("the best path.", "starts with a lower-case letter"),
        ("Return the best path", "does not end in punctuation"),
        ("Return the path that it was told.", "'told'"),
        ("Return what distinguishes and tells them.", "'tells'"),
        ("Return the lowest of equals.", "'of equals'"),
        ("Return so\nmany rows.", "'so many'"),
        ("Compile it anew.", "'anew'"),
        ("Return the sources, made of none.", "'made of none'"),
        ("Return 0 where there is none.", "'is none'"),
        ("Return what the store has not.", "'what X has not'"),
        ("Return an order that goes together with it.", "'go together with'"),
        ("Return the second likewise.", "'likewise'"),
    ],
)
def test_bad_docstrings_are_found(text: str, problem: str) -> None:
    (found,) = problems(text)
    assert problem in found
    assert ";" in found, "expected a suggestion behind the problem"


def test_comments_and_messages_may_be_fragments() -> None:
    assert problems("what the teacher wrote", "comment") == []
    assert problems("expected a file, got none", "message") == []
    assert len(problems("as it was told", "message")) == 1


def test_pages_need_no_full_stop_but_proper_openings() -> None:
    assert problems("A full disk", "page") == []
    assert len(problems("What can go", "page")) == 1


def test_a_finding_names_file_line_and_suggestion() -> None:
    (finding,) = check(Passage("a.py", 7, "docstring", "Return\nso many."))
    assert str(finding) == str(Finding("a.py", 8, "'so many' is not used; name the number"))
    assert str(finding).startswith("a.py:8: ")


# ---- passages


def test_names_of_tests_are_passages() -> None:
    (passage,) = of_python("a.py", "def test_errors_are_told(): ...")
    assert (passage.line, passage.text) == (1, "test errors are told")


def test_python_yields_docstrings_help_comments_and_messages() -> None:
    source = '''"""The module."""
x = 1  # a comment
"""The field."""


def f(y=option(help="The help.")):
    """
    The function.

        code
    """
    raise ValueError(f"{y}: the message")
'''
    assert {(p.kind, p.line, p.text) for p in of_python("a.py", source)} == {
        ("docstring", 1, "The module."),
        ("comment", 2, "# a comment"),
        ("docstring", 3, "The field."),
        ("docstring", 6, "The help."),
        ("docstring", 7, "The function.\n\n    code"),
        ("message", 12, ": the message"),
    }


def test_markdown_yields_blocks_without_code_and_marks() -> None:
    source = "# A heading\nA paragraph\nof two lines.\n\n- **An** item\n- Another\n\n```\nWhat is code\n\n```\n| A cell | B |\n"
    assert [(p.line, p.text) for p in of_markdown("a.md", source)] == [
        (1, "A heading"),
        (2, "A paragraph\nof two lines."),
        (5, "An** item"),
        (6, "Another"),
        (12, "A cell | B |"),
    ]


def test_lines_yield_comments_of_other_languages() -> None:
    source = "// one\nint x = 1;  // two\n#include <a>\nurl: http://b  # three\n"
    assert [(p.line, p.text) for p in of_lines("a.h", source)] == [(1, "one"), (2, "two"), (4, "three")]


def test_files_are_found_below_their_folders(tmp_path: Path) -> None:
    (tmp_path / "models/dag").mkdir(parents=True)
    (tmp_path / "models/dag/a.py").write_text('"""A."""')
    (tmp_path / "README.md").write_text("A page.")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/b.py").write_text('"""B."""')
    assert [passage.path for passage in passages(tmp_path)] == ["models/dag/a.py", "README.md"]


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
