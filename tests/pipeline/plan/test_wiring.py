"""From configs to plans: names, needs and pinned artifacts."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load_config
from pipeline.plan.step import Plan
from pipeline.plan.wiring import STAGES, build_plan
from pipeline.store.artifacts import Manifest, Store
from stages.errors import DataError
from stages.report import Together

CONFIG = {
    "name": "toy",
    "corpus": {"train": {"embedded": 20}, "validation": {"embedded": 5}, "test": {"toy": {"embedded": 5}}},
    "vocabulary": {"size": 100},
    "teacher": {},
    "systems": {
        "autoregressive": {"use": "teacher"},
        "student": {"data": "distilled"},
        "both": {"data": "mixed"},
        "graph": {"family": "dag"},
    },
    "lattice": {},
    "ngram": {"order": 3},
    "evaluation": {"likelihood": True, "contrastive": 7, "dag_analysis": 2, "length_bins": [5], "length_penalties": [0.6, 1.0]},
}

WITHOUT_STUDENTS = {"autoregressive": {"use": "teacher"}, "graph": {"family": "dag"}}


def planned(tmp_path: Path, **changes: object) -> Plan:
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, "store": {"path": str(tmp_path / "store")}, **changes}))
    config = load_config(path, [])
    return build_plan(config, Store(config.store.path))


def needs(plan: Plan, name: str) -> set[str]:
    return set(next(step.needs for step in plan.steps if step.name == name))


def made(tmp_path: Path, stage: str, **inputs: str) -> Path:
    """Create a finished artifact in another store."""
    store = Store(tmp_path / "earlier")
    directory = store.directory(stage, "e" * 32)
    store.partial(directory).mkdir(parents=True)
    facts = {
        "environment": {},
        "code_digest": "",
        "git_revision": "",
        "run_id": "",
        "attempt": "1",
        "seconds": 0.0,
        "finished": 0.0,
    }
    step = {"stage": stage, "version": 1, "step": f"{stage}:x", "fingerprint": "e" * 32, "config": {}}
    store.commit(directory, Manifest(**step, inputs=inputs, **facts))  # type: ignore[arg-type]
    return directory


def fingerprint(plan: Plan, name: str) -> str:
    return next(step.fingerprint for step in plan.steps if step.name == name)


def test_steps_are_named_once_and_stand_after_what_they_need(tmp_path: Path) -> None:
    systems = {**CONFIG["systems"], "lattice": {"family": "lattice"}}  # type: ignore[dict-item]
    plan = planned(tmp_path, systems=systems, evaluation={**CONFIG["evaluation"], "lattice_analysis": 2})  # type: ignore[dict-item]
    names = [step.name for step in plan.steps]
    assert len(set(names)) == len(names)
    for index, step in enumerate(plan.steps):
        assert set(step.needs) <= set(names[:index])
    assert {step.stage for step in plan.steps} == set(STAGES)


def test_counts_rest_on_the_data_that_the_config_names(tmp_path: Path) -> None:
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


def test_systems_whose_searches_list_words_have_tables_of_what_they_learn_from(tmp_path: Path) -> None:
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


def test_a_pinned_language_model_is_not_estimated(tmp_path: Path) -> None:
    plan = planned(tmp_path, ngram={"from": str(made(tmp_path, "ngram"))})
    assert not [step for step in plan.steps if step.stage.name == "ngram"]
    with pytest.raises(DataError, match=r"ngram.from: expected a model over this run's vocabulary .*got one over ffffffff"):
        planned(tmp_path, ngram={"from": str(made(tmp_path / "other", "ngram", vocabulary="f" * 32))})


def test_the_teacher_feeds_the_students_through_its_translations(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert needs(plan, "corpus:train") == {"corpus:validation", "corpus:toy"}
    assert needs(plan, "distill:train") == {"corpus:train", "system:teacher"}
    assert "encode:distilled" in needs(plan, "train:student")
    assert "encode:raw" not in needs(plan, "train:student")
    assert {"encode:raw", "encode:distilled"} <= needs(plan, "train:both")
    assert needs(plan, "system:autoregressive/default") == {"train:teacher", "vocabulary:joint"}
    assert needs(plan, "system:autoregressive") == {"train:teacher", "vocabulary:joint", "tune:autoregressive/beam"}


def test_analyses_take_systems_and_reach_the_report(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert needs(plan, "likelihood:student:toy") == {"system:student/default", "corpus:toy"}
    assert needs(plan, "contrastive:both") == {"system:both/default"}
    wanted = {
        f"{stage}:{system}{test}" for stage, test in (("likelihood", ":toy"), ("contrastive", "")) for system in CONFIG["systems"]
    }  # type: ignore[attr-defined]
    assert wanted <= needs(plan, "report:run")


def test_only_systems_with_graphs_are_looked_into(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    names = [step.name for step in plan.steps if step.stage.name == "dag_analysis"]
    assert names == ["dag_analysis:graph:train", "dag_analysis:graph:toy"]
    assert needs(plan, "dag_analysis:graph:train") == {"system:graph", "corpus:train"}
    assert set(names) <= needs(plan, "report:run")
    drawn = {step.name: step.config.sentences for step in plan.steps if step.stage.name == "dag_analysis"}
    assert drawn == {"dag_analysis:graph:train": 0, "dag_analysis:graph:toy": 2}
    plan = planned(tmp_path, systems={"graph": {"family": "dag", "training": {"keep_first": True}}})
    assert needs(plan, "dag_analysis:graph:toy") == {"system:graph", "corpus:toy", "train:graph"}


def test_samples_are_scored_for_their_diversity_where_there_are_several(tmp_path: Path) -> None:
    searches = ["greedy", {"sample": {}}, {"sample": {"n_best": 3, "sampling": {"temperature": 0.5}}}, {"beam": {"n_best": 2}}]
    plan = planned(tmp_path, systems={"one": {"search": searches}, "graph": {"family": "dag", "search": searches[1:]}})
    found = {step.name for step in plan.steps if step.stage.name == "score" and step.config.diversity}
    assert found == {"score:one/sample-n_best3-temperature0.5:toy", "score:graph/sample-n_best3-temperature0.5:toy"}


def test_what_is_not_asked_for_leaves_every_other_step_as_it_was(tmp_path: Path) -> None:
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
    """Even the training of a drafter whose verifier has more searches than before."""
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


def test_length_penalties_are_tuned_for_searches_that_have_one(tmp_path: Path) -> None:
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
    assert needs(plan, "system:graph") == {"train:graph", "vocabulary:joint", "tune:graph/viterbi", "tune:graph/beam-beam_size9"}
    tried = {step.name: step.config.length_penalties for step in plan.steps if step.stage.name == "tune"}
    assert set(tried.values()) == {(0.6, 1.0)}


def test_pairs_of_systems_bring_their_step_size_along(tmp_path: Path) -> None:
    evaluation = {"likelihood": True, "mutual_information": {"fold": {"parallel": "four", "sequential": "one"}}}
    systems = {"one": {"order": "bidirectional-autoregressive"}, "four": {"order": "interleaved-sa"}}
    plan = planned(tmp_path, systems=systems, evaluation=evaluation)
    (step,) = [step for step in plan.steps if step.name == "report:run"]
    assert step.config.together == {"fold": Together(parallel="four", sequential="one", step_size=4)}


def test_without_a_student_of_the_teacher_nothing_is_distilled(tmp_path: Path) -> None:
    plan = planned(tmp_path, systems=WITHOUT_STUDENTS)
    assert not [step.name for step in plan.steps if step.stage.name == "distill" or step.name == "encode:distilled"]


def test_a_task_reaches_every_step_that_depends_on_it(tmp_path: Path) -> None:
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


def test_a_pinned_training_must_know_the_vocabulary(tmp_path: Path) -> None:
    vocabulary = fingerprint(planned(tmp_path), "vocabulary:joint")
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "train", vocabulary=vocabulary))})
    assert "train:teacher" not in [step.name for step in plan.steps]
    assert needs(plan, "system:teacher") == {"vocabulary:joint"}
    with pytest.raises(DataError, match=r"teacher\.from: expected a network trained on this run's vocabulary"):
        planned(tmp_path, teacher={"from": str(tmp_path / "earlier/train" / ("e" * 32))}, vocabulary={"size": 120})


def test_a_pinned_teacher_is_a_training_or_a_system(tmp_path: Path) -> None:
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "system"))})
    assert needs(plan, "distill:train") == {"corpus:train"}
    with pytest.raises(DataError, match=r"teacher\.from: expected an artifact of stage system or train, got one of stage encode"):
        planned(tmp_path, teacher={"from": str(made(tmp_path, "encode"))})


def test_pinned_distilled_text_must_be_of_this_training_text(tmp_path: Path) -> None:
    """The text would otherwise contain sentences of a test set that was added later."""
    text = fingerprint(planned(tmp_path), "corpus:train")
    pin = {"from": str(made(tmp_path, "distill", text=text))}
    plan = planned(tmp_path, distillation=pin)
    assert "distill:train" not in [step.name for step in plan.steps]
    more = {**CONFIG["corpus"], "test": {"toy": {"embedded": 5}, "more": {"embedded": 9}}}  # type: ignore[dict-item]
    with pytest.raises(DataError, match=r"distillation\.from: expected outputs for this run's training text"):
        planned(tmp_path, distillation=pin, corpus=more, benchmark={"test": "toy"})


def test_networks_of_an_ensemble_are_trainings_that_differ_in_their_seed(tmp_path: Path) -> None:
    """A member equals the training of a system with the teacher's settings and that seed, for any number of networks."""
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


def test_an_ensemble_distils_and_can_be_evaluated_beside_its_first_network(tmp_path: Path) -> None:
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


def test_a_training_may_start_from_another_systems_weights(tmp_path: Path) -> None:
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


def test_averaging_fewer_candidates_needs_no_other_training(tmp_path: Path) -> None:
    first, second = (
        planned(tmp_path, systems={"one": one}, evaluation={}) for one in ({"dropout": 0.2}, {"dropout": 0.2, "num_averaged": 2})
    )
    assert fingerprint(first, "train:one") == fingerprint(second, "train:one")
    assert fingerprint(first, "system:one") != fingerprint(second, "system:one")
    config = next(step.config for step in second.steps if step.name == "system:one")
    assert config.averaging.num_averaged == 2


def test_a_mixture_says_how_often_either_data_stands_in_an_epoch(tmp_path: Path) -> None:
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


def test_what_is_asked_of_distillation_changes_it_alone(tmp_path: Path) -> None:
    before = planned(tmp_path)
    for changes in ({"choose": "reference", "n_best": 4}, {"max_ratio": 2.0}, {"batch_tokens": None}):
        after = planned(tmp_path, distillation=changes)
        assert fingerprint(after, "distill:train") != fingerprint(before, "distill:train")
        assert fingerprint(after, "train:teacher") == fingerprint(before, "train:teacher")
    config = next(step.config for step in planned(tmp_path, distillation={"max_ratio": 2.0}).steps if step.name == "distill:train")
    assert config.target_language == "", "what only the choice by reference asks for changes nothing else"


def test_monolingual_text_is_cleaned_and_distilled_apart(tmp_path: Path) -> None:
    """Further monolingual text does not change the targets distilled before."""
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


def test_what_became_of_the_sources_is_in_the_report(tmp_path: Path) -> None:
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
def test_what_is_timed_together_is_what_the_recipes_train(
    tmp_path: Path, bench: str, recipes: list[str], trained: set[str]
) -> None:
    """`make bench` on a store that holds the recipes' systems trains none of them again."""
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
