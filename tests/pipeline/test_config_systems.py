"""Systems of several families in one config."""

import json
from pathlib import Path

import pytest

from models.dag.config import DagConfig, DagSearch
from models.stepwise.config import StepwiseSearch
from pipeline.config import RunConfig, load_config, parse_search, resolved
from pipeline.config_systems import DagSystem, StepwiseSystem
from pipeline.errors import ConfigError
from pipeline.store import Store
from pipeline.wiring import build_plan

GRAPH = "systems: {one: {}, graph: {family: dag"


def load(tmp_path: Path, text: str) -> RunConfig:
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    return load_config(tmp_path / "c.yaml")


def graph_of(config: RunConfig) -> DagSystem:
    system = config.systems["graph"]
    assert isinstance(system, DagSystem)
    return system


def test_a_graph_takes_from_the_defaults_what_it_has_too(tmp_path: Path) -> None:
    defaults = "defaults: {order: interleaved, width: 64, search: [greedy], training: {updates: 7}}\n"
    config = load(tmp_path, f"{defaults}{GRAPH}, graph_factor: 5}}}}")
    one, graph = config.systems["one"], graph_of(config)
    assert isinstance(one, StepwiseSystem)
    assert (one.order, one.width, one.search) == ("interleaved", 64, (StepwiseSearch(),))
    assert graph.network == DagConfig(width=64, graph_factor=5.0)
    assert graph.search == (DagSearch(),)
    assert graph.training.updates == 7


def test_graphs_are_trained_without_label_smoothing_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert graph_of(load(tmp_path, f"{GRAPH}}}}}")).training.label_smoothing == 0.0
    assert graph_of(load(tmp_path, f"{GRAPH}, training: {{label_smoothing: 0.2}}}}}}")).training.label_smoothing == 0.2
    assert (
        graph_of(load(tmp_path, f"defaults: {{training: {{label_smoothing: 0.2}}}}\n{GRAPH}}}}}")).training.label_smoothing == 0.2
    )
    one = load(tmp_path, f"{GRAPH}}}}}").systems["one"]
    assert isinstance(one, StepwiseSystem)
    assert one.training.label_smoothing == 0.1


def test_the_resolved_config_loads_back(tmp_path: Path) -> None:
    config = load(tmp_path, f"{GRAPH}, graph_factor_range: [4, 8], search: [lookahead, {{beam: {{candidates: 3}}}}]}}}}")
    assert graph_of(config).search == (DagSearch(), DagSearch(strategy="beam", candidates=3))
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{GRAPH}, order: interleaved}}}}", "systems.graph.order: expected one of the keys"),
        (f"{GRAPH}, search: outer}}}}", "systems.graph.search: expected 'greedy', 'lookahead'"),
        ("systems: {graph: {family: gat}}", "systems.graph.family: expected one of dag, lattice, stepwise, got 'gat'"),
        (
            f"{GRAPH}, graph_factor_range: [8, 4]}}}}",
            "systems.graph.graph_factor_range: expected two factors above 0, the lower one",
        ),
        (f"{GRAPH}, initial_weights: teacher}}}}", "systems.graph.initial_weights: expected a teacher in the config, got none"),
        (f"{GRAPH}, heads: 3}}}}", "systems.graph.heads: expected a divisor of width 128, got 3"),
        (f"{GRAPH}, search: {{beam: {{ngram_weight: 0.1}}}}}}}}", "ngram_weight: expected 0 without an n-gram model"),
        (
            f"ngram: {{unit: words}}\n{GRAPH}, search: {{beam: {{ngram_weight: 0.1}}}}}}}}",
            "ngram: expected an n-gram model of pieces of the target",
        ),
        (f"ngram: {{}}\n{GRAPH}, search: {{lookahead: {{ngram_weight: 0.1}}}}}}}}", "ngram_weight: expected 0 with lookahead"),
        (f"{GRAPH}, search: {{lookahead: {{n_best: 2}}}}}}}}", "n_best: expected at most 1"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    (found,) = caught.value.problems
    assert problem in found


def test_a_search_on_the_command_line_is_one_of_the_systems_family() -> None:
    assert parse_search("{beam: {candidates: 3}}", "--search", "dag") == DagSearch(strategy="beam", candidates=3)
    assert parse_search("lookahead", "--search", "dag") == DagSearch()
    with pytest.raises(ConfigError, match="lookahead"):
        parse_search("lookahead", "--search")


def test_what_a_graph_rests_on_is_planned(tmp_path: Path) -> None:
    text = f"teacher: {{}}\nngram: {{}}\nstore: {{path: {tmp_path}/store}}\n"
    asks = "initial_weights: teacher, data: distilled, search: [lookahead, {beam: {ngram_weight: 0.1}}]"
    config = load(tmp_path, f"{text}{GRAPH}, {asks}}}, plain: {{family: dag}}}}")
    steps = {step.name: step for step in build_plan(config, Store(config.store.path)).steps}
    assert {"train:teacher", "encode:distilled"} <= set(steps["train:graph"].needs)
    assert "train:teacher" not in steps["train:plain"].needs
    assert "ngram:target" in steps["system:graph"].needs
    assert "ngram:target" not in steps["system:plain"].needs
    assert steps["system:graph"].config.family == "dag"
    assert {"decode:graph/lookahead:test", "decode:graph/beam200-lm:test"} <= set(steps)
