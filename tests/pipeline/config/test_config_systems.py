"""Systems of several families in one config."""

import json
from pathlib import Path

import pytest

from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.stepwise.config import StepwiseSearch
from models.dag.system import DagSystem
from models.lattice.system import LatticeSystem
from models.stepwise.system import StepwiseSystem
from pipeline.config.load import load_config, parse_search, resolved
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from tests.pipeline.config.config_text import load

GRAPH = "systems: {one: {}, graph: {family: dag"
SCORER = "systems: {one: {}, scorer: {family: lattice"


def graph_of(config: RunConfig) -> DagSystem:
    system = config.systems["graph"]
    assert isinstance(system, DagSystem)
    return system


def test_a_graph_takes_from_the_defaults_what_it_has_too(tmp_path: Path) -> None:
    defaults = "defaults: {order: interleaved, width: 64, search: [greedy], training: {updates: 7}}\n"
    config = load(tmp_path, f"{defaults}{GRAPH}, graph_factor: 5}}}}")
    one, graph = config.systems["one"], graph_of(config)
    assert isinstance(one, StepwiseSystem)
    assert (one.order, one.width, list(one.search.values())) == ("interleaved", 64, [StepwiseSearch()])
    assert graph.network == DagConfig(width=64, graph_factor=5.0)
    assert graph.search == {"lookahead": DagSearch()}
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
    assert list(graph_of(config).search.values()) == [DagSearch(), DagSearch(strategy="beam", candidates=3)]
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{GRAPH}, ensemble: 2}}}}", "systems.graph.ensemble: expected one of the keys"),
        (f"{GRAPH}, search: outer}}}}", "systems.graph.search: expected 'greedy', 'lookahead'"),
        (
            "systems: {graph: {family: gat}}",
            "systems.graph.family: expected one of aggressive, dag, lattice, parallel, stepwise, got 'gat'",
        ),
        (
            f"{GRAPH}, graph_factor_range: [8, 4]}}}}",
            "systems.graph.graph_factor_range: expected two factors above 0 and of at most 65536, the lower one",
        ),
        (f"{GRAPH}, initial_weights: teacher}}}}", "systems.graph.initial_weights: expected a teacher in the config, got none"),
        (
            f"{GRAPH}, initial_weights: pretraining}}}}",
            "systems.graph.initial_weights: expected the section `pretraining` in the config, got none",
        ),
        (
            f"pretraining: {{}}\nvocabulary: {{joint: false}}\n{GRAPH}, initial_weights: pretraining}}}}",
            "vocabulary.joint: expected true with pretraining, whose targets are tokens of sources, got false",
        ),
        (
            f"pretraining: {{updates: 9}}\n{GRAPH}, initial_weights: pretraining, training: {{schedule: cosine}}}}}}",
            "pretraining.warmup_updates: expected less than updates (9) with the cosine schedule, got 1000",
        ),
        (
            "pretraining: {target: segments}\nsystems: {words: {initial_weights: pretraining}}",
            "pretraining.target: expected spans or text with words, which is of family stepwise and has no graphs, got 'segments'",
        ),
        (
            f"pretraining: {{target: segments}}\n{GRAPH}, initial_weights: pretraining, objective: ngram}}}}",
            "systems.graph.objective: expected sum or max with pretraining.target segments, got 'ngram'",
        ),
        (f"{GRAPH}, segments: true}}}}", "systems.graph.segments: expected false, as only pre-training with"),
        ("systems: {pretraining: {}}", "systems.pretraining: expected a name other than 'pretraining'"),
        (
            f"{GRAPH}, initial_weights: later}}, later: {{}}}}",
            "systems.graph.initial_weights: expected one of random, teacher, pretraining, one (systems are listed after those that "
            "they start from), got 'later'",
        ),
        (
            f"{GRAPH}, num_averaged: 5}}}}",
            "systems.graph.num_averaged: expected fewer than the 5 candidates that its training keeps, got 5",
        ),
        (
            f"{GRAPH}, sampled_tokens: 9, training: {{label_smoothing: 0.1}}}}}}",
            "systems.graph.sampled_tokens: expected none with label smoothing, which is over all tokens, got 9",
        ),
        (f"{GRAPH}, heads: 3}}}}", "systems.graph.heads: expected a divisor of width 128, got 3"),
        (f"{GRAPH}, search: {{beam: {{ngram_weight: 0.1}}}}}}}}", "ngram_weight: expected 0 for a system without an n-gram model"),
        (
            f"ngram: {{unit: words}}\n{GRAPH}, search: {{beam: {{ngram_weight: 0.1}}}}}}}}",
            "ngram: expected an n-gram model of pieces of the target",
        ),
        (f"ngram: {{}}\n{GRAPH}, search: {{lookahead: {{ngram_weight: 0.1}}}}}}}}", "ngram_weight: expected 0 with lookahead"),
        (f"{GRAPH}, search: {{lookahead: {{n_best: 2}}}}}}}}", "n_best: expected 1 with lookahead, got 2"),
        (
            f"{GRAPH}, search: {{greedy: {{precision: int8, engine: torch}}}}}}}}",
            "precision: expected float32, float16 or bfloat16 with engine torch, got int8",
        ),
        (f"{GRAPH}, search: {{sample: {{precision: bfloat16}}}}}}}}", "precision: expected float32 for sampling, got bfloat16"),
        (
            "systems: {sa: {order: interleaved-sa, search: {greedy: {ngram_weight: 0.5}}}}",
            "ngram_weight: expected 0 for a system without an n-gram",
        ),
        (
            "ngram: {}\nsystems: {sa: {order: interleaved-sa, search: {sample: {ngram_weight: 0.5}}}}",
            "systems.sa.search.sample.ngram_weight: expected 0 with sample, got 0.5",
        ),
        (
            "ngram: {}\nsystems: {sa: {order: interleaved-sa, search: {beam: {ngram_weight: 0.5, selection: outer}}}}",
            "systems.sa.search.beam.ngram_weight: expected 0 unless selection is exact and the first EOS ends an output, got 0.5",
        ),
        (
            "systems: {a: {search: {beam: {beam_threshold: 3, engine: ctranslate2}}}}",
            "systems.a.search.beam.beam_threshold: expected empty with engine ctranslate2, got 3",
        ),
        (
            "ngram: {}\nsystems: {two: {order: interleaved, search: {greedy: {ngram_weight: 0.5}}}}",
            "systems.two.search.greedy.ngram_weight: expected 0 for an order that writes no two adjacent tokens in a step, got 0.5",
        ),
        (
            "systems: {one: {search: {greedy: {end_threshold: 0.5}}}}",
            "systems.one.search.greedy.end_threshold: expected 0 for an order that writes one token a step",
        ),
        (
            "systems: {odd: {order: interleaved, directions: 3, search: {greedy: {end_threshold: 0.5}}}}",
            "systems.odd.order: expected a valid combination of order settings",
        ),
        (
            "systems: {two: {order: interleaved, search: {beam: {end_threshold: 0.5}}}}",
            "systems.two.search.beam.end_threshold: expected 0 with beam, got 0.5",
        ),
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
    several = "{order: interleaved-sa, search: {greedy: {ngram_weight: 0.5}}}"
    config = load(tmp_path, f"{text}{GRAPH}, {asks}}}, plain: {{family: dag}}, several: {several}}}")
    steps = {step.name: step for step in build_plan(config, Store(config.store.path)).steps}
    assert {"train:teacher", "encode:distilled"} <= set(steps["train:graph"].needs)
    assert "train:teacher" not in steps["train:plain"].needs
    assert "ngram:target" in steps["system:graph"].needs
    assert "ngram:target" not in steps["system:plain"].needs
    assert "ngram:target" in steps["system:several"].needs
    assert steps["system:graph"].config.family == "dag"
    assert {"decode:graph/lookahead:test", "decode:graph/beam-ngram_weight0.1:test"} <= set(steps)


def scorer_of(config: RunConfig) -> LatticeSystem:
    system = config.systems["scorer"]
    assert isinstance(system, LatticeSystem)
    return system


def test_a_scorer_has_one_layer_unless_it_is_stated(tmp_path: Path) -> None:
    defaults = "defaults: {order: interleaved, width: 64, decoder_layers: 3, search: [greedy]}\n"
    scorer = scorer_of(load(tmp_path, f"{defaults}{SCORER}}}}}"))
    assert scorer.network == LatticeModelConfig(width=64, decoder_layers=1)
    assert scorer.search == {"viterbi": LatticeSearch()}
    assert scorer.training.label_smoothing == 0.1
    assert scorer_of(load(tmp_path, f"{defaults}{SCORER}, decoder_layers: 6}}}}")).decoder_layers == 6
    assert scorer_of(load(tmp_path, f"{SCORER}, size: base}}}}")).decoder_layers == 1
    assert scorer_of(load(tmp_path, f"{SCORER}, size: base}}}}")).encoder_layers == 6


def test_searches_of_lattices_are_labelled_by_their_differences(tmp_path: Path) -> None:
    searches = (
        "[viterbi, {viterbi: {candidates: 8}}, {viterbi: {normalizer: union}}, {viterbi: {length_window: 0}}, "
        "{viterbi: {count_weight: 0.5, token_bonus: 0.25}}, {viterbi: {candidate_threshold: 4.5, normalizer: local}}, lookup]"
    )
    config = load(tmp_path, f"{SCORER}, word_dropout: 0.1, search: {searches}}}}}")
    assert list(scorer_of(config).search) == [
        "viterbi", "viterbi-candidates8", "viterbi-union", "viterbi-length_window0", "viterbi-count_weight0.5-token_bonus0.25",
        "viterbi-candidate_threshold4.5-local", "lookup",
    ]  # fmt: skip
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SCORER}, segment_length: 3}}}}", "systems.scorer.segment_length: expected 1 or 2, got 3"),
        (
            f"{SCORER}, search: {{viterbi: {{normalizer: selfnorm}}}}}}}}",
            "expected full, union or local for a network trained without",
        ),
        (
            f"{SCORER}, search: {{viterbi: {{candidate_threshold: 4}}}}}}}}",
            "candidate_threshold: expected none for a network trained without word_dropout, got 4",
        ),
        (f"{SCORER}, search: {{lookup: {{n_best: 2}}}}}}}}", "n_best: expected 1 with lookup, got 2"),
        (f"{SCORER}, tables: distilled}}}}", "systems.scorer.tables: expected raw without a teacher"),
        (f"alignment: {{unit: words}}\n{SCORER}}}}}", "alignment.unit: expected pieces for the lattice, got words"),
        (
            f"evaluation: {{lattice_analysis: 3}}\n{GRAPH}}}}}",
            "evaluation.lattice_analysis: expected 0 without a system of the family that is analysed, got 3",
        ),
    ],
)
def test_what_does_not_go_together_in_lattices_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    (found,) = caught.value.problems
    assert problem in found


def planned(tmp_path: Path, text: str) -> dict[str, set[str]]:
    config = load(tmp_path, f"store: {{path: {tmp_path}/store}}\n{text}")
    return {step.name: set(step.needs) for step in build_plan(config, Store(config.store.path)).steps}


def test_tables_are_counted_from_what_a_scorer_learns_from(tmp_path: Path) -> None:
    steps = planned(
        tmp_path,
        "teacher: {}\nevaluation: {lattice_analysis: 2}\nsystems: {raw: {family: lattice}, "
        "distilled: {family: lattice, data: distilled}, mixed: {family: lattice, data: mixed}, "
        "both: {family: lattice, data: distilled, tables: raw}}",
    )
    for name, counted in (("raw", "raw"), ("distilled", "distilled"), ("mixed", "distilled"), ("both", "raw")):
        other = {"raw": "distilled", "distilled": "raw"}[counted]
        for step in (f"train:{name}", f"system:{name}"):
            assert f"lattice:{counted}" in steps[step]
            assert f"lattice:{other}" not in steps[step]
    assert steps["lattice:distilled"] >= {"align:distilled", "encode:distilled"}
    assert steps["lattice_analysis:raw:test"] == {"system:raw", "corpus:test"}
    assert {"lattice_analysis:raw:test", "lattice:raw", "lattice:distilled"} <= steps["report:run"]


def test_systems_without_lattices_need_no_tables(tmp_path: Path) -> None:
    plain = planned(tmp_path, "systems: {one: {}}")
    assert not [name for name in plain if name.startswith(("align:", "lattice"))]
    counted = planned(tmp_path, "lattice: {}\nsystems: {one: {}}")
    assert set(counted) - set(plain) == {"align:raw", "lattice:raw"}
    assert counted["train:one"] == plain["train:one"]
