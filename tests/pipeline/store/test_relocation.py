"""Stores that move, and files of runs of another shape."""

import copy
import json
import os
import shutil
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
from pipeline.tracking.database import database_uri, own_database
from stages.errors import ArtifactError
from tests.pipeline.run_specs import CONFIG, plan_entry, run_spec


@pytest.fixture(autouse=True)
def _own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the store for a test that alters it, in another place than the original."""
    return Path(shutil.copytree(made, tmp_path / "store", symlinks=True))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def published(store: Path) -> dict[str, bytes]:
    """Return all artifacts that MLflow finds by the store's database, after a check that they are in the store."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=database_uri(own_database(store)))
    experiments = [e for e in client.search_experiments() if e.name != "Default"]
    place = (store / "mlflow-artifacts").as_uri()
    assert {e.artifact_location for e in experiments} == {place}
    found = {}
    for run in client.search_runs([e.experiment_id for e in experiments]):
        assert run.info.artifact_uri == f"{place}/{run.info.run_id}/artifacts"
        artifacts = contents(store / "mlflow-artifacts" / run.info.run_id / "artifacts")
        found |= {f"{run.data.tags['fewstep.run']}/{run.data.tags['fewstep.step']}/{name}": artifacts[name] for name in artifacts}
    for model in client.search_logged_models([e.experiment_id for e in experiments]):
        assert model.artifact_location == f"{place}/models/{model.model_id}/artifacts"
        files = contents(store / "mlflow-artifacts" / "models" / model.model_id / "artifacts")
        key = f"model/{model.name}/{model.tags.get('fewstep.search')}"
        found |= {f"{key}/{name}": b"" if name == "MLmodel" else files[name] for name in files}  # it holds the time
    for version in client.search_model_versions():
        assert version.source.startswith(f"{place}/models/")
    return found


def test_files_of_mlflow_are_kept(store: Path) -> None:
    """They are kept if the store has no run, too."""
    assert garbage.collect(Store(store)) == []
    shutil.rmtree(store / "runs")
    before = contents(store / "mlflow-artifacts")
    assert len(before) > 5
    found = {item.path.relative_to(store).parts[0] for item in garbage.collect(Store(store), shards=True)}
    assert found >= {"corpus", "train", "system", "shards"}
    assert not [name for name in found if name.startswith("mlflow")]
    garbage.remove(Store(store), shards=True)
    assert contents(store / "mlflow-artifacts") == before
    assert own_database(store).is_file()
    assert not (store / "train").exists() or not list((store / "train").glob("[0-9a-f]*"))


def test_publishing_restores_artifacts_that_were_removed_from_mlflow(store: Path) -> None:
    assert main(["publish", "--store", str(store)]) == 0
    before = published(store)
    assert {name.partition("/")[2] for name in before} >= {"run/report.html", "report:run/figures/training_curves.svg"}
    stamps = {path: path.stat().st_mtime_ns for path in (store / "mlflow-artifacts").rglob("*") if path.is_file()}
    assert main(["publish", "--store", str(store)]) == 0
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps  # what is there is not sent again
    shutil.rmtree(store / "mlflow-artifacts")
    assert published(store) == {}
    assert main(["publish", "--store", str(store)]) == 0
    assert published(store) == before
    next((store / "mlflow-artifacts").rglob("report.html")).write_text("cut off")
    assert main(["publish", "--store", str(store)]) == 0
    assert published(store) == before


@pytest.mark.parametrize("original", ["present", "absent"])
def test_a_copied_store_reads_and_writes_only_itself(
    original: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A present original is filled with invalid content, so that reading from it fails. Without it the copy is a moved store."""
    old, copy = tmp_path / "old", tmp_path / "copy"
    shutil.copytree(made, old, symlinks=True)
    assert main(["publish", "--store", str(old)]) == 0
    before = published(old)
    assert before
    shutil.copytree(old, copy, symlinks=True)
    lost = next((copy / "mlflow-artifacts").rglob("report.html"))
    lost.unlink()  # so that publishing has something to write
    spoiled = dict.fromkeys(contents(old), b"nonsense")
    for name, data in spoiled.items():
        (old / name).write_bytes(data)
    if original == "absent":
        shutil.rmtree(old)
    (tmp_path / "in.txt").write_text("A man reads.\n")

    shown = {}
    for store in (made, copy):
        capsys.readouterr()
        translated = tmp_path / f"{store.name}.txt"
        where = ["--store", str(store)]
        files = ["--input", str(tmp_path / "in.txt"), "--output", str(translated)]
        assert main(["translate", "latest", "autoregressive", *files, *where]) == 0
        for command in ("status", "report"):
            assert main([command, *where]) == 0
        shown[store] = capsys.readouterr().out.replace(str(store), "STORE"), translated.read_text()
    assert shown[made] == shown[copy]

    assert main(["publish", "--store", str(copy)]) == 0
    assert published(copy) == before
    again = ["run", CONFIG, "--in-process", "--until", "corpus", "--set", f"store.path={copy}"]
    assert main([*again, "--set", "corpus.train={embedded: 100}"]) == 0
    assert "1 steps made" in capsys.readouterr().out
    assert len(published(copy)) > len(before)
    assert contents(old) == (spoiled if original == "present" else {})


def test_the_database_is_in_the_store_for_any_path(made: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(made, tmp_path / "parent" / "file:?a=b&c#d 100%25 a%3Fb é", symlinks=True))
    before = contents(store / "mlflow-artifacts")
    own_database(store).unlink()
    shutil.rmtree(store / "mlflow-artifacts")
    assert main(["publish", "--store", str(store)]) == 0
    assert own_database(store).is_file()
    assert len(contents(store / "mlflow-artifacts")) == len(before)
    assert len(published(store)) == len(before)
    assert list((tmp_path / "parent").iterdir()) == [store]
    assert main(["publish", "--store", str(store)]) == 0
    assert list((tmp_path / "parent").iterdir()) == [store]


A, B = "a" * 32, "b" * 32
OTHERS: tuple[Any, ...] = (
    None, True, 3, -1.5, "", "text", "../../elsewhere", "\ud800", [], [None], [[]], {}, {"url": None}, {"plan": 3},
)  # fmt: skip


@pytest.fixture
def trained_store(tmp_path: Path) -> Store:
    trained_store = open_store(tmp_path / "store")
    for fingerprint in (A, B):
        directory = trained_store.directory("train", fingerprint)
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"stage": "train", "fingerprint": fingerprint, "inputs": [3]}))
    return trained_store


def spec(trained_store: Store) -> dict[str, Any]:
    plan = [plan_entry("train:a", fingerprint=A, inputs=["corpus:b"])]
    config = {"corpus": {"train": [{"url": "https://host/a", "sha256": "0" * 64}]}, "systems": {"a": {"search": {}}}}
    return {"schema": 1, **run_spec(*plan, run_id="one", config=config, store=str(trained_store.root))}


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


def times(trained_store: Store) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in trained_store.root.rglob("*") if path.is_file() and path.name != ".gc"}


def problem_of(run: Run, trained_store: Store) -> str | None:
    try:
        read_run(run.path / "run.json")
        rows(run)
        garbage.collect(trained_store)
    except ArtifactError as error:
        return str(error)
    return None


def test_a_run_of_another_shape_is_refused_by_name_or_harmless(trained_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(trained_store.runs / "one")
    run.create(spec(trained_store))
    path, refused, accepted = run.path / "run.json", 0, 0
    for value in changed(spec(trained_store)):
        path.write_text(json.dumps(value))
        before = times(trained_store)
        if (problem := problem_of(run, trained_store)) is None:
            accepted += 1
        else:
            refused += 1
            assert problem.startswith(f"{path}: ")
            if refused % 10:
                continue
            assert main(["status", "one", "--store", str(trained_store.root)]) == 1
            assert main(["gc", "--delete", "--store", str(trained_store.root)]) == 1
            assert main(["runs", "--store", str(trained_store.root)]) == 1
            assert capsys.readouterr().err.count(f"{path}: ") == 3
            assert times(trained_store) == before
    assert refused > 150
    assert accepted > 20  # other configs


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"schema": 1, "plan": ' + b"9" * 5000 + b"}", None])
def test_what_is_no_json_is_refused(content: bytes | None, trained_store: Store) -> None:
    path = trained_store.runs / "one/run.json"
    path.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(path)  # reading it would wait for a writer
    else:
        path.write_bytes(content)
    for use in (lambda: garbage.remove(trained_store), lambda: Run(path.parent).spec):
        with pytest.raises(ArtifactError, match=r"one/run\.json: .*remove .*one if it is not needed"):
            use()
    assert trained_store.directory("train", A).exists()


def test_other_runs_are_listed_with_one_that_cannot_be_read(trained_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    Run(trained_store.runs / "good").create(run_spec(plan_entry("train:a"), run_id="good"))
    (trained_store.runs / "bad").mkdir()
    (trained_store.runs / "bad/run.json").write_text('"a string"')
    assert main(["runs", "--store", str(trained_store.root)]) == 1
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "bad/run.json: expected a JSON object, got 'a string'" in shown.err


def test_a_run_of_more_steps_than_a_plan_may_have_is_refused(trained_store: Store) -> None:
    run = Run(trained_store.runs / "one")
    found = spec(trained_store)
    run.create({**found, "plan": found["plan"] * 10_001})
    with pytest.raises(ArtifactError, match=r"run\.json: plan: expected at most 10,000 steps, got 10,001"):
        read_run(run.path / "run.json")
