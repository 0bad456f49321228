"""Every recipe plans with every cluster of `configs/cluster`, and a cluster without its GPUs is named by step."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.plan.step import Plan
from pipeline.plan.wiring import build_plan
from pipeline.run.shortages import shortages
from pipeline.store.artifacts import Store
from stages.workers import Resources
from tests.recipes.twins import KINDS, PAPERS, RECIPES, VARIANTS, twin, write_text
from tests.shared import rest_exhaustive

CLUSTERS = {"one-gpu": [1], "one-node": [8], "two-nodes": [8, 8]}
"""GPUs of the machines of each cluster."""
ON_GPUS = {"train", "distill", "decode", "tune", "benchmark"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def machines(gpus: list[int]) -> dict[str, dict[str, float]]:
    return {f"machine {number}": {"CPU": 64.0, "GPU": float(count)} for number, count in enumerate(gpus)}


def plan_of(name: str, folder: Path) -> Plan:
    values = twin(name)
    write_text(values)
    path = folder / "twin.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return build_plan(load_config(path), Store(folder / "store"))


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_exhaustive([*RECIPES, *VARIANTS], KINDS))
def test_a_recipe_fits_every_cluster_and_no_smaller_one(name: str, folder: Path) -> None:
    steps = plan_of(name, folder).steps
    for cluster, gpus in CLUSTERS.items():
        mine = folder / f"{cluster}.yaml"
        mine.write_text(f"base: [{PAPERS / name}.yaml, {PAPERS.parent / 'cluster' / cluster}.yaml]\n")
        requests: dict[str, Resources] = {str(key): value for key, value in load_config(mine).cluster.resources.items()}
        assert shortages(steps, requests, machines(gpus)) == {}
        short = shortages(steps, requests, machines([*gpus[:-1], gpus[-1] - 1]))
        trainings = [step.name for step in steps if step.stage.name == "train"]
        assert trainings
        assert next(names for reason, names in short.items() if reason.startswith("cluster.resources.train:")) == trainings
        without = shortages(steps, requests, machines([0]))
        assert sorted(name for names in without.values() for name in names) == sorted(
            step.name for step in steps if step.stage.name in ON_GPUS
        )
