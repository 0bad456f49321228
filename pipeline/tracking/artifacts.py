"""The artifacts of MLflow runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipeline.tracking.database import local_path
from pipeline.urls import masked
from stages.errors import StageError

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.tracking import MlflowClient

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of servers of this machine, which may name its folders."""


class RunArtifacts:
    """The artifacts on a server by MLflow run and name.

    The folder of each run is requested from the server here. MLflow's client caches it for the whole process by run id alone, and
    the runs of a copied store have the same ids as those of the original store.
    """

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client = client
        self._uri = uri
        self._folders: dict[str, ArtifactRepository] = {}
        self._sizes: dict[tuple[str, str], dict[str, int | None]] = {}
        """Sizes of the artifacts by run id and folder."""

    def holds(self, run_id: str, name: str, size: int) -> bool:
        """Return whether a run has an artifact of this name and size in bytes. Each folder is listed once."""
        found = self._listed(run_id, name).get(name, -1)
        return found is None or found == size

    def send(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Send a file under its name."""
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
        if (run_id, folder) not in self._sizes:
            found = self._folder(run_id).list_artifacts(folder or None)
            self._sizes[run_id, folder] = {file.path: file.file_size for file in found if not file.is_dir}
        return self._sizes[run_id, folder]

    def _folder(self, run_id: str) -> ArtifactRepository:
        if run_id not in self._folders:
            self._folders[run_id] = folder_at(self._client.get_run(run_id).info.artifact_uri, self._uri)
        return self._folders[run_id]


def folder_at(location: str, uri: str) -> ArtifactRepository:
    """Return the folder of artifacts at a location that the server `uri` stated.

    Raises StageError for a folder of this machine that a server elsewhere stated, which could name any.
    """
    if uri.startswith(("http:", "https:")) and urlsplit(uri).hostname not in LOOPBACK and local_path(location) is not None:
        raise StageError(
            f"{masked(uri)}: expected artifacts on the server or on object storage, got the folder {location[:200]} of this "
            "machine; start the server with --serve-artifacts, or name another experiment in tracking.experiment"
        )
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

    return get_artifact_repository(add_databricks_profile_info_to_artifact_uri(location, uri), tracking_uri=uri)
