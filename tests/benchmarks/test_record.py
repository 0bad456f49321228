"""Tables of measurements as JSON files, and what a program writes."""

import argparse
import json
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.origin import command, commit, machine, versions
from benchmarks.record import ORIGIN, Table, load, publish, save, spread
from tests.benchmarks.tables import example


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
