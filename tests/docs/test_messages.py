"""The messages that the troubleshooting guide quotes are the program's."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from tests.architecture import modules
from tests.docs.pages import ROOT, text

GUIDE = text(ROOT / "docs" / "guide" / "troubleshooting.md")
QUOTED = re.findall(r"^\| `([^`]+)`", GUIDE, re.MULTILINE)
"""Symptoms that begin with code: messages of the program, and one of the operating system."""
OF_THE_SYSTEM = {"Illegal instruction"}
VALUE = "\0"
PLACEHOLDER = re.compile(r"\.\.\.?|\b[NM]\b")
"""Marks of values in a quotation."""


@cache
def messages() -> frozenset[str]:
    """Return all texts of the program, with a mark in place of each formatted value."""
    nodes = (node for module in modules().values() for node in ast.walk(module.tree))
    return frozenset(filter(None, map(as_text, nodes)))


def as_text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return re.sub(r"%[sd]", VALUE, node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_message(quoted: str) -> bool:
    """Whether a text of the program holds a quotation, or begins with the expectation of a config's error."""
    pattern = ".*".join(map(re.escape, PLACEHOLDER.split(quoted)))
    expectation = pattern.removeprefix(re.escape("expected "))
    return any(re.search(pattern, text) for text in messages()) or (
        expectation != pattern and any(re.match(expectation, text) for text in messages())
    )


@pytest.mark.parametrize("quoted", sorted(set(QUOTED) - OF_THE_SYSTEM))
def test_a_quoted_message_is_one_of_the_program(quoted: str) -> None:
    assert is_message(quoted)


def test_a_quotation_that_no_text_holds_is_found() -> None:
    assert len(QUOTED) > 25
    assert is_message("N workers died on it")
    assert not is_message("N workers died over it")
    assert not is_message("expected an unknown key")


def test_the_example_of_two_errors_is_what_the_program_prints(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        "name: mine\nlanguages: {source: en, target: de}\ncorpus:\n  train: {embedded: 100}\nvocabulary:\n  sise: 600\n"
        "systems:\n  fast: {data: distilled}\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    printed = [f"mine.yaml{line.removeprefix(str(config))}" for line in str(caught.value).splitlines()]
    assert "\n".join(printed) in GUIDE
