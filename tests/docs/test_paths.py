"""The two paths through the code in CONTRIBUTING.md lead through files and functions that exist."""

import ast
import re
from typing import NamedTuple

import pytest

from tests.docs.pages import ROOT, text

SECTION = text(ROOT / "CONTRIBUTING.md").partition("## Two paths through the code\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| \[(\S+)\]\((\S+)\) \| (.+?) \|", re.MULTILINE)


class Stop(NamedTuple):
    """A row of a path."""

    label: str
    file: str
    functions: list[str]


def stops(section: str) -> list[Stop]:
    return [Stop(label, file, re.findall(r"`([\w.]+)`", functions)) for label, file, functions in ROW.findall(section)]


PATHS = {title: stops(rows) for title, _, rows in (part.partition("\n") for part in SECTION.split("### ")[1:])}
STOPS = [pytest.param(stop, id=f"{title}: {stop.file}") for title, path in PATHS.items() for stop in path]


def defined(file: str) -> set[str]:
    """Return the functions of a file, methods as `Class.method`."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return set(re.findall(r"^[\w:<>&*, ]*\b(\w+)\(", source, re.MULTILINE))
    body = ast.parse(source).body
    methods = ((node.name, inner) for node in body if isinstance(node, ast.ClassDef) for inner in node.body)
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return functions | {f"{name}.{inner.name}" for name, inner in methods if isinstance(inner, ast.FunctionDef)}


def test_there_are_two_paths() -> None:
    assert list(PATHS) == ["One source sentence", "One training batch"]
    assert all(len(path) > 5 for path in PATHS.values())


@pytest.mark.parametrize("stop", STOPS)
def test_files_and_functions_of_a_path_exist(stop: Stop) -> None:
    assert stop.label == stop.file
    assert stop.functions
    assert set(stop.functions) <= defined(stop.file)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_no_file_stands_twice_in_a_path(path: list[Stop]) -> None:
    files = [stop.file for stop in path]
    assert len(set(files)) == len(files)


def test_a_sentence_passes_at_most_seven_files() -> None:
    assert len(PATHS["One source sentence"]) <= 7
