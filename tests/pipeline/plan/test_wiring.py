"""From configs to plans: names, needs and pinned artifacts."""

import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.load import load_config
from pipeline.plan.wiring import build_plan
from pipeline.store.artifacts import Store
from stages import external, import_network
from stages.errors import DataError
from stages.report import SystemPair
from stages.table import STAGES
from tests.pipeline.plan.toy_plans import CONFIG, fingerprint, needs, planned

WITHOUT_STUDENTS = {"autoregressive": {"use": "teacher"}, "graph": {"family": "dag"}}


def test_step_names_are_unique_and_steps_follow_their_inputs(tmp_path: Path) -> None:
    systems = {**CONFIG["systems"], "lattice": {"family": "lattice"}, "slots": {"family": "parallel"}}
    asked = {"lattice_analysis": 2, "parallel_analysis": True}
    plan = planned(tmp_path, systems=systems, evaluation={**CONFIG["evaluation"], **asked})
    names = [step.name for step in plan.steps]
    assert len(set(names)) == len(names)
    for index, step in enumerate(plan.steps):
        assert set(step.needs) <= set(names[:index])
    assert {step.stage for step in plan.steps} == set(STAGES) - {external.STAGE, import_network.STAGE}


def test_links_tables_and_language_models_use_the_configured_text(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert needs(plan, "align:raw") == {"encode:raw"}
    assert needs(plan, "lattice:raw") == {"encode:raw", "align:raw", "encode:validation", "vocabulary:joint"}
    assert needs(plan, "ngram:target") == {"encode:raw", "encode:validation", "vocabulary:joint"}
    assert needs(plan, "report:run") >= {"align:raw", "lattice:raw", "ngram:target"}
    plan = planned(tmp_path, lattice={"data": "distilled"}, systems=WITHOUT_STUDENTS, ngram=None)
    assert needs(plan, "align:distilled") == {"encode:distilled"}
    plan = planned(tmp_path, lattice=None, alignment={"unit": "words"}, ngram={"unit": "words", "side": "source"})
    assert needs(plan, "align:raw") == {"corpus:train"}
    assert needs(plan, "ngram:source") == {"corpus:train", "corpus:validation"}


def test_systems_with_shortlists_have_tables_of_their_training_data(tmp_path: Path) -> None:
    listing = [{"greedy": {"shortlist": {"tokens": 50}}}]
    systems = {
        "autoregressive": {"use": "teacher", "search": listing},
        "student": {"data": "distilled", "search": ["greedy", *listing]},
        "graph": {"family": "dag", "data": "distilled", "search": {"lookahead": {"shortlist": {"tokens": 50}}}},
        "plain": {"data": "distilled"},
    }
    plan = planned(tmp_path, systems=systems, lattice=None)
    for name, learnt, trained in (("autoregressive", "raw", "teacher"), ("graph", "distilled", "graph")):
        assert needs(plan, f"align:{name}/shortlist") == {f"encode:{learnt}"}
        assert {f"encode:{learnt}", f"align:{name}/shortlist"} <= needs(plan, f"lattice:{name}/shortlist")
        assert f"lattice:{name}/shortlist" in needs(plan, f"system:{name}")
        assert f"lattice:{name}/shortlist" not in needs(plan, f"train:{trained}")
    assert "lattice:graph/shortlist" in needs(plan, "system:student")  # the same tokens are counted once
    assert "lattice:graph/shortlist" not in needs(plan, "system:plain")


def test_sizes_of_shortlists_follow_from_the_validation_text(tmp_path: Path) -> None:
    measured = {"greedy": {"shortlist": {"recall": 0.9}}}
    label = "greedy-shortlist_recall0.9x16"
    systems = {"autoregressive": {"use": "teacher", "search": [measured, "greedy"]}, "graph": {"family": "dag"}}
    plan = planned(tmp_path, systems=systems, lattice=None)
    assert needs(plan, f"tune:autoregressive/{label}") == {"system:autoregressive/default", "corpus:validation"}
    assert f"tune:autoregressive/{label}" in needs(plan, f"decode:autoregressive/{label}:toy")
    assert f"tune:autoregressive/{label}" in needs(plan, "system:autoregressive")
    assert f"tune:autoregressive/{label}" in needs(plan, next(step.name for step in plan.steps if step.stage.name == "benchmark"))
    assert not any(need.startswith("tune:") for need in needs(plan, "decode:autoregressive/greedy:toy"))


def test_students_are_trained_on_the_teachers_translations(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert needs(plan, "corpus:train") == {"corpus:validation", "corpus:toy"}
    assert needs(plan, "distill:train") == {"corpus:train", "system:teacher"}
    assert "encode:distilled" in needs(plan, "train:student")
    assert "encode:raw" not in needs(plan, "train:student")
    assert {"encode:raw", "encode:distilled"} <= needs(plan, "train:both")
    assert needs(plan, "system:autoregressive/default") == {"train:teacher", "vocabulary:joint"}
    assert needs(plan, "system:autoregressive") == {
        "system:autoregressive/default", "train:teacher", "tune:autoregressive/beam", "vocabulary:joint",
    }  # fmt: skip


def test_analyses_use_systems_and_are_inputs_of_the_report(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert needs(plan, "likelihood:student:toy") == {"system:student/default", "corpus:toy"}
    assert needs(plan, "contrastive:both") == {"system:both/default"}
    wanted = {
        f"{stage}:{system}{test}" for stage, test in (("likelihood", ":toy"), ("contrastive", "")) for system in CONFIG["systems"]
    }  # type: ignore[attr-defined]
    assert wanted <= needs(plan, "report:run")


def test_only_dag_systems_have_a_dag_analysis(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    names = [step.name for step in plan.steps if step.stage.name == "dag_analysis"]
    assert names == ["dag_analysis:graph:train", "dag_analysis:graph:toy"]
    assert needs(plan, "dag_analysis:graph:train") == {"system:graph", "corpus:train"}
    assert set(names) <= needs(plan, "report:run")
    drawn = {step.name: step.config.sentences for step in plan.steps if step.stage.name == "dag_analysis"}
    assert drawn == {"dag_analysis:graph:train": 0, "dag_analysis:graph:toy": 2}
    plan = planned(tmp_path, systems={"graph": {"family": "dag", "training": {"keep_first": True}}})
    assert needs(plan, "dag_analysis:graph:toy") == {"system:graph", "corpus:toy", "train:graph"}


def test_diversity_is_scored_for_searches_with_several_hypotheses(tmp_path: Path) -> None:
    searches = ["greedy", {"sample": {}}, {"sample": {"n_best": 3, "sampling": {"temperature": 0.5}}}, {"beam": {"n_best": 2}}]
    plan = planned(tmp_path, systems={"one": {"search": searches}, "graph": {"family": "dag", "search": searches[1:]}})
    found = {step.name for step in plan.steps if step.stage.name == "score" and step.config.diversity}
    several = ("sample-n_best3-temperature0.5", "beam-n_best2")
    assert found == {f"score:{system}/{label}:toy" for system in ("one", "graph") for label in several}


def test_optional_steps_do_not_change_other_steps(tmp_path: Path) -> None:
    asked = {step.name: step.fingerprint for step in planned(tmp_path).steps}
    plain = {step.name: step.fingerprint for step in planned(tmp_path, evaluation={}).steps}
    assert set(asked) - set(plain) == {
        name for name in asked if name.startswith(("likelihood:", "contrastive:", "dag_analysis:", "tune:"))
    }
    products = {f"system:{name}" for name in ("autoregressive", "student", "both")}
    scored = {name for name in plain if name.startswith("score:")}
    tuned = {name for name in plain if name.startswith("decode:") and "/beam:" in name}
    assert {name for name in plain if plain[name] != asked[name]} == {"report:run", *tuned, *scored, *products}


def test_another_search_or_label_leaves_the_other_steps_as_they_were(tmp_path: Path) -> None:
    """The training of a drafter stays the same if its verifier gets further searches."""
    drafts = {"family": "aggressive", "verifier": "one", "data": "verifier"}
    tuned = {"length_penalties": [0.6, 1.0]}
    few, more, named = (
        {step.name: step.fingerprint for step in planned(tmp_path, evaluation=tuned, systems={"one": one, "drafts": drafts}).steps}
        for one in ({"search": "greedy"}, {"search": ["greedy", "beam"]}, {"search": {"quick": "greedy"}})
    )
    assert few["system:one"] == more["system:one/default"] == named["system:one/default"]
    changed = {"system:one", "report:run", "benchmark:all:toy"}
    assert {name for name in few if few[name] != more[name]} == changed
    assert set(more) - set(few) == {"system:one/default", "decode:one/beam:toy", "score:one/beam:toy", "tune:one/beam"}
    assert few["decode:one/greedy:toy"] == named["decode:one/quick:toy"]


def test_length_penalties_are_tuned_for_searches_with_one(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    tuned = [step.name for step in plan.steps if step.stage.name == "tune"]
    assert set(tuned) == {f"tune:{system}/beam" for system in ("autoregressive", "student", "both")}
    assert needs(plan, "tune:both/beam") == {"system:both/default", "corpus:validation"}
    assert needs(plan, "decode:both/beam:toy") == {"system:both/default", "corpus:toy", "tune:both/beam"}
    assert needs(plan, "decode:both/greedy:toy") == {"system:both/default", "corpus:toy"}
    assert "tune:both/beam" in needs(plan, "report:run")


def test_searches_are_bundled_with_the_penalties_that_were_chosen(tmp_path: Path) -> None:
    graph = {"family": "dag", "search": [{"viterbi": {}}, {"beam": {"beam_size": 9}}]}
    plan = planned(tmp_path, systems={"graph": graph})
    for search in ("viterbi", "beam-beam_size9"):
        assert needs(plan, f"tune:graph/{search}") == {"system:graph/default", "corpus:validation"}
        assert needs(plan, f"decode:graph/{search}:toy") == {"system:graph/default", "corpus:toy", f"tune:graph/{search}"}
    tuned = {"tune:graph/viterbi", "tune:graph/beam-beam_size9"}
    assert needs(plan, "system:graph") == {"system:graph/default", "train:graph", "vocabulary:joint", *tuned}
    tried = {step.name: step.config.length_penalties for step in plan.steps if step.stage.name == "tune"}
    assert set(tried.values()) == {(0.6, 1.0)}


def test_pairs_of_systems_in_the_report_have_a_step_size(tmp_path: Path) -> None:
    evaluation = {"likelihood": True, "mutual_information": {"fold": {"parallel": "four", "sequential": "one"}}}
    systems = {"one": {"order": "bidirectional-autoregressive"}, "four": {"order": "interleaved-sa"}}
    plan = planned(tmp_path, systems=systems, evaluation=evaluation)
    (step,) = [step for step in plan.steps if step.name == "report:run"]
    assert step.config.system_pairs == {"fold": SystemPair(parallel="four", sequential="one", step_size=4)}


def test_text_is_distilled_only_if_a_system_uses_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, systems=WITHOUT_STUDENTS)
    assert not [step.name for step in plan.steps if step.stage.name == "distill" or step.name == "encode:distilled"]


def test_the_task_changes_all_steps_that_depend_on_it(tmp_path: Path) -> None:
    for name in ("train", "validation", "toy"):
        (tmp_path / f"{name}.tsv").write_text(f"a document of some words for {name}\ta summary\n")
    train, validation, toy = ({"tsv": str(tmp_path / f"{name}.tsv")} for name in ("train", "validation", "toy"))
    corpus = {"train": train, "validation": validation, "test": {"toy": toy}}
    settings: dict[str, object] = {"evaluation": {"likelihood": True}}
    translation = planned(tmp_path, corpus=corpus, languages={"source": "en", "target": "en"}, **settings)
    plan = planned(tmp_path, corpus=corpus, task="summarization", **settings)
    same = {step.name for step in plan.steps if step.fingerprint == fingerprint(translation, step.name)}
    assert same == {"corpus:validation", "corpus:toy"}, "texts that are not filtered"
    cut = planned(tmp_path, corpus={**corpus, "max_source_tokens": 100}, task="summarization", **settings)
    counted = {"encode:raw", "encode:raw:toy"}
    assert counted <= needs(cut, "report:run")
    same = {step.name for step in plan.steps if step.fingerprint == fingerprint(cut, step.name)}
    assert same == {"corpus:validation", "corpus:toy", "corpus:train", "vocabulary:joint"}
    assert {step.name for step in cut.steps} - {step.name for step in plan.steps} == {"encode:raw:toy"}


def test_networks_of_an_ensemble_differ_in_their_seeds(tmp_path: Path) -> None:
    """Each equals the training of a system with the teacher's settings and that seed, for any number of networks."""
    teacher = {"width": 32, "heads": 2, "training": {"updates": 7, "seed": 5}}
    alone = planned(tmp_path, teacher=teacher)
    other = {**teacher, "training": {"updates": 7, "seed": 6}}
    ensemble = planned(tmp_path, teacher={**teacher, "ensemble": 3}, systems={**CONFIG["systems"], "other": other})
    assert fingerprint(ensemble, "train:teacher") == fingerprint(alone, "train:teacher")
    steps = {step.name: step for step in ensemble.steps}
    assert [steps[name].config.training.seed for name in ("train:teacher", "train:teacher/2", "train:teacher/3")] == [5, 6, 7]
    assert "train:other" not in steps, "it is the second network"
    assert needs(ensemble, "system:other/default") == {"train:teacher/2", "vocabulary:joint"}
    fewer = planned(tmp_path, teacher={**teacher, "ensemble": 2})
    assert fingerprint(fewer, "train:teacher/2") == fingerprint(ensemble, "train:teacher/2")
    assert not set(needs(ensemble, "train:teacher/2")) & {"train:teacher", "train:teacher/3"}, "they train side by side"


def test_an_ensemble_distils_and_can_be_a_system_beside_its_first_network(tmp_path: Path) -> None:
    all_three = {"train:teacher", "train:teacher/2", "train:teacher/3"}
    systems = {**CONFIG["systems"], "ensemble": {"use": "ensemble"}, "graph": {"family": "dag", "initial_weights": "teacher"}}
    plan, alone = planned(tmp_path, teacher={"ensemble": 3}, systems=systems), planned(tmp_path)
    assert all_three <= needs(plan, "system:teacher")
    assert needs(plan, "distill:train") == {"corpus:train", "system:teacher"}
    assert all_three <= needs(plan, "system:ensemble")
    assert needs(plan, "system:autoregressive") & all_three == {"train:teacher"}
    assert needs(plan, "train:graph") & all_three == {"train:teacher"}
    assert fingerprint(plan, "system:autoregressive") == fingerprint(alone, "system:autoregressive")
    assert fingerprint(plan, "distill:train") != fingerprint(alone, "distill:train")


def test_a_training_can_start_from_the_weights_of_an_earlier_system(tmp_path: Path) -> None:
    systems = {
        "first": {"dropout": 0.2},
        "second": {"order": "interleaved", "initial_weights": "first"},
        "third": {"initial_weights": "second"},
    }
    plan = planned(tmp_path, systems=systems, evaluation={})
    assert needs(plan, "train:second") & {"train:first", "train:third"} == {"train:first"}
    assert needs(plan, "train:third") & {"train:first", "train:second"} == {"train:second"}
    steps = {step.name: step for step in plan.steps}
    assert steps["train:second"].inputs.initial.fingerprint == steps["train:first"].fingerprint


def test_pretraining_by_segments_numbers_the_spans_of_its_own_network(tmp_path: Path) -> None:
    systems = {"graph": {"family": "dag", "initial_weights": "pretraining"}}
    plan = planned(tmp_path, systems=systems, evaluation={}, pretraining={"target": "segments"})
    steps = {step.name: step for step in plan.steps}
    assert steps["train:graph/pretraining"].config.network.segments
    assert not steps["train:graph"].config.network.segments


def test_pretraining_comes_before_the_training_of_each_network(tmp_path: Path) -> None:
    text = tmp_path / "documents.txt"
    text.write_text("A man reads.\n")
    systems = {
        "graph": {"family": "dag", "initial_weights": "pretraining", "training": {"updates": 70}},
        "same": {"family": "dag", "initial_weights": "pretraining", "training": {"updates": 90}},
        "plain": {"family": "dag", "training": {"updates": 70}},
        "wide": {"width": 64, "initial_weights": "pretraining"},
    }
    section = {"updates": 30, "learning_rate": 0.1, "masked_share": 0.3}
    plan = planned(tmp_path, systems=systems, evaluation={}, pretraining=section)
    steps = {step.name: step for step in plan.steps}
    assert "train:same/pretraining" not in steps, "equal networks with equal recipes are trained once"
    assert needs(plan, "train:graph/pretraining") == {"encode:raw", "encode:validation", "corpus:validation", "vocabulary:joint"}
    for name in ("graph", "same"):
        assert steps[f"train:{name}"].inputs.initial.fingerprint == steps["train:graph/pretraining"].fingerprint
    assert steps["train:wide"].inputs.initial.fingerprint == steps["train:wide/pretraining"].fingerprint
    assert "train:graph/pretraining" in needs(plan, "report:run")
    first, then = steps["train:graph/pretraining"].config, steps["train:graph"].config
    assert (first.training.updates, first.training.learning_rate, first.infilling.masked_share) == (30, 0.1, 0.3)
    assert (then.training.updates, then.infilling) == (70, None)
    assert (first.network, first.training.validation_metric) == (then.network, "loss")
    assert fingerprint(plan, "train:plain") == fingerprint(planned(tmp_path, systems=systems, pretraining={}), "train:plain")

    plan = planned(tmp_path, systems=systems, pretraining={"monolingual": str(text), "target_monolingual": [str(text)]})
    texts = {"encode:pretraining", "encode:pretraining/target"}
    assert needs(plan, "train:graph/pretraining") == texts | {"encode:validation", "corpus:validation", "vocabulary:joint"}
    assert needs(plan, "encode:pretraining/target") == {"corpus:train/pretraining/target", "vocabulary:joint"}
    steps = {step.name: step for step in plan.steps}
    languages = [steps[f"corpus:train/pretraining{side}"].config.target_language for side in ("", "/target")]
    assert languages == ["en", "de"]
    assert {"corpus:validation", "corpus:toy"} <= needs(plan, "corpus:train/pretraining"), "held-out sentences are dropped"


def test_averaging_fewer_candidates_does_not_change_the_training(tmp_path: Path) -> None:
    first, second = (
        planned(tmp_path, systems={"one": one}, evaluation={}) for one in ({"dropout": 0.2}, {"dropout": 0.2, "num_averaged": 2})
    )
    assert fingerprint(first, "train:one") == fingerprint(second, "train:one")
    assert fingerprint(first, "system:one") != fingerprint(second, "system:one")
    config = next(step.config for step in second.steps if step.name == "system:one")
    assert config.averaging.num_averaged == 2


def test_a_mixture_repeats_each_data_in_an_epoch(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        systems={
            "plain": {"data": "mixed"},
            "more": {"data": "mixed", "mixture": {"distilled": 3}},
            "only": {"data": "mixed", "mixture": {"raw": 0, "distilled": 1}},
            "same": {"data": "distilled"},
        },
        lattice={},
        evaluation={},
    )
    steps = {step.name: step for step in plan.steps}
    raw, distilled = steps["encode:raw"].fingerprint, steps["encode:distilled"].fingerprint
    tokens = {name: [part.fingerprint for part in steps[f"train:{name}"].inputs.tokens] for name in ("plain", "more", "only")}
    assert tokens == {"plain": [raw, distilled], "more": [raw, distilled, distilled, distilled], "only": [distilled]}
    assert "train:same" not in steps, "nothing but distilled text is distilled text"


def test_options_of_distillation_do_not_change_the_teacher(tmp_path: Path) -> None:
    before = planned(tmp_path)
    for changes in ({"choose": "reference", "n_best": 4}, {"max_ratio": 2.0}, {"batch_tokens": None}):
        after = planned(tmp_path, distillation=changes)
        assert fingerprint(after, "distill:train") != fingerprint(before, "distill:train")
        assert fingerprint(after, "train:teacher") == fingerprint(before, "train:teacher")
    config = next(step.config for step in planned(tmp_path, distillation={"max_ratio": 2.0}).steps if step.name == "distill:train")
    assert config.target_language == "", "what only the choice by reference asks for changes nothing else"


def test_the_model_that_chooses_targets_is_an_input_by_its_content(tmp_path: Path) -> None:
    model = tmp_path / "kiwi.ckpt"
    judge = {"n_best": 4, "choose": "quality", "comet": str(model), "comet_program": sys.executable}
    model.write_bytes(b"one")
    first = planned(tmp_path, distillation=judge)
    assert fingerprint(planned(tmp_path, distillation=judge | {"comet_program": "/bin/true"}), "distill:train") == fingerprint(
        first, "distill:train"
    ), "the place of a program is no property of its results"
    model.write_bytes(b"two, another model")
    assert fingerprint(planned(tmp_path, distillation=judge), "distill:train") != fingerprint(first, "distill:train")
    with pytest.raises(DataError, match=r"nowhere\.ckpt"):
        planned(tmp_path, distillation=judge | {"comet": "nowhere.ckpt"})


def test_monolingual_text_is_cleaned_and_distilled_in_steps_of_its_own(tmp_path: Path) -> None:
    """Monolingual text does not change the distilled training text."""
    file = tmp_path / "more.en"
    file.write_text("A man reads.\n")
    before, plan = planned(tmp_path), planned(tmp_path, distillation={"monolingual": str(file), "n_best": 4, "choose": "reference"})
    assert needs(plan, "corpus:train/monolingual") == {"corpus:validation", "corpus:toy"}
    assert needs(plan, "distill:monolingual") == {"corpus:train/monolingual", "system:teacher"}
    assert {"encode:distilled", "encode:distilled:monolingual"} <= needs(plan, "train:student")
    steps = {step.name: step for step in plan.steps}
    assert [part.fingerprint for part in steps["train:both"].inputs.tokens] == [
        steps[name].fingerprint for name in ("encode:raw", "encode:distilled", "encode:distilled:monolingual")
    ]
    assert steps["distill:monolingual"].config.choose == "score", "there is no reference"
    plain = planned(tmp_path, distillation={"monolingual": [str(file)]})
    assert fingerprint(plain, "distill:train") == fingerprint(before, "distill:train")
    with pytest.raises(DataError, match=r"nowhere\.en"):
        planned(tmp_path, distillation={"monolingual": str(tmp_path / "nowhere.en")})


def test_the_distilled_validation_text_is_measured_and_never_learned(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "systems": {
            "lattice": {"family": "lattice", "data": "distilled"},
            "slots": {"family": "parallel", "objective": "nat", "data": "distilled"},
        },
        "evaluation": {"parallel_analysis": True},
    }
    before, plan = planned(tmp_path, **changes), planned(tmp_path, **changes, distillation={"validation": True})
    assert needs(plan, "distill:validation") == {"corpus:validation", "system:teacher"}
    assert "encode:distilled:validation" in needs(plan, "lattice:distilled")
    assert "distill:validation" in needs(plan, "parallel_analysis:slots:validation/distilled")
    for name in ("train:slots", "align:distilled"):
        assert fingerprint(plan, name) == fingerprint(before, name)
    assert "encode:validation" in needs(plan, "train:slots")


def test_alpha_is_chosen_by_the_metric_that_chooses_checkpoints(tmp_path: Path) -> None:
    system: dict[str, Any] = {"family": "dag", "search": ["beam"]}
    for metric in ("bleu", "tokenized_bleu"):
        systems = {"graph": {**system, "training": {"validation_metric": metric}}}
        plan = planned(tmp_path, systems=systems, evaluation={"length_penalties": [1, 1.2]})
        (config,) = (step.config for step in plan.steps if step.stage.name == "tune")
        assert config.tokenized == (metric == "tokenized_bleu")


def test_distillation_is_an_input_of_the_report(tmp_path: Path) -> None:
    assert "distill:train" in needs(planned(tmp_path), "report:run")


@pytest.mark.parametrize(
    ("bench", "recipes", "trained"),
    [
        (
            "benchmarks/demo",
            ["demo"],
            {"teacher", "shallow", "distilled", "interleaved", "interleaved-sa", "dag", "lattice", "aggressive"},
        ),
        (
            "benchmarks/multi30k",
            ["multi30k/captions", "multi30k/dag"],
            {"teacher", "teacher/2", "distilled", "shallow", "interleaved", "interleaved-sa", "lattice", "aggressive"}
            | {f"dag{kind}" for kind in ("", "-whole", "-distilled", "-distilled-longer", "-distilled-longest")},
        ),
    ],
)
def test_benchmark_configs_train_the_systems_of_the_recipes(
    tmp_path: Path, bench: str, recipes: list[str], trained: set[str]
) -> None:
    """`make bench` trains no system that the store has from the recipes."""
    sets = [f"store.path={tmp_path / 'store'}"]
    for part in ("train", "validation", "test.test_2016") if "multi30k" in bench else ():
        for side in ("source", "target"):
            (tmp_path / f"{part}.{side}").write_text(f"{part} {side}\n")
            sets.append(f"corpus.{part}.{side}={tmp_path / f'{part}.{side}'}")
    (tmp_path / "more").write_text("more\n")

    def trainings(name: str) -> dict[str, str]:
        path = Path(__file__).parents[3] / f"configs/{name}.yaml"
        more = [f"distillation.monolingual={tmp_path / 'more'}"] if "multi30k" in name else []
        if "monolingual:" in path.read_text() and "  aggressive:" in path.read_text():
            more.append(f"systems.aggressive.monolingual={tmp_path / 'more'}")
        config = load_config(path, [*sets, *more])
        steps = build_plan(config, Store(config.store.path)).steps
        return {step.name.removeprefix("train:"): step.fingerprint for step in steps if step.stage.name == "train"}

    known = {key: value for name in recipes for key, value in trainings(name).items()}
    mine = trainings(bench)
    assert {name for name, fingerprint in mine.items() if known.get(name) == fingerprint} >= trained
