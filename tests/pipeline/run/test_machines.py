"""Tests of this process as the machine of a run."""

from dataclasses import replace

from pipeline.config.schema import Cluster
from pipeline.plan.step import Builder
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.context import StepContext
from tests.pipeline.run.toys import STAGE, ToyConfig, ToyInputs, config


def test_memory_and_custom_resources_are_unlimited_in_process(store: Store) -> None:
    from stages.workers import Resources

    asking = {"corpus": Resources(workers=2, memory_gib=1e6, custom={"fast_disk": 1})}
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(context.resources)

    builder.add(replace(STAGE, name="corpus", run=look), "a", ToyInputs(), ToyConfig("a"))
    generous = replace(config(store), cluster=Cluster(resources=asking))
    assert execute.run(generous, builder.plan(), store, config_file="toy.yaml", in_process=True).failed == {}
    assert [(resources.workers, dict(resources.custom)) for resources in seen] == [(1, {"fast_disk": 1})]
