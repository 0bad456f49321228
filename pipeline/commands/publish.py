"""`fewstep publish`."""

from __future__ import annotations

from pipeline.commands.options import STORE, RunName, StorePath
from pipeline.config.schema import Tracking
from pipeline.run.run_directory import find_run
from pipeline.tracking.publisher import publish as publish_run


def publish(name: RunName = "latest", store: StorePath = STORE) -> None:
    """Bring MLflow up to date with a run, finished or not."""
    found = find_run(store, name)
    tracking = found.spec["config"]["tracking"]
    settings = Tracking(**tracking)
    print(f"published to {publish_run(found.path, settings)}")
