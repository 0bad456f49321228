"""Tests of `run.json` files of another shape: each command that reads them refuses them by name, and leaves them."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.__main__ import main
from pipeline.run.progress import rows
from pipeline.run.run_directory import Run
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.marker import open_store
from pipeline.store.run_file import read_run
from stages.errors import ArtifactError
from tests.pipeline.run_specs import plan_entry, run_spec

A, B = "a" * 32, "b" * 32
OTHERS: tuple[Any, ...] = (
    None,
    True,
    3,
    -1.5,
    "",
    "text",
    "../../elsewhere",
    "\ud800",
    [],
    [None],
    [[]],
    {},
    {"url": None},
    {"plan": 3},
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "store")
    for fingerprint in (A, B):
        directory = store.directory("train", fingerprint)
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"stage": "train", "fingerprint": fingerprint, "inputs": [3]}))
    return store


def spec(store: Store) -> dict[str, Any]:
    plan = [plan_entry("train:a", fingerprint=A, inputs=["corpus:b"])]
    config = {"corpus": {"train": [{"url": "https://host/a", "sha256": "0" * 64}]}, "systems": {"a": {"search": {}}}}
    return {"schema": 1, **run_spec(*plan, run_id="one", config=config, store=str(store.root))}


def changed(value: Any) -> Iterator[Any]:
    """Yield a value without each of its parts in turn, and with each of them replaced by others."""
    yield from OTHERS
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        lacking = copy.deepcopy(value)
        del lacking[key]
        yield lacking
        for item in changed(value[key]):
            whole = copy.deepcopy(value)
            whole[key] = item
            yield whole


def times(store: Store) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in store.root.rglob("*") if path.is_file() and path.name != ".gc"}


def problem_of(run: Run, store: Store) -> str | None:
    try:
        read_run(run.path / "run.json")
        rows(run)
        garbage.collect(store)
    except ArtifactError as error:
        return str(error)
    return None


def test_a_run_of_another_shape_is_refused_by_name_or_harmless(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(store.runs / "one")
    run.create(spec(store))
    path, refused, accepted = run.path / "run.json", 0, 0
    for value in changed(spec(store)):
        path.write_text(json.dumps(value))
        before = times(store)
        if (problem := problem_of(run, store)) is None:
            accepted += 1
        else:
            refused += 1
            assert problem.startswith(f"{path}: ")
            if refused % 10:
                continue
            assert main(["status", "one", "--store", str(store.root)]) == 1
            assert main(["gc", "--delete", "--store", str(store.root)]) == 1
            assert main(["runs", "--store", str(store.root)]) == 1
            assert capsys.readouterr().err.count(f"{path}: ") == 3
            assert times(store) == before
    assert refused > 150
    assert accepted > 20  # other configs


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"schema": 1, "plan": ' + b"9" * 5000 + b"}", None])
def test_what_is_no_json_is_refused(content: bytes | None, store: Store) -> None:
    path = store.runs / "one/run.json"
    path.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(path)  # reading it would wait for a writer
    else:
        path.write_bytes(content)
    for use in (lambda: garbage.remove(store), lambda: Run(path.parent).spec):
        with pytest.raises(ArtifactError, match=r"one/run\.json: .*remove .*one if it is not needed"):
            use()
    assert store.directory("train", A).exists()


def test_other_runs_are_listed_with_one_that_cannot_be_read(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    Run(store.runs / "good").create(run_spec(plan_entry("train:a"), run_id="good"))
    (store.runs / "bad").mkdir()
    (store.runs / "bad/run.json").write_text('"a string"')
    assert main(["runs", "--store", str(store.root)]) == 1
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "bad/run.json: expected a JSON object, got 'a string'" in shown.err
