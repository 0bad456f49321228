"""The artifacts of MLflow runs: which are there, and sending others."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.tracking import MlflowClient


class RunArtifacts:
    """Artifacts by MLflow run and name.

    The folder of each run is asked of the server here: MLflow's client remembers it for the whole process by run id alone, and the
    runs of a copied store have the same ids as those of the store it came from.
    """

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client, self._uri = client, uri
        self._folders: dict[str, ArtifactRepository] = {}
        self._there: dict[tuple[str, str], dict[str, int | None]] = {}
        """By run id and folder: the size of each artifact there."""

    def holds(self, run_id: str, name: str, size: int) -> bool:
        """Whether a run has an artifact of this name and size (bytes). Each folder is listed once."""
        there = self._listed(run_id, name).get(name, -1)
        return there is None or there == size

    def send(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Send a file, which keeps its name."""
        self._folder(run_id).log_artifact(str(path), folder)
        name = f"{folder}/{path.name}" if folder else path.name
        self._listed(run_id, name)[name] = path.stat().st_size

    def send_text(self, run_id: str, name: str, text: str) -> None:
        """Send a text as the file `name`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            self.send(run_id, path)

    def _listed(self, run_id: str, name: str) -> dict[str, int | None]:
        folder = name.rpartition("/")[0]
        if (run_id, folder) not in self._there:
            found = self._folder(run_id).list_artifacts(folder or None)
            self._there[run_id, folder] = {file.path: file.file_size for file in found if not file.is_dir}
        return self._there[run_id, folder]

    def _folder(self, run_id: str) -> ArtifactRepository:
        if run_id not in self._folders:
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
            from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

            uri = add_databricks_profile_info_to_artifact_uri(self._client.get_run(run_id).info.artifact_uri, self._uri)
            self._folders[run_id] = get_artifact_repository(uri, tracking_uri=self._uri)
        return self._folders[run_id]
