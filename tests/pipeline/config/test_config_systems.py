"""Systems of several families in one config, and the labels of their searches."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fewstep.config.options import OutputLimits, Shortlist
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.families.stepwise.config import StepwiseSearch
from models.dag.system import DagSystem
from models.lattice.system import LatticeSystem
from models.parallel.system import ParallelSystem
from models.stepwise.system import StepwiseSystem
from models.training.initial import FinishedNetwork
from pipeline.config.load import load_config, parse_search, resolved
from pipeline.config.schema import RunConfig
from pipeline.errors import ConfigError
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from tests.pipeline.config.config_text import ROOT, cases, load, wrong

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


def test_weights_of_a_directory_load_back(tmp_path: Path) -> None:
    config = load(tmp_path, f"vocabulary: {{from: old}}\n{GRAPH}, initial_weights: {{from: old/system}}}}}}")
    assert graph_of(config).initial_weights == FinishedNetwork(path=Path("old/system"))
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


def test_the_resolved_config_loads_back(tmp_path: Path) -> None:
    config = load(tmp_path, f"{GRAPH}, graph_factor_range: [4, 8], search: [lookahead, {{beam: {{candidates: 3}}}}]}}}}")
    assert list(graph_of(config).search.values()) == [DagSearch(), DagSearch(strategy="beam", candidates=3)]
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


MISFITS = r"""
<GRAPH>, ensemble: 2}} => systems.graph.ensemble: expected one of the keys
<GRAPH>, search: outer}} => systems.graph.search: expected 'greedy', 'lookahead'
systems: {graph: {family: gat}} => systems.graph.family: expected one of aggressive, dag, lattice, parallel, stepwise, got 'gat'
<GRAPH>, graph_factor_range: [8, 4]}}
    => systems.graph.graph_factor_range: expected two factors above 0 and of at most 65536, the lower one
<GRAPH>, initial_weights: teacher}} => systems.graph.initial_weights: expected a teacher in the config, got none
<GRAPH>, initial_weights: pretraining}} => systems.graph.initial_weights: expected the section `pretraining` in the config, got none
pretraining: {}\nvocabulary: {joint: false}\n<GRAPH>, initial_weights: pretraining}}
    => vocabulary.joint: expected true with pretraining, whose targets are tokens of sources, got false
pretraining: {updates: 9}\n<GRAPH>, initial_weights: pretraining, training: {schedule: cosine}}}
    => pretraining.warmup_updates: expected less than updates (9) with the cosine schedule, got 1000
pretraining: {target: segments}\nsystems: {words: {initial_weights: pretraining}}
    => pretraining.target: expected spans or text with words, which is of family stepwise and has no graphs, got 'segments'
pretraining: {target: segments}\n<GRAPH>, initial_weights: pretraining, objective: ngram}}
    => systems.graph.objective: expected sum or max with pretraining.target segments, got 'ngram'
<GRAPH>, segments: true}} => systems.graph.segments: expected false, as only pre-training with
systems: {pretraining: {}} => systems.pretraining: expected a name other than 'pretraining'
<GRAPH>, initial_weights: later}, later: {}}
    => systems.graph.initial_weights: expected one of random, teacher, pretraining, one (systems are listed after those that they st
<GRAPH>, initial_weights: {from: old}}} => vocabulary: expected the vocabulary of the network that training starts from
vocabulary: {from: old}\n<GRAPH>, initial_weights: {from: old, form: old}}}
    => systems.graph.initial_weights.form: expected a known key, got 'form'; did you mean 'from'?
corpus: {train: {embedded: 9}, modifiers: {typos: 0.7, upper_case: 0.4}}
    => corpus.modifiers: expected shares whose sum is at most 1, got 1.1
<GRAPH>, initial_weights: 5}} => systems.graph.initial_weights: expected text, got 5
<GRAPH>, num_averaged: 5}} => systems.graph.num_averaged: expected fewer than the 5 candidates that its training keeps, got 5
<GRAPH>, sampled_tokens: 9, training: {label_smoothing: 0.1}}}
    => systems.graph.sampled_tokens: expected none with label smoothing, which is over all tokens, got 9
<GRAPH>, heads: 3}} => systems.graph.heads: expected a divisor of width 128, got 3
<GRAPH>, search: {beam: {ngram_weight: 0.1}}}} => ngram_weight: expected 0 for a system without an n-gram model
ngram: {unit: words}\n<GRAPH>, search: {beam: {ngram_weight: 0.1}}}} => ngram: expected an n-gram model of pieces of the target
ngram: {}\n<GRAPH>, search: {lookahead: {ngram_weight: 0.1}}}} => ngram_weight: expected 0 with lookahead
<GRAPH>, search: {lookahead: {n_best: 2}}}} => n_best: expected 1 with lookahead, got 2
<GRAPH>, search: {greedy: {precision: int8, engine: torch}}}}
    => precision: expected float32, float16 or bfloat16 with engine torch, got int8
<GRAPH>, search: {sample: {precision: bfloat16}}}} => precision: expected float32 for sampling, got bfloat16
systems: {sa: {order: interleaved-sa, search: {greedy: {ngram_weight: 0.5}}}}
    => ngram_weight: expected 0 for a system without an n-gram
ngram: {}\nsystems: {sa: {order: interleaved-sa, search: {sample: {ngram_weight: 0.5}}}}
    => systems.sa.search.sample.ngram_weight: expected 0 with sample, got 0.5
systems: {sa: {order: interleaved-sa, search: {beam: {conventions: authors}}}}
    => systems.sa.search.beam.conventions: expected paper unless a beam has the selection outer, got authors
ngram: {}\nsystems: {sa: {order: interleaved-sa, search: {beam: {ngram_weight: 0.5, selection: outer}}}}
    => systems.sa.search.beam.ngram_weight: expected 0 unless selection is exact and the first EOS ends an output, got 0.5
systems: {a: {search: {beam: {beam_threshold: 3, engine: ctranslate2}}}}
    => systems.a.search.beam.beam_threshold: expected empty with engine ctranslate2, got 3
ngram: {}\nsystems: {two: {order: interleaved, search: {greedy: {ngram_weight: 0.5}}}}
    => systems.two.search.greedy.ngram_weight: expected 0 for an order that writes no two adjacent tokens in a step, got 0.5
systems: {one: {search: {greedy: {end_threshold: 0.5}}}}
    => systems.one.search.greedy.end_threshold: expected 0 for an order that writes one token a step
systems: {odd: {order: interleaved, directions: 3, search: {greedy: {end_threshold: 0.5}}}}
    => systems.odd.order: expected a valid combination of order settings
systems: {two: {order: interleaved, search: {beam: {end_threshold: 0.5}}}}
    => systems.two.search.beam.end_threshold: expected 0 with beam, got 0.5
"""


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


MISFITS_OF_LATTICES = r"""
<SCORER>, segment_length: 3}} => systems.scorer.segment_length: expected 1 or 2 with segment_start token, got 3
<SCORER>, segment_length: 17}} => systems.scorer.segment_length: expected at most 16, got 17
<SCORER>, segment_start: bos}} => expected cascade or lookup for a network with segment_start bos, got viterbi
<SCORER>, search: {viterbi: {normalizer: selfnorm}}}} => expected full, union or local for a network trained without
<SCORER>, search: {viterbi: {candidate_threshold: 4}}}}
    => candidate_threshold: expected none for a network trained without word_dropout, got 4
<SCORER>, search: {lookup: {n_best: 2}}}} => n_best: expected 1 with lookup, got 2
<SCORER>, tables: distilled}} => systems.scorer.tables: expected raw without a teacher
alignment: {unit: words}\n<SCORER>}} => alignment.unit: expected pieces for the lattice, got words
evaluation: {lattice_analysis: 3}\n<GRAPH>}}
    => evaluation.lattice_analysis: expected 0 without a system of the family that is analysed, got 3
"""


@pytest.mark.parametrize(
    ("text", "problem"), [*cases(MISFITS, GRAPH=GRAPH), *cases(MISFITS_OF_LATTICES, SCORER=SCORER, GRAPH=GRAPH)]
)
def test_what_does_not_go_together_is_named(tmp_path: Path, text: str, problem: str) -> None:
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


SYSTEMS = "teacher: {}\nsystems: {plain: {}, short: {max_positions: 64}, graph: {family: dag}, slots: {family: parallel"


def test_the_resolved_config_of_slots_loads_back(tmp_path: Path) -> None:
    search = "[greedy, {prefix-beam: {beam_size: 5, token_bonus: 0.5}}]"
    config = load(tmp_path, f"{SYSTEMS}, objective: ctc, slot_input: gaussian, upsampling: 2.5, search: {search}}}}}")
    system = config.systems["slots"]
    assert isinstance(system, ParallelSystem)
    assert system.network.max_slots == 2560
    assert list(system.search.values()) == [ParallelSearch(), ParallelSearch(strategy="prefix-beam", beam_size=5, token_bonus=0.5)]
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


MISFITS_OF_SLOTS = r"""
, slot_input: uniform}} => systems.slots.slot_input: expected repeat or gaussian with objective ctc-glat, got uniform
, objective: cmlm, slot_input: soft}} => systems.slots.slot_input: expected mask with objective cmlm, got soft
, upsampling: 9}} => systems.slots.upsampling: expected at most 8, got 9
, rescorer: none}} => systems.slots.rescorer: expected one of plain, short, graph, got 'none'
, rescorer: graph}} => systems.slots.rescorer: expected a system of family stepwise, got 'graph' of family dag
, rescorer: short}} => systems.slots.max_positions: expected at most 64, as 'short' has, to score all outputs, got 1024
, search: mask-predict}} => expected a strategy other than mask-predict with objective ctc-glat
, objective: nat, search: {greedy: {rescoring: system, length_candidates: 2}}}}
    => rescoring: expected self for a system without a `rescorer`
, search: {prefix-beam: {ngram_weight: 0.1}}}} => expected 0 for a system without an n-gram model
, search: {greedy: {shortlist: {}}}}} => search.greedy.shortlist: expected tokens or recall, got neither
, search: {greedy: {shortlist: {tokens: 50, recall: 0.9}}}}}
    => search.greedy.shortlist.recall: expected empty where tokens states the size, got 0.9
"""


@pytest.mark.parametrize(("text", "problem"), cases(MISFITS_OF_SLOTS))
def test_what_does_not_go_together_in_slots_is_named(tmp_path: Path, text: str, problem: str) -> None:
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


BEAM = StepwiseSearch(strategy="beam", beam_size=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greedy", {"greedy": StepwiseSearch()}),
        ("beam-beam_size2", {"beam-beam_size2": BEAM}),
        ("[greedy, beam-beam_size2]", {"greedy": StepwiseSearch(), "beam-beam_size2": BEAM}),
        ("{fast: {strategy: beam, beam_size: 2}}", {"fast": BEAM}),
        ("{fast: {beam: {beam_size: 2}}}", {"fast": BEAM}),
        ("{fast: greedy, v1.0: beam-beam_size2}", {"fast": StepwiseSearch(), "v1.0": BEAM}),
        ("{beam: {beam_size: 2}}", {"beam-beam_size2": BEAM}),
        ("{precision: int8}", {"greedy-int8": StepwiseSearch(precision="int8")}),
        (
            "[{greedy: {shortlist: {tokens: 50}, output_limits: {min_tokens: 2}}}]",
            {
                "greedy-min_tokens2-shortlist50x16": StepwiseSearch(
                    shortlist=Shortlist(tokens=50), output_limits=OutputLimits(min_tokens=2)
                )
            },
        ),
    ],
)
def test_searches_have_labels_of_the_users_or_derived_ones(tmp_path: Path, text: str, expected: dict[str, StepwiseSearch]) -> None:
    found = load(tmp_path, f"systems: {{a: {{search: {text}}}}}").systems["a"].search
    assert list(found.items()) == list(expected.items())


WRONG_LABELS = r"""
[beam, {beam: {beam_size: 5}}] => systems.a.search[1]: expected searches that differ, got 'beam' again
{one: beam, two: {beam: {}}} => systems.a.search.two: expected searches that differ, got 'one' again
{greedy: beam} => systems.a.search.greedy: expected a label that does not stand for another search, got 'greedy'
{beam-beam_size9: {beam: {beam_size: 8}}} => expected a label that does not stand for another search
{a/b: greedy} => systems.a.search.a/b: expected a label of letters, digits, _, . and -, which begins with
{fast: greedy, best: {beam_size: 3}} => systems.a.search.best.strategy: expected 'greedy', 'beam' or 'sample', got nothing
{fast: greedy, best: 3} => systems.a.search.best: expected a map of keys, got 3
{beem: {beam_size: 4}} => systems.a.search.beem: expected 'greedy', 'beam' or 'sample', got 'beem'; did you mean 'beam'?
beam-beam_size0 => systems.a.search.beam_size: expected at least 1, got 0
"""


@pytest.mark.parametrize(("text", "problem"), cases(WRONG_LABELS))
def test_wrong_labels_are_named(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = wrong(tmp_path, f"systems: {{a: {{search: {text}}}}}")
    assert problem in found


def test_searches_of_a_system_replace_those_of_the_defaults(tmp_path: Path) -> None:
    text = "defaults: {search: {fast: greedy, best: beam}}\nsystems: {a: {}, b: {search: {own: greedy}}}"
    systems = load(tmp_path, text).systems
    assert [list(systems[name].search) for name in "ab"] == [["fast", "best"], ["own"]]


def test_an_override_changes_the_searches_that_it_names_and_else_replaces_all(tmp_path: Path) -> None:
    text = "systems: {a: {search: {fast: greedy, best: {strategy: beam}}}}"
    changed = load(tmp_path, text, "systems.a.search.best.beam_size=2").systems["a"].search
    assert changed == {"fast": StepwiseSearch(), "best": BEAM}
    assert list(load(tmp_path, text, "systems.a.search={beam: {beam_size: 3}}").systems["a"].search) == ["beam-beam_size3"]


def test_a_label_names_steps_and_the_baseline(tmp_path: Path) -> None:
    text = f"store: {{path: {tmp_path}/store}}\nsystems: {{a: {{}}, b: {{search: {{fast: greedy, best: beam}}}}}}\n"
    config = load(tmp_path, f"{text}evaluation: {{baseline: b/best}}")
    steps = {step.name: step for step in build_plan(config, Store(config.store.path)).steps}
    assert {"decode:b/fast:test", "decode:b/best:test", "score:b/best:test"} <= set(steps)
    assert steps["report:run"].config.baseline == steps["benchmark:all:test"].config.baseline == "b/best"
    assert {"b/fast", "b/best"} <= set(steps["benchmark:all:test"].config.searches)
    assert (steps["system:b"].config.default, set(steps["system:b"].config.searches)) == ("fast", {"fast", "best"})
    plain = load(tmp_path, f"{text}evaluation: {{baseline: b}}")
    assert build_plan(plain, Store(plain.store.path)).steps[-1].config.baseline == "b/fast"
    (problem,) = wrong(tmp_path, f"{text}evaluation: {{baseline: b/bes}}")
    assert problem.endswith("evaluation.baseline: expected one of b/fast, b/best, got 'b/bes'; did you mean 'b/best'?")


def test_a_rule_that_rests_on_a_value_that_is_wrong_by_itself_is_silent(tmp_path: Path) -> None:
    text = "ngram: {order: 0}\nsystems: {a: {order: semi-autoregressive, search: {greedy: {ngram_weight: 0.3}}}}"
    (problem,) = wrong(tmp_path, text)
    assert problem.startswith("c.yaml:1: ngram.order")
