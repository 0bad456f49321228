"""Systems as models of MLflow."""

import getpass
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import fewstep
from benchmarks.serving.servers import free_port
from pipeline.__main__ import main
from pipeline.run.run_directory import Run, find_run
from pipeline.tracking.database import database_uri, own_database
from pipeline.tracking.models import Candidate, Models
from pipeline.wheels import DEPENDENCIES
from tests.pipeline.conftest import CONFIG
from tests.processes import SLOW_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]
LINE = "A man reads a book."


@pytest.fixture
def store(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Path(shutil.copytree(made, tmp_path / "store", symlinks=True))


@pytest.fixture
def client(store: Path) -> Any:
    """Publish the run of the store, and return a client of its database."""
    from mlflow.tracking import MlflowClient

    assert main(["publish", "--store", str(store)]) == 0
    uri = database_uri(own_database(store))
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def logged(client: Any) -> dict[str, Any]:
    """Return the models by the search that they use."""
    found = client.search_logged_models([e.experiment_id for e in client.search_experiments()])
    by_search = {model.tags["fewstep.search"]: model for model in found}
    assert len(by_search) == len(found)
    return by_search


def default_model(client: Any) -> Any:
    return logged(client)["greedy"]


def folder_of(store: Path, model: Any) -> Path:
    return store / "mlflow-artifacts" / "models" / model.model_id / "artifacts"


def children(client: Any, run: Run) -> dict[str, Any]:
    ids = [e.experiment_id for e in client.search_experiments()]
    found = client.search_runs(ids, f"tags.`fewstep.run` = '{run.path.name}' and tags.`fewstep.kind` = 'entry'")
    return {r.info.run_name: r for r in found}


def test_a_system_is_a_model_with_the_metrics_of_its_default_search(store: Path, client: Any) -> None:
    model, run = default_model(client), find_run(store, "latest")
    assert (model.name, model.model_type, str(model.status)) == ("autoregressive", "stepwise", "READY")
    entries = children(client, run)
    assert set(entries) == {"autoregressive/greedy", "autoregressive/beam-beam_size2"}
    for entry in entries.values():
        assert model.model_id in [output.model_id for output in entry.outputs.model_outputs]
        assert entry.data.tags["mlflow.user"] == getpass.getuser()
        assert entry.data.tags["mlflow.source.name"] == CONFIG
    metrics = {metric.key: metric for metric in model.metrics}
    greedy = entries["autoregressive/greedy"].data.metrics
    assert {name: metric.value for name, metric in metrics.items()} == greedy
    assert {"bleu", "chrf", "ter", "latency_ms", "throughput"} <= set(greedy)
    assert metrics["bleu"].dataset_name == "tiny/tiny"


def test_the_best_system_is_registered_once(store: Path, client: Any) -> None:
    assert main(["publish", "--store", str(store)]) == 0
    (version,) = client.search_model_versions("name='tiny'")
    best = client.get_model_version_by_alias("tiny", "best")
    assert best.version == version.version
    assert version.tags["fewstep.model_id"] in [model.model_id for model in logged(client).values()]
    assert "the best system of its run: bleu" in version.description
    run = find_run(store, "latest")
    bleu = max(entry.data.metrics["bleu"] for entry in children(client, run).values())
    assert float(version.tags["fewstep.score"]) == pytest.approx(bleu, abs=1e-3)


def test_the_best_version_is_that_of_the_highest_score_on_its_test_set(client: Any) -> None:
    model = default_model(client)
    models = Models(client, client.tracking_uri, model.experiment_id)

    def register(number: int, score: float, digest: str) -> None:
        tags = {"fewstep.test_digest": digest}
        found = client.create_logged_model(model.experiment_id, f"m{number}")
        models.register("other", Candidate(found.model_id, model.source_run_id, score, tags, "note"))

    for number, (score, digest, best) in enumerate([(30.0, "a", 1), (20.0, "a", 1), (40.0, "a", 3), (10.0, "b", 4)], 1):
        register(number, score, digest)
        assert int(client.get_model_version_by_alias("other", "best").version) == best


def complete_system(store: Path) -> fewstep.System:
    """Return the system that has all searches of the run."""
    found = [fewstep.load(path) for path in (store / "system").iterdir() if (path / "system.json").is_file()]
    return max(found, key=lambda system: len(system.searches))


def best_search(store: Path) -> str:
    """Return the search of the entry with the highest BLEU."""
    found = {path.parents[0]: json.loads(path.read_text())["bleu"]["score"] for path in (store / "score").glob("*/scores.json")}
    steps = {json.loads((path / "manifest.json").read_text())["step"]: score for path, score in found.items()}
    return max(steps, key=lambda step: steps[step]).partition("/")[2].partition(":")[0]


@pytest.mark.parametrize("wanted", ["greedy", "beam-beam_size2"])
def test_the_registered_model_searches_as_the_best_entry_did(store: Path, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow
    from pandas import DataFrame

    own_database(store).unlink()
    shutil.rmtree(store / "mlflow-artifacts")
    run = find_run(store, "latest")
    (run.path / "mlflow.json").unlink()
    for path in (store / "score").glob("*/scores.json"):
        scores = json.loads(path.read_text())
        scores["bleu"]["score"] = 90.0 if f"/{wanted}:" in json.loads(path.with_name("manifest.json").read_text())["step"] else 10.0
        path.write_text(json.dumps(scores))
    assert main(["publish", "--store", str(store)]) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database_uri(own_database(store)))
    monkeypatch.setattr(fewstep.System, "translate", lambda self, texts, search, **options: [repr(search)] * len(texts))
    model = mlflow.pyfunc.load_model("models:/tiny@best")
    assert model.predict(DataFrame({"source": [LINE]})) == [repr(complete_system(store).searches[wanted])]


def test_publishing_again_neither_logs_nor_registers_again(store: Path, client: Any) -> None:
    models = logged(client)
    stamps = {path: path.stat().st_mtime_ns for model in models.values() for path in folder_of(store, model).rglob("*")}
    run = find_run(store, "latest")
    memory = run.path / "mlflow.json"
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "servers": []}))  # as if killed before remembering
    assert main(["publish", "--store", str(store)]) == 0
    assert {search: model.model_id for search, model in logged(client).items()} == {s: m.model_id for s, m in models.items()}
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(client.search_model_versions("name='tiny'")) == 1
    for entry in children(client, run).values():
        ids = [output.model_id for output in entry.outputs.model_outputs]
        assert len(set(ids)) == len(ids) <= 2


def test_a_model_that_a_crash_left_incomplete_is_completed(store: Path, client: Any) -> None:
    model = default_model(client)
    shutil.rmtree(folder_of(store, model))
    client.finalize_logged_model(model.model_id, "FAILED")
    assert main(["publish", "--store", str(store)]) == 0
    again = default_model(client)
    assert (again.model_id, str(again.status)) == (model.model_id, "READY")
    assert (folder_of(store, model) / "MLmodel").is_file()


def test_no_model_is_logged_while_a_step_measures_time(store: Path) -> None:
    from mlflow.tracking import MlflowClient

    own_database(store).unlink()
    shutil.rmtree(store / "mlflow-artifacts")
    run = find_run(store, "latest")
    (run.path / "mlflow.json").unlink()
    events = [event for event in run.events() if event["event"] != "run_finished"]
    timed = next(index for index, event in enumerate(events) if event.get("step", "").startswith("benchmark"))
    (run.path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events[: timed + 1]))
    run.heartbeat.touch()
    client = MlflowClient(tracking_uri=database_uri(own_database(store)))
    assert main(["publish", "--store", str(store)]) == 0
    ids = [e.experiment_id for e in client.search_experiments()]
    assert len(children(client, run)) == 2
    assert list(client.search_logged_models(ids)) == []
    with (run.path / "events.jsonl").open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events[timed + 1 :]))
    assert main(["publish", "--store", str(store)]) == 0
    assert len(client.search_logged_models(ids)) >= 1


def test_models_can_be_turned_off(store: Path) -> None:
    from mlflow.tracking import MlflowClient

    run = find_run(store, "latest")
    spec = json.loads((run.path / "run.json").read_text())
    spec["config"]["tracking"] |= {"experiment": "without", "models": False}
    (run.path / "run.json").write_text(json.dumps(spec))
    assert main(["publish", "--store", str(store)]) == 0
    client = MlflowClient(tracking_uri=database_uri(own_database(store)))
    experiment = client.get_experiment_by_name("without")
    assert list(client.search_logged_models([experiment.experiment_id])) == []
    assert len(children(client, run)) >= 2


PREDICT = """
import sys, mlflow, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
lines = pandas.DataFrame({"source": [sys.argv[2], ""]})
print([model.predict(lines), model.predict(lines, params={"search": "beam-beam_size2"})])
print(sorted({"torch", "ray"} & set(sys.modules)))
print(model.metadata.signature.inputs.input_names(), model.input_example.to_dict("list") != {})
"""


def test_a_model_translates_as_its_system_without_torch(store: Path, client: Any, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(folder_of(store, default_model(client)), folder)
    expected = [complete_system(store).translate([LINE, ""], search) for search in ("greedy", "beam-beam_size2")]
    shutil.rmtree(store)  # the model holds everything
    done = subprocess.run([sys.executable, "-c", PREDICT, str(folder), LINE], capture_output=True, text=True, check=True)
    predicted, heavy, described = done.stdout.splitlines()[-3:]
    assert predicted == str(expected)
    assert heavy == "[]"
    assert described == "['source'] True"


def test_the_requirements_of_a_model_exist_and_suffice(store: Path, client: Any, tmp_path: Path) -> None:
    """The program pip asks an index for known packages alone, and installs the runtime from the folder of the model."""
    folder, target = tmp_path / "elsewhere", tmp_path / "installed"
    shutil.copytree(folder_of(store, default_model(client)), folder)
    wheel, *others = (folder / "requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in others)
    assert pins == {name: metadata.version(name) for name in ("mlflow", "numpy", "safetensors", "sentencepiece", "sentencex")}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", f"--target={target}", wheel]
    installed = subprocess.run(pip, cwd=folder, capture_output=True, text=True)
    if "No module named pip" in installed.stderr:
        pytest.skip("this environment has no pip")
    assert installed.returncode == 0, installed.stderr
    # Without what finds modules of an editable installation, which comes before all folders.
    alone = "import sys; sys.meta_path = [one for one in sys.meta_path if not type(one).__name__.startswith('ScikitBuild')]"
    program = f"{alone}\nimport fewstep, fewstep_native; print(fewstep.__file__, fewstep_native.__file__)\n{PREDICT}"
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", program, str(folder), LINE]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    files, predicted, *_ = [line for line in done.stdout.splitlines() if line.startswith(("/", "[["))]
    assert all(Path(file).is_relative_to(target) for file in files.split())
    expected = [complete_system(store).translate([LINE, ""], search) for search in ("greedy", "beam-beam_size2")]
    assert predicted == str(expected)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert list(DEPENDENCIES) == needed == metadata.Distribution.at(next(target.glob("*.dist-info"))).requires


@pytest.fixture
def served(store: Path, client: Any) -> Iterator[str]:
    """Return the address of `mlflow models serve`."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local", "--port", str(port), "--workers", "1"]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
    environment = {**os.environ, "PATH": programs, "MLFLOW_TRACKING_URI": database_uri(own_database(store))}
    log = (store / "serve.log").open("w")
    server = subprocess.Popen([*command, "--model-uri", "models:/tiny@best"], env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: server.poll() is not None or answers(f"{address}/ping"), SLOW_SECONDS)
        assert server.poll() is None, (store / "serve.log").read_text()
        yield address
    finally:
        server.terminate()
        server.wait(SLOW_SECONDS)
        log.close()


def answers(url: str) -> bool:
    """Return whether a server answers within some seconds."""
    try:
        urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_the_registered_model_answers_over_http(store: Path, served: str) -> None:
    for body in (
        {"dataframe_records": [{"source": LINE}]},
        {"inputs": {"source": [LINE]}, "params": {"search": "beam-beam_size2"}},
    ):
        request = Request(f"{served}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"})
        answer = json.loads(urlopen(request, timeout=SLOW_SECONDS).read())
        search = body.get("params", {}).get("search", best_search(store))
        assert answer == {"predictions": complete_system(store).translate([LINE], search)}
