"""Tests of the reasons that `plan` prints, over toy stages whose artifacts the executor made."""

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan import explain
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from stages.artifacts import MANIFEST, Artifact, ExternalFile
from stages.context import StepContext
from stages.errors import ArtifactError
from stages.stage import Stage


@dataclass(frozen=True)
class Toy(Artifact):
    pass


@dataclass(frozen=True)
class Inputs:
    before: tuple[Toy, ...] = ()
    file: ExternalFile | None = None


@dataclass(frozen=True)
class Recipe:
    updates: int = 1
    rate: float = 0.5


@dataclass(frozen=True)
class Config:
    text: str
    recipe: Recipe = Recipe()
    others: dict[str, Recipe | None] = field(default_factory=dict)


def toy(inputs: Inputs, config: Config, context: StepContext) -> None:
    context.write_text(context.directory / "text", config.text)


STAGE = Stage("toy", 1, toy, Toy)
LATER = replace(STAGE, name="later")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def plan(store: Store, *, first: Config = Config("a"), second: Config = Config("b"), stage: Stage[Any, Any, Any] = STAGE) -> Plan:
    """Return the plan of `toy:a`, and of `later:b` with it as input."""
    builder = Builder(store.root)
    a = builder.add(stage, "a", Inputs(), first)
    builder.add(LATER, "b", Inputs((a,)), second)
    return builder.plan()


def single(store: Store, name: str, config: Config, inputs: Inputs = Inputs()) -> Plan:
    builder = Builder(store.root)
    builder.add(STAGE, name, inputs, config)
    return builder.plan()


def make(plan: Plan, store: Store) -> None:
    config = RunConfig(store=StoreConfig(path=store.root), cluster=Cluster(), tracking=Tracking(enabled=False))
    assert execute.run(config, plan, store, config_file="toy.yaml", in_process=True).failed == {}


def reasons(plan: Plan, store: Store) -> list[tuple[str, str, str]]:
    return [(line.step.name, line.verdict, line.reason) for line in explain.explain(plan, store)]


def test_an_empty_store_has_no_earlier_artifact(store: Store) -> None:
    assert reasons(plan(store), store) == [
        ("toy:a", "MISS", "no earlier toy in the store"),
        ("later:b", "MISS", "no earlier later in the store"),
    ]


def test_finished_steps_are_hits_without_a_reason(store: Store) -> None:
    make(plan(store), store)
    assert reasons(plan(store), store) == [("toy:a", "HIT", ""), ("later:b", "HIT", "")]


def test_changed_parameters_are_listed_by_dotted_name(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, second=Config("ä", Recipe(updates=2)))
    assert reasons(changed, store) == [
        ("toy:a", "HIT", ""),
        ("later:b", "MISS", 'recipe.updates: 1 -> 2; text: "b" -> "ä"'),
    ]


def test_new_and_removed_sections_are_listed_without_their_keys(store: Store) -> None:
    make(single(store, "a", Config("a", others={"kept": Recipe(), "left": Recipe(), "set": None})), store)
    now = single(store, "a", Config("a", others={"kept": Recipe(updates=2), "new": Recipe(), "set": Recipe()}))
    what = "others.kept.updates: 1 -> 2; others.left was removed; others.new is new; others.set is new"
    assert reasons(now, store) == [("toy:a", "MISS", what)]


def test_only_the_first_differences_are_listed_and_the_others_counted(store: Store) -> None:
    make(single(store, "a", Config("a")), store)
    many = {f"part{number:02}": Recipe() for number in range(explain.MAX_DIFFERENCES + 3)}
    listed = "; ".join(f"others.part{number:02} is new" for number in range(explain.MAX_DIFFERENCES))
    assert reasons(single(store, "a", Config("a", others=many)), store) == [("toy:a", "MISS", f"{listed}; and 3 more")]


def test_a_new_option_with_its_default_value_is_no_difference(store: Store) -> None:
    plan = single(store, "a", Config("a"))
    make(plan, store)
    path = plan.steps[0].directory / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["config"]["recipe"]["rate"]
    path.write_text(json.dumps(manifest))
    assert reasons(single(store, "a", Config("b")), store) == [("toy:a", "MISS", 'text: "a" -> "b"')]
    changed = single(store, "a", Config("a", Recipe(rate=0.1)))
    assert reasons(changed, store) == [("toy:a", "MISS", "recipe.rate: absent -> 0.1")]


def test_a_changed_input_is_listed_with_the_step_that_makes_it(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, first=Config("a", Recipe(rate=0.25)))
    assert reasons(changed, store) == [
        ("toy:a", "MISS", "recipe.rate: 0.5 -> 0.25"),
        ("later:b", "MISS", "input before.0 differs (toy:a is a MISS)"),
    ]
    make(single(store, "a", Config("a", Recipe(rate=0.25))), store)
    assert reasons(changed, store) == [("toy:a", "HIT", ""), ("later:b", "MISS", "input before.0 differs (toy:a)")]


def test_new_and_removed_inputs_are_listed(store: Store) -> None:
    make(single(store, "a", Config("a")), store)
    source = Path(__file__)
    with_file = single(store, "a", Config("a"), Inputs(file=ExternalFile(source, store.digest(source))))
    assert reasons(with_file, store) == [("toy:a", "MISS", "input file is new")]
    make(with_file, store)
    shutil.rmtree(single(store, "a", Config("a")).steps[0].directory)
    assert reasons(single(store, "a", Config("a")), store) == [("toy:a", "MISS", "input file was removed")]


def test_a_changed_stage_version_is_listed(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, stage=replace(STAGE, version=2))
    assert reasons(changed, store)[0] == ("toy:a", "MISS", "version 1 -> 2")


def test_hits_with_changed_code_are_marked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make(plan(store), store)
    monkeypatch.setattr(explain, "code_digest", lambda module: "another")
    assert reasons(plan(store), store) == [("toy:a", "HIT", "code changed since"), ("later:b", "HIT", "code changed since")]


def test_partial_artifacts_are_reported_as_begun(store: Store) -> None:
    begun = plan(store)
    for step in begun.steps:
        partial_directory(step.directory, "1").mkdir(parents=True)
    assert reasons(begun, store)[0] == ("toy:a", "MISS", "no earlier toy in the store; begun, continues")
    make(single(store, "a", Config("z")), store)
    assert reasons(begun, store)[0] == ("toy:a", "MISS", 'text: "z" -> "a"; begun, continues')


def test_a_step_that_was_killed_before_its_rename_has_no_differences(store: Store) -> None:
    """Its manifest is in the `.partial` directory."""
    lost = single(store, "a", Config("a"))
    make(lost, store)
    directory = lost.steps[0].directory
    directory.rename(partial_directory(directory, "1"))
    assert reasons(lost, store) == [("toy:a", "MISS", "no artifact of toy:a is in the store; begun, continues")]


def test_a_step_is_compared_with_the_most_similar_artifact(store: Store) -> None:
    """The same name comes before fewer differences, and these before a later time."""
    wanted = single(store, "a", Config("a", Recipe(1, 0.5)))
    make(single(store, "other", Config("a", Recipe(1, 0.1))), store)
    assert reasons(wanted, store)[0][2] == "recipe.rate: 0.1 -> 0.5"
    make(single(store, "a", Config("c", Recipe(3, 0.2))), store)
    assert reasons(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; recipe.updates: 3 -> 1; text: "c" -> "a"'
    make(single(store, "a", Config("a", Recipe(3, 0.2))), store)
    assert reasons(wanted, store)[0][2] == "recipe.rate: 0.2 -> 0.5; recipe.updates: 3 -> 1"
    make(single(store, "a", Config("d", Recipe(1, 0.2))), store)
    assert reasons(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; text: "d" -> "a"'
    make(single(store, "a", Config("e", Recipe(4, 0.2))), store)
    assert reasons(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; text: "d" -> "a"'


@pytest.mark.parametrize("content", ['{"schema": 0, "step": "toy:a", "finished": 1}', '{"step": "toy:a"}', "[]", "{"])
def test_manifests_of_other_versions_are_skipped(store: Store, content: str) -> None:
    foreign = store.directory("toy", "foreign")
    foreign.mkdir(parents=True)
    (foreign / MANIFEST).write_text(content)
    assert reasons(plan(store), store)[0] == ("toy:a", "MISS", "no earlier toy in the store")
    make(single(store, "other", Config("z")), store)
    assert reasons(plan(store), store)[0] == ("toy:a", "MISS", 'text: "z" -> "a"')


def test_an_artifact_of_the_step_with_another_schema_is_refused(store: Store) -> None:
    made = plan(store)
    make(made, store)
    path = made.steps[0].directory / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(ArtifactError, match="expected schema 1, got 99"):
        reasons(made, store)


def test_a_missing_step_that_no_step_needs_is_reported_as_not_executed(store: Store) -> None:
    steps = plan(store)
    make(steps, store)
    shutil.rmtree(steps.steps[0].directory)
    (first, second) = explain.explain(steps, store)
    assert first.verdict == "MISS"
    assert first.reason.endswith("; not executed: no step that will be executed needs it")
    assert second.verdict == "HIT"
