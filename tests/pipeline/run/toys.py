"""Toy stages that append text, and runs of them in one process."""

from dataclasses import dataclass

from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from stages.artifacts import Artifact
from stages.context import StepContext
from stages.stage import Stage

CALLS: list[str] = []


FAULTS: dict[str, list[Exception]] = {}


@dataclass(frozen=True)
class Toy(Artifact):
    pass


@dataclass(frozen=True)
class ToyInputs:
    before: tuple[Toy, ...] = ()


@dataclass(frozen=True)
class ToyConfig:
    text: str


def toy(inputs: ToyInputs, config: ToyConfig, context: StepContext) -> None:
    CALLS.append(config.text)
    if FAULTS.get(config.text):
        raise FAULTS[config.text].pop()
    before = "".join((artifact.path / "text").read_text() for artifact in inputs.before)
    context.write_text(context.directory / "text", before + config.text)


STAGE = Stage("toy", 1, toy, Toy)


def config(store: Store) -> RunConfig:
    return RunConfig(store=StoreConfig(path=store.root), cluster=Cluster(retries=2), tracking=Tracking(enabled=False))


def diamond(store: Store, left: str = "b") -> Plan:
    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig(left))
    c = builder.add(STAGE, "c", ToyInputs((a,)), ToyConfig("c"))
    builder.add(STAGE, "d", ToyInputs((b, c)), ToyConfig("d"))
    return builder.plan()


def go(plan: Plan, store: Store) -> execute.RunReport:
    return execute.run(config(store), plan, store, config_file="toy.yaml", in_process=True)


def text(plan: Plan, name: str) -> str:
    return next(s.directory / "text" for s in plan.steps if s.name == name).read_text()
