"""Tables of measurements as JSON files, the page that is made from them, and the commands that they record."""

import argparse
import json
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.origin import command, commit, machine, versions
from benchmarks.page import ASIDE, ORDER, PAGE, RESULTS, origin, page, shown
from benchmarks.record import ORIGIN, Table, load, publish, save, spread
from pipeline.config.load import load_config
from pipeline.errors import ConfigError

# ---- a small table of measurements


def example(**changes: Any) -> Table:
    """Return a table with all fields of its origin, but for `changes`."""
    fields: dict[str, Any] = {
        "section": "Speed",
        "explanation": "The speed of systems.",
        "columns": ("system", "speed"),
        "rows": (("a", "1"),),
        "shown": None,
        "command": "python -m benchmarks.x",
        "commit": "abc1234",
        "machine": "2 cores",
        "versions": {"torch": "2.0"},
        "seed": 1,
        "rounds": (5, 7),
        "spread": "1 %",
        "note": None,
        "figures": None,
    }
    return Table(**{**fields, **changes})


# ---- tables of measurements as JSON files, and what a program writes


def test_a_saved_table_is_loaded_unchanged(tmp_path: Path) -> None:
    table = example(rows=(("a", "1"), ("b", '"2"')), shown=("b",), figures={"rounds": [1.0, 2.0]})
    save(tmp_path / "new/table.json", table)
    assert load(tmp_path / "new/table.json") == table


def test_a_file_has_one_row_a_line(tmp_path: Path) -> None:
    save(tmp_path / "table.json", example(rows=(("a", "1"), ("b", "2"))))
    lines = (tmp_path / "table.json").read_text().splitlines()
    assert '  ["a", "1"],' in lines
    assert '  ["b", "2"]' in lines


def test_a_missing_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    save(path, example())
    whole = json.loads(path.read_text())
    for field in fields(Table):
        path.write_text(json.dumps({key: value for key, value in whole.items() if key != field.name}))
        with pytest.raises(ValueError, match=rf"(?s)table\.json.*{field.name}"):
            load(path)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    save(path, example())
    path.write_text(json.dumps({**json.loads(path.read_text()), "speed": 2}))
    with pytest.raises(ValueError, match=r"(?s)table\.json.*speed"):
        load(path)


def test_a_missing_origin_needs_a_note() -> None:
    for key in ORIGIN:
        with pytest.raises(ValueError, match=f"{key}: expected a value, found null"):
            example(**{key: None})
        assert example(**{key: None, "note": "The reason."}).note == "The reason."


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 cells"):
        example(rows=(("a", "1", "2"),))


def test_only_rows_of_the_table_are_shown() -> None:
    with pytest.raises(ValueError, match="expected names of rows, found"):
        example(shown=("c",))
    assert example(rows=(("a", "1"), ("b", "2")), shown=("b",)).visible == [("b", "2")]


def published(path: Path | None, rows: list[list[str]]) -> None:
    options: dict[str, Any] = {
        "section": "Speed",
        "explanation": "The speed.",
        "columns": ["system", "speed"],
        "seed": 1,
        "rounds": 3,
        "spread": "1 %",
    }
    publish(argparse.Namespace(json=path), rows=rows, **options)


def test_a_program_prints_its_table_and_writes_it_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(tmp_path / "table.json", [["a", "1"]])
    table = load(tmp_path / "table.json")
    assert (table.rows, table.rounds, table.seed) == ((("a", "1"),), (3,), 1)
    assert (table.commit, table.machine, table.versions) == (commit(), machine(), versions())
    assert "| a      |     1 |" in capsys.readouterr().out


def test_a_program_writes_nothing_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    published(None, [["a", "1"]])
    assert "| a " in capsys.readouterr().out


def test_a_replaced_file_keeps_its_selection_while_its_rows_exist(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    save(path, example(rows=(("a", "1"), ("b", "2")), shown=("b",)))
    published(path, [["b", "3"], ["c", "4"]])
    assert load(path).shown == ("b",)
    published(path, [["c", "4"]])
    assert load(path).shown is None


def test_the_spread_is_the_widest_over_all_samples() -> None:
    assert spread([[1.0, 2.0, 3.0], [10.0, 10.0, 11.0]]) == "rounds are 50% to 150% of their medians"


def test_a_command_has_settings_that_change_speed_and_no_output_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    words = ["/usr/bin/python", "-m", "benchmarks.x", "--json", "a.json", "--set", "a={b: 1}"]
    assert command(words) == "OMP_WAIT_POLICY=passive python -m benchmarks.x --set 'a={b: 1}'"


def test_a_commit_with_changes_is_marked(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    assert commit(tmp_path) is None
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "one")
    clean = commit(tmp_path)
    (tmp_path / "a").write_text("2")
    assert clean is not None
    assert commit(tmp_path) == f"{clean}-dirty"


# ---- the page of results says what its files say, and its commands exist


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


# ---- the commands that results record can be typed in: configs load with their settings, and programs take their options


RECORDED = [
    pytest.param(command, id=f"{name}: {command[:60]}")
    for name, table in TABLES.items()
    for command in filter(
        None, [*(table.command or "").split("; "), *re.findall(r"`((?:python -m|fewstep) [^`]*)`", table.note or "")]
    )
]


def words_of(command: str) -> list[str]:
    """Return the words of a command without the settings of the environment before them."""
    words = shlex.split(command)
    while words and "=" in words[0]:
        words.pop(0)
    return words


def check(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the config of a command, or let its program read the options. Raises the errors of either."""
    words = words_of(command)
    if words[:2] == ["fewstep", "run"]:
        load_config(ROOT / words[2], [words[at + 1] for at, word in enumerate(words) if word == "--set"])
    elif words[:2] == ["python", "-m"]:
        monkeypatch.setattr(sys, "argv", [words[2], *words[3:], "--help"])  # the options before --help are checked
        monkeypatch.delitem(sys.modules, words[2], raising=False)
        with pytest.raises(SystemExit) as caught:
            runpy.run_module(words[2], run_name="__main__")
        if caught.value.code:
            raise ValueError(command)
    else:
        assert words[0] == "make"


@pytest.mark.parametrize("command", RECORDED)
def test_a_recorded_command_is_valid(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, monkeypatch)


def test_former_options_and_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="bf16"):
        check("OMP_WAIT_POLICY=passive python -m benchmarks.training.loop --precision bf16", monkeypatch)
    with pytest.raises(ConfigError, match="min_bleu"):
        check("fewstep run configs/demo.yaml --set evaluation.minimum_bleu=3", monkeypatch)
