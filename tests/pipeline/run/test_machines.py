"""Tests of this process as the machine of a run."""

import pickle
from dataclasses import replace

import pytest

from pipeline.config.schema import Cluster
from pipeline.plan.step import Builder
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.context import StepContext
from stages.workers import LimitedResources, Resources
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, config


def test_memory_and_custom_resources_are_unlimited_in_process(store: Store) -> None:
    asking = {"corpus": Resources(workers=2, memory_gib=1e6, custom={"fast_disk": 1})}
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(context.resources)

    builder.add(replace(STAGE, name="corpus", run=look), "a", ToyInputs(), ToyConfig("a"))
    generous = replace(config(store), cluster=Cluster(resources=asking))
    assert execute.run(generous, builder.plan(), store, config_file="toy.yaml", in_process=True).failed == {}
    assert [(resources.workers, dict(resources.custom)) for resources in seen] == [(1, {"fast_disk": 1})]


@pytest.mark.parametrize(("users", "threads"), [("2", 2), ("9", 4), ("", 4)])
def test_the_users_limit_of_threads_holds_in_process(
    store: Store, monkeypatch: pytest.MonkeyPatch, users: str, threads: int
) -> None:
    """A step has a thread for each of its CPUs, whose number `OMP_NUM_THREADS` does not change."""
    monkeypatch.setenv("OMP_NUM_THREADS", users)
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(pickle.loads(pickle.dumps(context.for_workers().resources)))

    builder.add(replace(STAGE, name="train", run=look), "a", ToyInputs(), ToyConfig("a"))
    asking = replace(config(store), cluster=Cluster(cpus=4, resources={"train": Resources(cpus=4)}))
    report = execute.run(asking, plan := builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert report.failed == {}
    assert [(resources.cpus, resources.threads) for resources in seen] == [(4, threads)]
    manifest = store.manifest(plan.steps[0].directory)
    assert manifest is not None
    assert (manifest.environment["cpus"], manifest.environment["threads"]) == (4, threads)


def test_resources_without_a_lower_limit_stay_as_they_are() -> None:
    granted = Resources(cpus=2, workers=1)
    assert [LimitedResources.of(granted, limit) is granted for limit in (None, 2, 3, 1)] == [True, True, True, False]
