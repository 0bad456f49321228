"""The reasons that `plan` gives, over toy stages whose artifacts the executor made."""

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
    """Plan `toy:a`, and `later:b`, which needs it."""
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


def told(plan: Plan, store: Store) -> list[tuple[str, str, str]]:
    return [(line.step.name, line.verdict, line.reason) for line in explain.explain(plan, store)]


def test_an_empty_store_holds_nothing_earlier(store: Store) -> None:
    assert told(plan(store), store) == [
        ("toy:a", "MISS", "no earlier toy in the store"),
        ("later:b", "MISS", "no earlier later in the store"),
    ]


def test_what_is_there_needs_no_reason(store: Store) -> None:
    make(plan(store), store)
    assert told(plan(store), store) == [("toy:a", "HIT", ""), ("later:b", "HIT", "")]


def test_changed_parameters_are_told_by_their_dotted_names(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, second=Config("ä", Recipe(updates=2)))
    assert told(changed, store) == [
        ("toy:a", "HIT", ""),
        ("later:b", "MISS", 'recipe.updates: 1 -> 2; text: "b" -> "ä"'),
    ]


def test_parts_that_come_and_go_are_named_without_their_keys(store: Store) -> None:
    make(single(store, "a", Config("a", others={"kept": Recipe(), "left": Recipe(), "set": None})), store)
    now = single(store, "a", Config("a", others={"kept": Recipe(updates=2), "new": Recipe(), "set": Recipe()}))
    what = "others.kept.updates: 1 -> 2; others.left is gone; others.new is new; others.set is new"
    assert told(now, store) == [("toy:a", "MISS", what)]


def test_of_many_differences_the_first_are_told_and_the_others_counted(store: Store) -> None:
    make(single(store, "a", Config("a")), store)
    many = {f"part{number:02}": Recipe() for number in range(explain.TOLD + 3)}
    told_of = "; ".join(f"others.part{number:02} is new" for number in range(explain.TOLD))
    assert told(single(store, "a", Config("a", others=many)), store) == [("toy:a", "MISS", f"{told_of}; and 3 more")]


def test_an_option_of_later_that_is_not_used_explains_nothing(store: Store) -> None:
    plan = single(store, "a", Config("a"))
    make(plan, store)
    path = plan.steps[0].directory / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["config"]["recipe"]["rate"]
    path.write_text(json.dumps(manifest))
    assert told(single(store, "a", Config("b")), store) == [("toy:a", "MISS", 'text: "a" -> "b"')]
    changed = single(store, "a", Config("a", Recipe(rate=0.1)))
    assert told(changed, store) == [("toy:a", "MISS", "recipe.rate: absent -> 0.1")]


def test_a_changed_input_is_told_with_its_maker(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, first=Config("a", Recipe(rate=0.25)))
    assert told(changed, store) == [
        ("toy:a", "MISS", "recipe.rate: 0.5 -> 0.25"),
        ("later:b", "MISS", "input before.0 differs (toy:a is a MISS)"),
    ]
    make(single(store, "a", Config("a", Recipe(rate=0.25))), store)
    assert told(changed, store) == [("toy:a", "HIT", ""), ("later:b", "MISS", "input before.0 differs (toy:a)")]


def test_files_and_inputs_that_come_and_go(store: Store) -> None:
    make(single(store, "a", Config("a")), store)
    source = Path(__file__)
    with_file = single(store, "a", Config("a"), Inputs(file=ExternalFile(source, store.digest(source))))
    assert told(with_file, store) == [("toy:a", "MISS", "input file is new")]
    make(with_file, store)
    shutil.rmtree(single(store, "a", Config("a")).steps[0].directory)
    assert told(single(store, "a", Config("a")), store) == [("toy:a", "MISS", "input file is gone")]


def test_a_changed_version_of_the_stage_is_told(store: Store) -> None:
    make(plan(store), store)
    changed = plan(store, stage=replace(STAGE, version=2))
    assert told(changed, store)[0] == ("toy:a", "MISS", "version 1 -> 2")


def test_changed_code_is_told_of_what_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make(plan(store), store)
    monkeypatch.setattr(explain, "code_digest", lambda module: "another")
    assert told(plan(store), store) == [("toy:a", "HIT", "code changed since"), ("later:b", "HIT", "code changed since")]


def test_what_was_begun_continues(store: Store) -> None:
    begun = plan(store)
    for step in begun.steps:
        store.partial(step.directory).mkdir(parents=True)
    assert told(begun, store)[0] == ("toy:a", "MISS", "no earlier toy in the store; begun, continues")
    make(single(store, "a", Config("z")), store)
    assert told(begun, store)[0] == ("toy:a", "MISS", 'text: "z" -> "a"; begun, continues')


def test_a_step_that_was_killed_before_its_last_move_differs_in_nothing(store: Store) -> None:
    """The manifest is in the `.partial` directory."""
    lost = single(store, "a", Config("a"))
    make(lost, store)
    directory = lost.steps[0].directory
    directory.rename(store.partial(directory))
    assert told(lost, store) == [("toy:a", "MISS", "no artifact of toy:a is in the store; begun, continues")]


def test_of_several_the_nearest_is_compared_with(store: Store) -> None:
    """The nearest artifact: first by name, then by number of differences, then the latest."""
    wanted = single(store, "a", Config("a", Recipe(1, 0.5)))
    make(single(store, "other", Config("a", Recipe(1, 0.1))), store)
    assert told(wanted, store)[0][2] == "recipe.rate: 0.1 -> 0.5"
    make(single(store, "a", Config("c", Recipe(3, 0.2))), store)
    assert told(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; recipe.updates: 3 -> 1; text: "c" -> "a"'
    make(single(store, "a", Config("a", Recipe(3, 0.2))), store)
    assert told(wanted, store)[0][2] == "recipe.rate: 0.2 -> 0.5; recipe.updates: 3 -> 1"
    make(single(store, "a", Config("d", Recipe(1, 0.2))), store)
    assert told(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; text: "d" -> "a"'
    make(single(store, "a", Config("e", Recipe(4, 0.2))), store)
    assert told(wanted, store)[0][2] == 'recipe.rate: 0.2 -> 0.5; text: "d" -> "a"'


@pytest.mark.parametrize("content", ['{"schema": 0, "step": "toy:a", "finished": 1}', '{"step": "toy:a"}', "[]", "{"])
def test_what_another_version_wrote_is_passed_over(store: Store, content: str) -> None:
    foreign = store.directory("toy", "foreign")
    foreign.mkdir(parents=True)
    (foreign / MANIFEST).write_text(content)
    assert told(plan(store), store)[0] == ("toy:a", "MISS", "no earlier toy in the store")
    make(single(store, "other", Config("z")), store)
    assert told(plan(store), store)[0] == ("toy:a", "MISS", 'text: "z" -> "a"')


def test_the_very_artifact_of_another_version_is_refused(store: Store) -> None:
    made = plan(store)
    make(made, store)
    path = made.steps[0].directory / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    with pytest.raises(ArtifactError, match="expected schema 1, got 99"):
        told(made, store)


def test_a_missing_step_that_nothing_needs_is_not_promised(store: Store) -> None:
    steps = plan(store)
    make(steps, store)
    shutil.rmtree(steps.steps[0].directory)
    (first, second) = explain.explain(steps, store)
    assert first.verdict == "MISS"
    assert first.reason.endswith("; not made: nothing that is to be made needs it")
    assert second.verdict == "HIT"
