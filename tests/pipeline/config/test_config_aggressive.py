"""Drafters and their verifiers in a config and in the plan."""

import json
from pathlib import Path

import pytest

from fewstep.families.aggressive.config import AggressiveSearch
from models.aggressive.system import AggressiveSystem
from pipeline.config.load import load_config, parse_search, resolved
from pipeline.config.schema import network_of
from pipeline.errors import ConfigError
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from tests.pipeline.config.config_text import ROOT, cases, load, wrong

DRAFTER = "teacher: {}\nsystems: {plain: {}, reversed: {order: right-to-left}, graph: {family: dag}, drafts: {family: aggressive"


def test_the_resolved_config_loads_back(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f"{DRAFTER}, verifier: plain, draft_width_range: [3, 9], search: [gad, {{gad++: {{top_k: 5, max_logprob_gap: 3}}}}]}}}}",
    )
    system = config.systems["drafts"]
    assert isinstance(system, AggressiveSystem)
    assert list(system.search.values()) == [AggressiveSearch(), AggressiveSearch(strategy="gad++", top_k=5, max_logprob_gap=3.0)]
    (tmp_path / "again.json").write_text(json.dumps(resolved(config)), encoding="utf-8")
    assert load_config(tmp_path / "again.json") == config


MISFITS = r"""
}} => systems.drafts.verifier
, verifier: other}} => systems.drafts.verifier: expected one of plain, reversed, graph, got 'other'
, verifier: drafts}} => systems.drafts.verifier: expected one of plain, reversed, graph, got 'drafts'
, verifier: graph}} => systems.drafts.verifier: expected a system of family stepwise, got 'graph' of family dag
, verifier: reversed}} => expected a system that writes one token a step from left to right, got 'reversed'
, verifier: all}, all: {use: ensemble}} => systems.drafts.verifier: expected a system of one network, got 'all', an ensemble
, verifier: plain, drafter_system: none}} => systems.drafts.drafter_system: expected one of plain
, verifier: plain, search: {gad: {drafter: system}}}}
    => drafter: expected network, lookup or jacobi for a system without a `drafter_system`, got system
, verifier: plain, drafter_system: graph, search: {gad: {drafter: draft_model}}}}
    => systems.drafts.search.gad.drafter: expected system, as 'graph' is not one network that native code decodes
, verifier: plain, drafter_system: reversed, search: {gad: {drafter: draft_model}}}}
    => systems.drafts.search.gad.drafter: expected system, as 'reversed' is not one network
, verifier: plain, search: {sample: {drafter: jacobi}}}}
    => systems.drafts.search.sample.drafter: expected another than jacobi for sampling
, verifier: plain, drafting: autoregressive, encoder: shared, search: {gad: {tree_nodes: 9, tree_branches: 512}}}}
    => systems.drafts.search.gad.tree_branches: expected at most 256 with draft_width 8
, verifier: plain, draft_width_range: [5, 2]}} => systems.drafts.draft_width_range: expected two widths
, verifier: plain, draft_width_range: [2, 2000]}} => systems.drafts.draft_width_range: expected two
, verifier: plain, initial_weights: random, max_positions: 64}}
    => systems.drafts.max_positions: expected 1024 as 'plain' has, to end where its greedy outputs end, got 64
, verifier: plain, norm: post}} => systems.drafts.norm: expected pre as 'plain' has, to start from its weights, got post
, verifier: plain, encoder: shared, width: 64}} => systems.drafts.width: expected 128 as 'plain' has, to share its encoder
, verifier: plain, encoder: shared, initial_weights: random}}
    => systems.drafts.initial_weights: expected verifier with encoder: shared
, verifier: plain, drafting: autoregressive}} => systems.drafts.encoder: expected shared with drafting: autoregressive, got separate
, verifier: plain, drafting: medusa}} => systems.drafts.encoder: expected shared with drafting: medusa, got separate
, verifier: plain, train_verifier: true}}
    => systems.drafts.train_verifier: expected False (it does not apply to drafting: parallel), got true
, verifier: plain, drafting: medusa, encoder: shared, draft_width: 3, search: {gad: {draft_width: 4}}}}
    => systems.drafts.search.gad.draft_width: expected at most the drafter's 3 heads, got 4
, verifier: plain, search: {gad++: {tree_nodes: 4}}}} => systems.drafts.search.gad++.tree_nodes: expected 0 with the strategy gad++
, verifier: plain, training: {validation_metric: bleu}}}
    => systems.drafts.training.validation_metric: expected loss or tokens_per_pass for a drafter, got 'bleu'
, verifier: plain, monolingual: more.en}} => systems.drafts.monolingual: expected no file with data: distilled, got more.en
, verifier: plain, search: {gad: {draft_shortlist: {links: 4}}}}}
    => systems.drafts.search.gad.draft_shortlist.tokens: expected a number
, verifier: plain, drafting: autoregressive, encoder: shared, decoder_layers: 1}}
    => systems.drafts.decoder_layers: expected 4 as 'plain' has, to be a layer on top of it, got 1
, verifier: plain, drafting: autoregressive, encoder: shared, glancing_ratio: 0}}
    => systems.drafts.glancing_ratio: expected 0.5 (it does not apply to drafting: autoregressive), got 0
, verifier: begun, drafting: autoregressive, encoder: shared}, begun: {data: raw, start: shared}}
    => systems.drafts.verifier: expected a system whose slots have position codes alone, for drafting: autoregressive
, verifier: plain, search: {gad: {confidence: 0.5}}}}
    => systems.drafts.search.gad.confidence: expected 0 for a drafter that fills blocks at once, got 0.5
, verifier: plain, search: {gad: {drafter: lookup, draft_precision: int8}}}}
    => systems.drafts.search.gad.draft_precision: expected float32 for sampling, and where no network drafts, got int8
, verifier: plain, search: {sample: {verifier_precision: int8}}}}
    => systems.drafts.search.sample.verifier_precision: expected float32 for sampling, got int8
, verifier: plain, search: {draft: {verifier_precision: int8}}}}
    => systems.drafts.search.draft.verifier_precision: expected float32 where nothing is verified, got int8
, verifier: plain, search: {sample: {draft_precision: int8}}}}
    => systems.drafts.search.sample.draft_precision: expected float32 for sampling, and where no network drafts, got int8
, verifier: plain, search: {gad: {verifier_precision: float16}}}}
    => systems.drafts.search.gad.verifier_precision: expected float32, bfloat16 or int8 unless engine is torch, got float16
, verifier: plain, search: {gad: {draft_precision: float16}}}}
    => systems.drafts.search.gad.draft_precision: expected float32 or int8 with engine auto, got float16
, verifier: plain, search: {gad: {engine: torch, draft_precision: bfloat16}}}}
    => systems.drafts.search.gad.draft_precision: expected float32 with engine torch and no GPU for decode, got bfloat16
"""


@pytest.mark.parametrize(("text", "problem"), cases(MISFITS))
def test_pairs_that_do_not_go_together_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, DRAFTER + text)
    assert any(problem in found for found in caught.value.problems)


def test_a_layer_on_top_of_its_verifier(tmp_path: Path) -> None:
    text = f"{DRAFTER}, verifier: plain, drafting: autoregressive, encoder: shared, search: {{gad: {{confidence: 0.3}}}}}}}}"
    assert list(load(tmp_path, text).systems["drafts"].search) == ["gad-confidence0.3"]


def test_of_another_size_it_starts_from_chance(tmp_path: Path) -> None:
    load(tmp_path, f"{DRAFTER}, verifier: plain, initial_weights: random, norm: post, width: 64, data: raw}}}}")


def test_a_search_on_the_command_line() -> None:
    assert parse_search("{gad++: {max_logprob_gap: 2}}", "--search", "aggressive") == AggressiveSearch(
        strategy="gad++", max_logprob_gap=2.0
    )
    assert parse_search("{gad: {drafter: system}}", "--search", "aggressive").drafter == "system"
    with pytest.raises(ConfigError, match="gad"):
        parse_search("beam", "--search", "aggressive")


def test_a_drafter_is_planned_behind_its_verifier_wherever_it_stands(tmp_path: Path) -> None:
    text = (
        f"store: {{path: {tmp_path}/store}}\nteacher: {{}}\nsystems: {{drafts: {{family: aggressive, verifier: plain, "
        "drafter_system: graph, search: [gad, {gad: {drafter: system}}]}, plain: {data: distilled}, graph: {family: dag}, "
        "chance: {family: aggressive, verifier: auto, initial_weights: random}, auto: {use: teacher}}\n"
        "evaluation: {baseline: plain}"
    )
    steps = {step.name: step for step in build_plan(load(tmp_path, text), Store(tmp_path / "store")).steps}
    assert {"system:plain/default", "encode:distilled"} <= set(steps["train:drafts"].needs)
    assert {"system:plain/default", "system:graph", "train:drafts"} <= set(steps["system:drafts"].needs)
    verifying = [need for need in steps["train:chance"].needs if need.startswith("system:")]
    assert verifying == ["system:auto/default"], "its validation counts tokens a pass of this verifier"
    assert "system:auto/default" in steps["system:chance"].needs
    assert {"decode:drafts/gad:test", "decode:drafts/gad-system:test"} <= set(steps)
    assert next(name for name in steps if name.startswith("decode:")).startswith("decode:drafts/")


def test_drafters_may_learn_from_what_their_verifier_writes_without_a_teacher(tmp_path: Path) -> None:
    text = (
        f"store: {{path: {tmp_path}/store}}\nsystems: {{plain: {{}}, one: {{family: aggressive, verifier: plain, data: verifier}}, "
        "two: {family: aggressive, verifier: plain, data: verifier, decoder_layers: 2}}"
    )
    steps = {step.name: step for step in build_plan(load(tmp_path, text), Store(tmp_path / "store")).steps}
    assert [name for name in steps if name.startswith("distill:")] == ["distill:plain/greedy"]
    assert {"system:plain/default", "corpus:train"} <= set(steps["distill:plain/greedy"].needs)
    for name in ("one", "two"):
        assert "encode:plain/greedy" in steps[f"train:{name}"].needs
        assert "encode:raw" not in steps[f"train:{name}"].needs


def test_a_drafter_may_learn_from_more_text_than_its_verifier_has_seen(tmp_path: Path) -> None:
    (tmp_path / "more.en").write_text("A man reads.\n")
    text = (
        f"store: {{path: {tmp_path}/store}}\nsystems: {{plain: {{}}, one: {{family: aggressive, verifier: plain, data: verifier, "
        f"monolingual: {tmp_path}/more.en}}, two: {{family: aggressive, verifier: plain, data: verifier}}}}"
    )
    steps = {step.name: step for step in build_plan(load(tmp_path, text), Store(tmp_path / "store")).steps}
    assert {"corpus:validation", "corpus:test"} <= set(steps["corpus:train/monolingual:one"].needs)
    assert {"system:plain/default", "corpus:train/monolingual:one"} <= set(steps["distill:plain/greedy:one"].needs)
    own, shared = "encode:plain/greedy:one", "encode:plain/greedy"
    assert [part.fingerprint for part in steps["train:one"].inputs.tokens] == [steps[shared].fingerprint, steps[own].fingerprint]
    assert shared in steps["train:two"].needs
    assert own not in steps["train:two"].needs
    assert not {own, "corpus:train/monolingual:one"} & set(steps["train:plain"].needs)


def test_drafters_with_links_have_tables_of_what_they_learn_from(tmp_path: Path) -> None:
    (tmp_path / "more.en").write_text("A man reads.\n")
    search = "search: {gad: {draft_shortlist: {tokens: 8, links: 4}}}"
    text = (
        f"store: {{path: {tmp_path}/store}}\nalignment: {{unit: words}}\nsystems: {{plain: {{}}, "
        f"one: {{family: aggressive, verifier: plain, data: verifier, monolingual: {tmp_path}/more.en, {search}}}, "
        f"two: {{family: aggressive, verifier: plain, data: verifier, {search}}}, "
        "three: {family: aggressive, verifier: plain, data: verifier}}"
    )
    steps = {step.name: step for step in build_plan(load(tmp_path, text), Store(tmp_path / "store")).steps}
    for name, learnt in (("one", "encode:plain/greedy:one"), ("two", "encode:plain/greedy")):
        assert learnt in steps[f"align:{name}/shortlist"].needs
        assert {learnt, f"align:{name}/shortlist"} <= set(steps[f"lattice:{name}/shortlist"].needs)
        assert f"lattice:{name}/shortlist" in steps[f"system:{name}"].needs
        assert f"lattice:{name}/shortlist" not in steps[f"train:{name}"].needs
    assert not [name for name in steps if "three/shortlist" in name]


def test_drafters_are_compared_by_tokens_a_pass_whatever_the_other_systems_are_compared_by(tmp_path: Path) -> None:
    for metric, expected in (("bleu", "tokens_per_pass"), ("loss", "loss")):
        text = f"defaults: {{training: {{validation_metric: {metric}}}}}\n{DRAFTER}, verifier: plain}}}}"
        systems = load(tmp_path, text).systems
        found = {name: systems[name].training.validation_metric for name in ("plain", "drafts")}
        assert found == {"plain": metric, "drafts": expected}


BART = {
    "model_type": "bart",
    "d_model": 768,
    "max_position_embeddings": 1024,
    **{
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", 6), ("ffn_dim", 48), ("attention_heads", 12))
    },
}
"""The `config.json` of a BART."""
VERIFIED_BY_BART = (
    "vocabulary: {{use: teacher}}\nteacher: {{bart: {folder}}}\ndefaults: {{max_positions: 1023}}\n"
    "systems: {{bart: {{use: teacher}}, drafts: {{family: aggressive, verifier: bart, initial_weights: random{keys}}}}}"
)


@pytest.fixture
def bart(tmp_path: Path) -> Path:
    (tmp_path / "bart").mkdir()
    (tmp_path / "bart/config.json").write_text(json.dumps(BART))
    return tmp_path / "bart"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            ", max_positions: 1024",
            "systems.drafts.max_positions: expected 1023 as 'bart' has, to end where its greedy outputs end, got 1024",
        ),
        (
            ", encoder: shared, initial_weights: verifier",
            "systems.drafts.encoder: expected separate with the verifier 'bart', which has embedding_norm or",
        ),
        (
            ", drafting: medusa, encoder: shared, initial_weights: verifier",
            "systems.drafts.drafting: expected parallel with the verifier 'bart', which has embedding_norm or",
        ),
        (
            ", initial_weights: verifier",
            "systems.drafts.norm: expected post as 'bart' has, to start from its weights, got pre",
        ),
        (
            ", search: {gad: {verifier_precision: int8}}",
            "systems.drafts.search.gad.verifier_precision: expected float32 with the verifier 'bart'",
        ),
    ],
)
def test_drafters_that_do_not_fit_a_bart_are_refused_before_anything_runs(
    tmp_path: Path, bart: Path, keys: str, problem: str
) -> None:
    load(tmp_path, VERIFIED_BY_BART.format(folder=bart, keys=""))
    text = VERIFIED_BY_BART.format(folder=bart, keys=keys).replace(
        "initial_weights: random, ", "" if "initial_weights: verifier" in keys else "initial_weights: random, "
    )
    assert any(problem in found for found in wrong(tmp_path, text))


def test_searches_of_a_bart_and_its_vocabulary_are_checked_before_anything_runs(tmp_path: Path, bart: Path) -> None:
    text = VERIFIED_BY_BART.format(folder=bart, keys="")
    (found,) = wrong(
        tmp_path, text.replace("{use: teacher}, drafts", "{use: teacher, search: {beam: {engine: ctranslate2}}}, drafts")
    )
    assert "engine: expected auto or torch for a network with embedding_norm or begin_vectors" in found
    (found,) = wrong(tmp_path, text.replace("vocabulary: {use: teacher}\n", ""))
    assert "vocabulary.use: expected teacher, for a system that works with 'bart', an imported network, got none" in found


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({**BART, "model_type": "mbart"}), json.dumps({**BART, "d_model": "x"})])
def test_a_directory_that_describes_no_bart_is_left_to_its_import(tmp_path: Path, bart: Path, content: str) -> None:
    (bart / "config.json").write_text(content)
    load(tmp_path, VERIFIED_BY_BART.format(folder=bart, keys=", max_positions: 77"))


@pytest.mark.parametrize("name", ["cnndm", "xsum"])
def test_the_recipes_of_summarization_have_a_variant_with_a_bart(name: str) -> None:
    papers = ROOT / "configs/papers"
    variant, paper = load_config(papers / f"verifiers/{name}-bart.yaml"), load_config(papers / f"{name}-aggressive.yaml")
    assert (variant.corpus, variant.cluster, variant.task) == (paper.corpus, paper.cluster, paper.task)
    own, other = variant.systems["aggressive"], paper.systems["aggressive"]
    assert isinstance(own, AggressiveSystem)
    assert isinstance(other, AggressiveSystem)
    assert (own.search, own.training, own.data, own.draft_width) == (other.search, other.training, other.data, other.draft_width)
    assert (own.verifier, own.encoder, own.max_positions) == ("verifier", "separate", 1023)
    assert list(variant.systems) == ["autoregressive", "verifier", "aggressive", "aggressive-teacher"]


def test_the_drafter_of_the_paper_among_others_on_multi30k_is_trained_as_the_papers() -> None:
    """Xia et al. (2022), section 3: it learns from the teacher's translations, has the sizes of its verifier and is glanced at."""
    config = load_config(ROOT / "configs/multi30k/drafters.yaml")
    drafter, verifier = config.systems["paper"], network_of(config, "distilled")
    assert isinstance(drafter, AggressiveSystem)
    assert (drafter.drafting, drafter.encoder, drafter.prefix_attention, drafter.data) == (
        "parallel", "separate", "all", "distilled",
    )  # fmt: skip
    assert (drafter.soft_copy, drafter.layer_positions, drafter.prefixes) == (True, True, 1)
    assert (drafter.initial_weights, drafter.copied_weights) == ("verifier", "encoder")
    assert (drafter.glancing_ratio, drafter.glancing_ratio_end) == (0.5, 0.3)
    assert drafter.glancing_updates == drafter.training.updates
    assert verifier is not None
    for key in ("encoder_layers", "decoder_layers", "width", "feed_forward", "heads"):
        assert getattr(drafter, key) == getattr(verifier, key)
    assert config.systems["distilled"].data == "distilled"
