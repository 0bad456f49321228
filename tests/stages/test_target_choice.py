"""Targets that a COMET model chooses among the outputs of a teacher, beside brute force over all pairs of outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.artifacts import ExternalFile
from stages.errors import StageError
from stages.external import ExternalConfig, ExternalInputs
from stages.external.run import run
from stages.shared.scoring.choice import Candidates, selector_of
from stages.shared.target_choice import Choice, TargetChoice
from tests.stages.comet_program import program
from tests.stages.steps import context_in, read_json, rows_of, write_text

ROWS = [
    Candidates("a b c", ["v w", "v w x", "v w x", "y"]),
    Candidates("d", ["z"]),
    Candidates("e f", ["p q", "q r", "p r s", "p q s"]),
]


@pytest.fixture
def model(tmp_path: Path) -> ExternalFile:
    path = tmp_path / "model.ckpt"
    path.write_text("{}")
    return ExternalFile(path, "0123456789abcdef0123")


def chosen(
    tmp_path: Path,
    model: ExternalFile,
    rows: Sequence[Candidates],
    edit: str = "",
    *,
    choose: Choice,
    min_quality: float | None = None,
) -> list[int | None]:
    context = context_in(tmp_path / "step.partial")
    config = TargetChoice(choose=choose, min_quality=min_quality, comet_program=program(tmp_path, edit))
    selector = selector_of(config, model, context)
    assert selector is not None
    return selector(rows)


def test_the_least_risk_is_that_of_all_pairs(tmp_path: Path, model: ExternalFile) -> None:
    def mean(row: Candidates, text: str) -> float:
        return sum(len({*text.split()} & {*other.split()}) for other in row.texts) / len(row.source.split())

    wanted = [max(range(len(row.texts)), key=lambda index: mean(row, row.texts[index])) for row in ROWS]
    assert wanted == [1, 0, 3], "an output that occurs twice counts twice, and the first one wins"
    assert chosen(tmp_path, model, ROWS, choose="mbr") == wanted
    assert chosen(tmp_path, model, [], choose="mbr") == []


def test_the_quality_is_that_of_the_model_and_has_a_minimum(tmp_path: Path, model: ExternalFile) -> None:
    assert chosen(tmp_path, model, ROWS, choose="quality") == [1, 0, 2]
    assert chosen(tmp_path, model, ROWS, choose="quality", min_quality=0.1) == [1, 0, 2]
    assert chosen(tmp_path, model, ROWS, choose="quality", min_quality=0.2) == [1, None, 2]
    assert chosen(tmp_path, model, [], choose="quality") == []


def test_a_model_that_ignores_references_has_no_risk(tmp_path: Path, model: ExternalFile) -> None:
    with pytest.raises(StageError, match=r"model\.ckpt: expected a COMET model that compares with references"):
        chosen(tmp_path, model, ROWS, "[row.update(COMET=len(row['mt'])) for row in rows]", choose="mbr")
    assert chosen(tmp_path, model, [ROWS[1]], "[row.update(COMET=1) for row in rows]", choose="mbr") == [0], "nothing to compare"


def test_the_outputs_of_a_program_are_filtered_by_their_quality(tmp_path: Path, model: ExternalFile) -> None:
    text = write_text(tmp_path / "text", [("one two three", "x"), ("one", "y"), ("", "z"), ("one two", "x")], 2)
    config = ExternalConfig(
        command=("cat",), version="1", choose="quality", min_quality=0.15, comet_program=program(tmp_path), shards_per_process=1
    )
    context = context_in(tmp_path / "external.partial")
    run(ExternalInputs(text, (), comet=model), config, context)
    assert [row["target"] for row in rows_of(context.directory)] == ["one two three", "one two"]
    assert read_json(context.directory / "distill.json") == {"rows": 4, "kept": 2, "empty": 1, "quality": 1}
    table = json.loads((context.directory / "records/tables/distillation.json").read_text())
    assert ["below distillation.min_quality", "1", "25.00%"] in table["rows"]
