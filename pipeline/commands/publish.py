"""`fewstep publish`."""

from __future__ import annotations

from fewstep.text.escape import escaped
from pipeline.commands.options import STORE, RunName, StorePath
from pipeline.commands.output import warn_of_unknown_licences
from pipeline.config.schema import Tracking
from pipeline.run.run_directory import find_run
from pipeline.store.attempts import is_partial
from pipeline.store.records import step_directory
from pipeline.tracking.publisher import publish as publish_run
from stages import system


def publish(name: RunName = "latest", store: StorePath = STORE) -> None:
    """Bring MLflow up to date with a run, finished or not."""
    found = find_run(store, name)
    tracking = found.spec["config"]["tracking"]
    settings = Tracking(**tracking)
    print(escaped(f"published to {publish_run(found.path, settings)}"))
    steps = [entry for entry in found.spec["plan"] if entry["stage"] == system.STAGE.name]
    directories = [step_directory(found.store, entry) for entry in steps]
    warn_of_unknown_licences(one for one in directories if not is_partial(one))
