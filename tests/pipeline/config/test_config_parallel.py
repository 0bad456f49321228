"""Networks that write all slots at once, in a config and in the plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from models.dag.system import DagSystem
from models.parallel.system import ParallelSystem
from pipeline.config.load import load_config, resolved
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from tests.pipeline.config.config_text import ROOT, load, wrong

SYSTEMS = "teacher: {}\nsystems: {plain: {}, short: {max_positions: 64}, graph: {family: dag}, slots: {family: parallel"


def test_the_resolved_config_loads_back(tmp_path: Path) -> None:
    search = "[greedy, {prefix-beam: {beam_size: 5, token_bonus: 0.5}}]"
    config = load(tmp_path, f"{SYSTEMS}, objective: ctc, slot_input: gaussian, upsampling: 2.5, search: {search}}}}}")
    system = config.systems["slots"]
    assert isinstance(system, ParallelSystem)
    assert system.network.max_slots == 2560
    assert list(system.search.values()) == [ParallelSearch(), ParallelSearch(strategy="prefix-beam", beam_size=5, token_bonus=0.5)]
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ", slot_input: uniform}}",
            "systems.slots.slot_input: expected repeat or gaussian with objective ctc-glat, got uniform",
        ),
        (", objective: cmlm, slot_input: soft}}", "systems.slots.slot_input: expected mask with objective cmlm, got soft"),
        (", upsampling: 9}}", "systems.slots.upsampling: expected at most 8, got 9"),
        (", rescorer: none}}", "systems.slots.rescorer: expected one of plain, short, graph, got 'none'"),
        (", rescorer: graph}}", "systems.slots.rescorer: expected a system of family stepwise, got 'graph' of family dag"),
        (", rescorer: short}}", "systems.slots.max_positions: expected at most 64, as 'short' has, to score all outputs, got 1024"),
        (", search: mask-predict}}", "expected a strategy other than mask-predict with objective ctc-glat"),
        (
            ", objective: nat, search: {greedy: {rescoring: system, length_candidates: 2}}}}",
            "rescoring: expected self for a system without a `rescorer`",
        ),
        (", search: {prefix-beam: {ngram_weight: 0.1}}}}", "expected 0 for a system without an n-gram model"),
        (", search: {greedy: {shortlist: {}}}}}", "search.greedy.shortlist: expected tokens or recall, got neither"),
        (
            ", search: {greedy: {shortlist: {tokens: 50, recall: 0.9}}}}}",
            "search.greedy.shortlist.recall: expected empty where tokens states the size, got 0.9",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, problem: str) -> None:
    problems = wrong(tmp_path, SYSTEMS + text)
    assert len(problems) == 1
    assert problem in problems[0]


def test_validation_decodes_with_the_search_that_the_objective_needs() -> None:
    for objective, strategy in (("nat", "greedy"), ("ctc", "greedy"), ("cmlm", "mask-predict")):
        network = ParallelConfig(objective=objective)  # type: ignore[arg-type]
        assert ParallelSearch.for_network(network).strategy == strategy


def test_a_system_is_planned_behind_its_rescorer(tmp_path: Path) -> None:
    text = (
        f"store: {{path: {tmp_path}/store}}\nteacher: {{}}\nsystems: {{slots: {{family: parallel, rescorer: plain}}, plain: {{}}}}"
    )
    steps = {step.name: step for step in build_plan(load(tmp_path, text), Store(tmp_path / "store")).steps}
    needs = {need.partition("/")[0] for need in steps["system:slots"].needs}
    assert {"system:plain", "train:slots"} <= needs


def test_the_recipe_differs_by_the_objective_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n")
    sets = [
        f"corpus.{part}.{side}={tmp_path / 'text'}"
        for part in ("train", "validation", "test.test_2016")
        for side in ("source", "target")
    ]
    config = load_config(ROOT / "configs/multi30k/parallel.yaml", [*sets, "seeds=[1]"])
    systems = {name: system for name, system in config.systems.items() if isinstance(system, ParallelSystem)}
    for suffix, data in (("", "raw"), ("-distilled", "distilled")):
        mine = {name: system for name, system in systems.items() if name.endswith("-distilled") == bool(suffix)}
        assert sorted(system.objective for system in mine.values()) == ["cmlm", "ctc", "ctc-glat", "glat", "nat"]
        assert {system.data for system in mine.values()} == {data}
        graph = config.systems[f"dag{suffix}"]
        assert isinstance(graph, DagSystem)
        # Graphs are trained without label smoothing, as their paper does.
        assert {system.training for system in mine.values()} == {replace(graph.training, label_smoothing=0.1)}
        assert len({(system.dropout, system.width, system.decoder_layers) for system in mine.values()}) == 1
        assert all(system.glancing_updates == system.training.updates for system in mine.values() if system.glances)
