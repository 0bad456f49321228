"""The page of results says what its files say, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.page import ASIDE, ORDER, PAGE, RESULTS, origin, page, shown
from benchmarks.record import Table, load
from tests.benchmarks.tables import example

ROOT = Path(__file__).resolve().parents[2]
TABLES = {name: load(RESULTS / f"{name}.json") for name in ORDER}
ANCHORS = (
    "word-alignment",
    "candidate-tables",
    "n-gram-models",
    "distillation",
    "several-tokens-a-step",
    "comparison-with-ctranslate2",
    "lattices",
    "graphs",
    "drafts",
)
"""Sections that other pages link to."""


def test_the_page_is_made_from_the_files() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(TABLES), "run `make results` and commit docs/results.md"


def test_the_page_has_at_most_250_lines() -> None:
    assert len(page(TABLES).splitlines()) <= 250


def test_every_file_is_on_the_page_or_linked_from_it() -> None:
    assert sorted(path.name for path in RESULTS.iterdir()) == sorted(f"{name}.json" for name in ORDER + ASIDE)
    assert all(f"(../benchmarks/results/{name}.json)" in page(TABLES) for name in ASIDE)


def test_links_of_other_pages_and_of_the_page_itself_lead_somewhere() -> None:
    text = page(TABLES)
    anchors = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in re.findall(r"^## (.*)$", text, re.MULTILINE)
    }
    linked = set(re.findall(r"\]\(#([^)]*)\)", text))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        linked |= set(re.findall(r"results\.md#([\w-]+)", path.read_text(encoding="utf-8")))
    assert (linked | set(ANCHORS)) <= anchors


@pytest.mark.parametrize("name", ORDER + ASIDE)
def test_commands_name_programs_and_configs_of_the_repository(name: str) -> None:
    table = load(RESULTS / f"{name}.json")
    commands = [table.command or "", *re.findall(r"`(python -m [^`]*)`", table.note or "")]
    words = [word for command in commands for word in shlex.split(command)]
    modules = [word for word in words if word.startswith("benchmarks.")]
    configs = [word.removeprefix("CONFIG=") for word in words if word.endswith(".yaml")]
    assert modules or configs or table.command is None or table.command.startswith("make ")
    for path in [f"{module.replace('.', '/')}.py" for module in modules] + configs:
        assert (ROOT / path).is_file(), f"benchmarks/results/{name}.json: expected a command of existing files, found {path}"


def test_a_table_has_explanation_origin_and_shown_rows() -> None:
    text = shown("speed", example(rows=(("a", "1"), ("b", "2")), shown=("b",)))
    assert text.splitlines() == [
        "The speed of systems. Rows that are only in [speed.json](../benchmarks/results/speed.json): 1.",
        "*Command: `python -m benchmarks.x`; commit: abc1234; machine: 2 cores; versions: torch 2.0; seed: 1; rounds: 5, 7; "
        "spread: 1 %.*",
        "",
        "| system | speed |",
        "| --- | --- |",
        "| b | 2 |",
    ]


def test_fields_that_were_not_recorded_are_named_with_the_reason() -> None:
    text = origin(example(commit=None, seed=None, note="Nothing is random."))
    assert text.endswith("spread: 1 %. Not recorded: commit, seed. Nothing is random.*")


def test_tables_of_one_section_share_its_heading() -> None:
    tables: dict[str, Table] = {"a": example(), "b": example(), "c": example(section="Other")}
    assert re.findall(r"^## .*$", page(tables), re.MULTILINE) == ["## Speed", "## Other"]
