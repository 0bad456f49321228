"""The commands `runs`, `report --runs` and `diff` over real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import main
from tests.pipeline.run_specs import CONFIG


@pytest.fixture(scope="module")
def store(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs, `tiny` and `two`, that differ in the updates of the teacher."""
    path = Path(shutil.copytree(made, tmp_path_factory.mktemp("runs") / "store", symlinks=True))
    changes = (f"store.path={path}", "name=two", "defaults.training.updates=6", "tracking.enabled=false")
    assert main(["run", CONFIG, "--in-process", *(part for change in changes for part in ("--set", change))]) == 0
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def run_ids(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "runs").iterdir() if not path.is_symlink())


def test_runs_are_listed_latest_first(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "runs", "--store", str(store))
    assert [row["name"] for row in found] == ["two", "tiny"]
    assert all(row["status"] == "done" and row["done"] == row["steps"] for row in found)


def test_a_run_differs_from_itself_in_nothing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_ids(store)[0]
    found = printed(capsys, "diff", one, one, "--store", str(store))
    assert found["config"] == found["data"] == []
    assert found["scores"]
    assert all(pair["first"] == pair["second"] for pair in found["scores"])
    assert {pair["p"] for pair in found["scores"] if pair["metric"] == "bleu"} == {1.0}


def test_what_differs_is_the_config_and_the_scores(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = run_ids(store)
    found = printed(capsys, "diff", one, two, "--store", str(store))
    changed = {key: (first, second) for key, first, second in found["config"]}
    assert changed["name"] == ("tiny", "two")
    assert ("4", "6") in changed.values()
    assert [step for step, _, _ in found["data"] if step.startswith("corpus:")] == []
    assert found["speed"]
    assert all(pair["first"] > 0 and pair["second"] > 0 for pair in found["speed"])
    assert all(0 < pair["p"] <= 1 for pair in found["scores"] if pair["metric"] == "bleu")
    assert main(["diff", one, two, "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert "defaults" not in out
    assert all(run in out for run in (one, two))
    assert main(["diff", one, "latest", "--store", str(store)]) == 0
    assert capsys.readouterr().out == out


def test_one_table_over_two_runs(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = run_ids(store)
    found = printed(capsys, "report", "--store", str(store), "--runs", one, "--runs", two)
    by_run = {run: {row["entry"] for row in found if row["run"] == run} for run in (one, two)}
    assert by_run[one] == by_run[two] != set()
    assert all(row["milliseconds"] > 0 for row in found)
    single = printed(capsys, "report", one, "--store", str(store))
    bleu = {f"{row['system']}/{row['search']}": row["metrics"]["bleu"]["score"] for row in single["rows"]}
    assert {row["entry"]: row["scores"]["bleu"] for row in found if row["run"] == one} == bleu


def test_status_and_plan_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_ids(store)[0]
    found = printed(capsys, "status", one, "--store", str(store))
    assert found["status"] == "done"
    assert {step["status"] for step in found["steps"]} <= {"done", "hit"}
    planned = printed(capsys, "plan", CONFIG, "--set", f"store.path={store}")
    assert {row["verdict"] for row in planned} <= {"HIT", "MISS"}


def test_a_run_that_is_misspelt_is_suggested(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_ids(store)[0]
    assert main(["diff", one[:-1], one, "--store", str(store)]) == 2
    assert f"did you mean '{one}'" in capsys.readouterr().err
