"""The runtime, which loads a system without torch, gives the outputs of the decode stage, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fewstep
from fewstep.threads import default_threads
from stages.artifacts import System, Text
from stages.context import StepContext
from stages.decode import STAGE, DecodeConfig, DecodeInputs
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.workers import LocalWorkers, Resources
from tests.fewstep.systems import LINES, SYSTEMS

CASES = [(name, label) for name, (_, _, searches) in SYSTEMS.items() for label in searches]


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    directory = tmp_path_factory.mktemp("text")
    table = pa.table({"id": range(len(LINES)), "source": LINES, "target": LINES})
    write_shard(shard_path(directory, 0), table, context(directory))
    return Text(directory, "text")


def context(directory: Path) -> StepContext:
    return StepContext(
        directory=directory,
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=default_threads()),
        shard_cache=directory / "cache",
    )


@pytest.mark.parametrize(("name", "label"), CASES)
def test_outputs_are_those_of_the_decode_stage(systems: dict[str, Path], text: Text, tmp_path: Path, name: str, label: str) -> None:
    system = fewstep.load(systems[name])
    search = system.searches[label]
    STAGE.run(DecodeInputs(System(systems[name], name), text), DecodeConfig(search=search), context(tmp_path))
    rows = [row for table in read_shards(tmp_path) for row in table.to_pylist()]
    expected: list[list[dict[str, Any]]] = [[row for row in rows if row["id"] == line] for line in range(len(LINES))]
    found = system.hypotheses(LINES, search.n_best, label, threads=default_threads())
    assert any(translation.text for ranked in found for translation in ranked), "a search that writes nothing shows nothing"
    for ranked, written in zip(found, expected, strict=True):
        assert [one.text for one in ranked] == [row["text"] for row in written]
        assert [one.score for one in ranked] == [row["score"] for row in written]
        assert [one.steps for one in ranked] == [row["steps"] for row in written]
        assert [one.statistics.get("margin") for one in ranked] == [row["margin"] for row in written]
    best = [ranked[0].text for ranked in found]
    assert system.translate(LINES, label) == best == (tmp_path / "hypotheses.txt").read_text().splitlines()
    summary = json.loads((tmp_path / "decode.json").read_text())
    assert summary["rows"] == len(LINES)
    unknown = [ranked[0].unknown for ranked in found]
    assert summary["unknown"]["sentences"] == sum(map(bool, unknown))
    assert set(summary["unknown"]["first"]) == {piece for pieces in unknown for piece in pieces}
