"""Systems as models of MLflow: logged once for each artifact and default search, and registered if they are the best; or written to
a directory to pass on, with a card, the runtime and what MLflow needs to serve it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.system.description import read_description
from fewstep.system.format import MERGES
from fewstep.system.integrity import check_parts
from pipeline.run.model_card import CARD, model_card
from pipeline.store.files import read_json
from pipeline.tracking.artifacts import folder_at
from pipeline.tracking.bounded_answers import all_pages
from pipeline.wheels import write_runtime_wheel

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.tracking import MlflowClient

CODE = Path(__file__).with_name("served_system.py")
DESCRIPTION = "system.json"
EXAMPLE = "A sentence."
BEST = "best"
"""Alias of the registered version with the best score on its test set."""
WHEELS = "wheels"
"""The folder of a model that holds the runtime: no index has it. MLflow installs requirements from the folder of the model."""
REQUIRED = ("mlflow", "numpy", "safetensors", "sentencepiece", "sentencex")
"""Packages that a server of a model installs from an index, in the versions that logged the model."""


class ModelKey(NamedTuple):
    """The facts that distinguish the models of an experiment."""

    fingerprint: str
    """That of the artifact of the system."""
    search: str
    """The label of the search that the model uses if no other is given."""


@dataclass(frozen=True)
class Candidate:
    """A logged model that may be the best one."""

    model_id: str
    run_id: str
    score: float
    tags: Mapping[str, str]
    """Tags of the version; `fewstep.score` and `fewstep.test_digest` decide which version is the best."""
    description: str


class Models:
    """The models of an experiment. A model is found again by the tags of its key."""

    def __init__(self, client: MlflowClient, uri: str, experiment_id: str) -> None:
        self.client = client
        self.uri = uri
        self.experiment_id = experiment_id
        self.logged: dict[ModelKey, LoggedModel] = self._find()
        """Complete models, and incomplete ones, which a crash left."""
        self._seen: set[ModelKey] = set()
        """Keys of the models whose files are known to exist."""

    def _find(self) -> dict[ModelKey, LoggedModel]:
        found: dict[ModelKey, LoggedModel] = {}
        for model in all_pages(lambda token: self.client.search_logged_models([self.experiment_id], page_token=token)):
            if fingerprint := model.tags.get("fewstep.fingerprint"):
                found.setdefault(ModelKey(fingerprint, model.tags.get("fewstep.search", "")), model)
        return found

    def holds(self, key: ModelKey) -> bool:
        """Return whether a model was logged completely and still has its files, which users may remove."""
        if key in self._seen:
            return True
        model = self.logged.get(key)
        if model is None or str(model.status) != "READY":
            return False
        # As in `RunArtifacts`: MLflow's client caches the folders of models by id alone.
        listed = folder_at(model.artifact_location, self.uri).list_artifacts()
        if any(file.path == "MLmodel" for file in listed):
            self._seen.add(key)
        return key in self._seen

    def log(self, directory: Path, key: ModelKey, run_id: str, tags: Mapping[str, str], example: str) -> None:
        """Log the system in `directory` as the output of an MLflow run. `example` is a source."""
        description = read_json(directory / "system.json")
        model = self.logged.get(key)
        if model is None:
            tags = {**tags, "fewstep.fingerprint": key.fingerprint, "fewstep.search": key.search}
            name, kind = str(description["name"]), str(description["family"])
            model = self.client.create_logged_model(self.experiment_id, name, run_id, dict(tags), model_type=kind)
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "model"
            save(path, directory, example, search=key.search, model_id=model.model_id, run_id=run_id)
            folder_at(model.artifact_location, self.uri).log_artifacts(str(path))
        self._seen.add(key)
        self.logged[key] = self.client.finalize_logged_model(model.model_id, "READY")

    def link(self, run_id: str, model_id: str) -> None:
        """Show a model among the outputs of an MLflow run."""
        from mlflow.entities import LoggedModelOutput

        outputs = self.client.get_run(run_id).outputs
        if model_id not in [output.model_id for output in (outputs.model_outputs if outputs else ())]:
            self.client.log_outputs(run_id, [LoggedModelOutput(model_id, 0)])

    def register(self, name: str, best: Candidate) -> None:
        """Register a model as a version of `name`, unless it is one, and point `BEST` to the best version of its test set.

        Scores of different test sets cannot be compared; the newest version is then the best one.
        """
        versions = self._versions(name)
        own = next((version for version in versions if version.tags.get("fewstep.model_id") == best.model_id), None)
        if own is None:
            tags = {**best.tags, "fewstep.model_id": best.model_id, "fewstep.score": f"{best.score:.4f}"}
            location = self.client.get_logged_model(best.model_id).artifact_location  # `models:/ID` needs a global tracking URI
            own = self.client.create_model_version(
                name, location, best.run_id, tags, description=best.description, model_id=best.model_id
            )
        alike = [v for v in versions if v.tags.get("fewstep.test_digest") == best.tags.get("fewstep.test_digest")]
        highest = max((float(version.tags.get("fewstep.score", "-inf")) for version in alike), default=float("-inf"))
        # Of equal scores the newest version is the best one.
        if best.score >= highest:
            self.client.set_registered_model_alias(name, BEST, own.version)

    def _versions(self, name: str) -> Sequence[Any]:
        from mlflow.exceptions import MlflowException

        try:
            self.client.get_registered_model(name)
        except MlflowException:
            self.client.create_registered_model(name, description="The best systems of the runs of this experiment.")
        return list(self.client.search_model_versions(f"name='{name}'"))


def save(
    path: Path,
    directory: Path,
    example: str,
    *,
    search: str | None = None,
    model_id: str | None = None,
    run_id: str | None = None,
) -> None:
    """Write the system in `directory` as an MLflow model made from code (`served_system.py`) to the folder `path`.

    `example` is a source, which the page of the model shows as an input. `search` is the label of the search that the model uses if
    no other is given; None: the default search of the system.
    """
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
    from pandas import DataFrame

    description = read_json(directory / "system.json")
    default = str(description["search"]) if search is None else search
    signature = ModelSignature(
        inputs=Schema([ColSpec("string", "source")]),
        outputs=Schema([ColSpec("string")]),
        params=ParamSchema([ParamSpec("search", "string", default)]),
    )
    facts = {name: description[name] for name in ("family", "format", "languages", "name", "task")} | {"search": default}
    wheel = write_runtime_wheel(path.parent)
    pyfunc.save_model(
        path=str(path),
        python_model=str(CODE),
        artifacts={"system": directory.as_uri()},
        signature=signature,
        input_example=DataFrame({"source": [example]}),
        pip_requirements=[f"{WHEELS}/{wheel.name}", *requirements(description)],
        metadata={"fewstep": json.dumps({**facts, "searches": list(description["searches"])})},
        mlflow_model=Model(model_id=model_id, model_uuid=model_id, run_id=run_id),
    )
    (path / WHEELS).mkdir()
    wheel.rename(path / WHEELS / wheel.name)


def use_own_folder(path: Path) -> None:
    """Make the folder `path` of a saved model the system that the model loads, in place of its copy of one.

    The path of its code on this machine, which MLflow records, is dropped.
    """
    from mlflow.models import Model

    shutil.rmtree(path / "artifacts")
    model = Model.load(str(path))
    model.flavors["python_function"] |= {"artifacts": {"system": {"path": ".", "uri": "."}}, "model_code_path": CODE.name}
    model.save(str(path / "MLmodel"))


def requirements(description: Mapping[str, Any]) -> list[str]:
    """Return what a server of the described system installs from an index."""
    byte_level = ("tokenizers",) if MERGES in description["parts"] else ()
    return [f"{package}=={metadata.version(package)}" for package in (*REQUIRED, *byte_level)]


def write_shared(directory: Path, output: Path, *, verify: bool = True) -> None:
    """Write the system in `directory` into the new directory `output`, with `README.md`, the runtime's wheel, and the files of an
    MLflow model whose artifact is `output` itself.

    With `verify`, the system's files are compared with their digests first. Raises BundleError for a directory that does not hold a
    complete system, ImportError where the runtime's extension is missing.
    """
    description = read_description(directory, verify)
    if verify:
        check_parts(directory, description)
    described = output.parent / "described"  # MLflow copies what it is given, so the weights come later
    described.mkdir()
    shutil.copyfile(directory / DESCRIPTION, described / DESCRIPTION)
    save(output, described.absolute(), EXAMPLE)
    use_own_folder(output)
    for part in (DESCRIPTION, *description["parts"]):
        (output / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory / part, output / part)
    (wheel,) = (output / WHEELS).iterdir()
    (output / CARD).write_text(model_card(directory, f"{WHEELS}/{wheel.name}"), encoding="utf-8")
