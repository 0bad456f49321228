"""From a config file to the plan that several commands work on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fewstep.access import name_problem
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.plan.packages import check_packages
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from pipeline.store.marker import open_store
from stages.errors import DataError


def planned(config: Path, overrides: Sequence[str] | None, until: str | None) -> tuple[RunConfig, Plan, Store]:
    """Load a config; return it with its plan, or the part that `until` names, and its store.

    Raises ConfigError for a wrong config, DataError for a missing file or package, an unknown step and a directory that cannot be a
    store.
    """
    if problem := name_problem(config.absolute()):
        raise DataError(f"{str(config)!a}: {problem}")
    settings = load_config(config, overrides or ())
    check_packages(settings)
    store = open_store(settings.store.path)
    return settings, build_plan(settings, store).until(until), store
