"""Fixtures of stores and tracking settings."""

from pathlib import Path

import pytest

from tests.pipeline.tracking.recorded_run import Settings


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a SQLite file for all tests. Creating its tables takes longer than a test."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def settings(database: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Settings(database)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
