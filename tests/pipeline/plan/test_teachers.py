"""Plans with teachers from elsewhere and pinned artifacts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from fewstep.config.network import Sizes
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.system.integrity import measure, seal
from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from pipeline.plan.estimate import spending
from pipeline.plan.packages import check_packages
from pipeline.plan.step import Plan
from pipeline.run.origins import provenance
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from stages.encode.modifiers import Modifiers
from stages.errors import DataError
from stages.train.token_files import vocabulary_sizes
from tests.models.imports.test_fairseq import SHARED, Reference
from tests.pipeline.plan.toy_plans import CONFIG, fingerprint, needs, planned
from tests.pipeline.run_specs import manifest
from tests.stages import test_system
from tests.stages.steps import write_text
from tests.stages.test_dag_analysis import make_system

COMMAND = {"command": ["cat"], "version": "1"}
MODEL = {"ctranslate2": "model"}
STUDENT = {"systems": {"student": {"data": "distilled"}}, "evaluation": {}, "lattice": None}


def test_a_model_of_ctranslate2_distils_by_its_content_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    teacher = {"ctranslate2": str(folder)}
    with pytest.raises(DataError, match=r"teacher\.ctranslate2: expected a directory of CTranslate2 .*, got .*model with none"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    for name in ("model.bin", "config.json", "shared_vocabulary.json"):
        (folder / name).write_text("{}")
    with pytest.raises(DataError, match=r"teacher\.source_pieces: expected a SentencePiece model, got no file .*source\.spm"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_text(name)
    plan = planned(tmp_path, teacher=teacher, **STUDENT)
    assert needs(plan, "encode:distilled") == {"external:train", "vocabulary:joint"}
    first = fingerprint(plan, "external:train")
    assert fingerprint(planned(tmp_path, teacher={**teacher, "shards_per_process": 2}, **STUDENT), "external:train") == first
    assert fingerprint(planned(tmp_path, teacher={**teacher, "beam_size": 1}, **STUDENT), "external:train") != first
    (folder / "target.spm").write_text("another")
    assert fingerprint(planned(tmp_path, teacher=teacher, **STUDENT), "external:train") != first

    monkeypatch.setattr("pipeline.plan.packages.find_spec", lambda name: None)
    path = tmp_path / "package.yaml"
    path.write_text(yaml.safe_dump({"teacher": teacher, "systems": STUDENT["systems"], "corpus": {"train": {"embedded": 50}}}))
    with pytest.raises(DataError, match=r"teacher\.ctranslate2 needs the package ctranslate2.*pip install ctranslate2"):
        check_packages(load_config(path, []))


LANGUAGE_MODEL = {"openai": {"url": "http://localhost:8000/v1", "model": "m", "input_price": 2.0, "output_price": 8.0}}


def test_a_language_model_distils_by_its_prompt_and_the_choice_of_targets(tmp_path: Path) -> None:
    def plan(distillation: dict[str, Any] | None = None, **changed: Any) -> str:
        teacher = {"openai": {**LANGUAGE_MODEL["openai"], **changed}}
        steps = planned(tmp_path, **STUDENT, teacher=teacher, distillation=distillation or {})
        assert needs(steps, "external:train") == {"corpus:train"}
        return fingerprint(steps, "external:train")

    first = plan()
    assert plan(url="https://elsewhere/v1", key_variable="KEY", concurrency=2, max_cost=1.0, retries=0) == first
    found = {
        first,
        plan(model="n"),
        plan(prompt="{text}"),
        plan(temperature=1.0, distillation={"n_best": 4}),
        plan(temperature=1.0, distillation={"n_best": 4, "choose": "mbr"}),
        plan(temperature=1.0, distillation={"n_best": 4, "choose": "reference"}),
        plan(distillation={"filters": {"copies": False}}),
    }
    assert len(found) == 7
    assert plan(distillation={"filters": {}}) == first, "the filters are on unless others are stated"


WRONG_SERVERS = [
    ({"url": "localhost:8000"}, "teacher.openai.url: expected an http or https address"),
    ({"url": "https://a/v1?key=secret"}, "teacher.openai.url: expected an http or https address"),
    ({"url": "https://user:secret@a/v1"}, "teacher.openai.url: expected an address without a user and a password"),
    ({"prompt": "Translate."}, "teacher.openai.prompt: expected {text} once, where the source stands, got 0 times"),
    (
        {"key_variable": "sk-secret"},
        "teacher.openai.key_variable: expected the name of an environment variable",
    ),
    ({"max_cost": 1.0}, "teacher.openai.max_cost: expected prices"),
    ({"temperature": 0.0, "n_best": 2}, "teacher.openai.temperature: expected above 0 with distillation.n_best above 1"),
    ({"use": "teacher"}, "expected a teacher with a network, not a language model behind a server"),
    ({"initial_weights": "teacher"}, "initial_weights: expected random with teacher.openai"),
]


@pytest.mark.parametrize(("changed", "problem"), WRONG_SERVERS)
def test_servers_that_cannot_be_asked_are_named(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    options = {"url": "http://localhost/v1", "model": "m"}
    options |= {key: value for key, value in changed.items() if key not in ("use", "n_best", "initial_weights")}
    student = {"use": "teacher"} if "use" in changed else {"data": "distilled"}
    student |= {key: value for key, value in changed.items() if key == "initial_weights"}
    config = {"teacher": {"openai": options}, "distillation": {"n_best": changed.get("n_best", 1)}, "systems": {"a": student}}
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, **{**STUDENT, **config})
    assert problem in str(error.value)
    assert "secret" not in str(error.value)


def test_the_cost_of_a_language_model_is_estimated_before(tmp_path: Path) -> None:
    teacher = {"openai": {**LANGUAGE_MODEL["openai"], "prompt": "{text}"}}
    steps = planned(tmp_path, **STUDENT, teacher=teacher).steps
    assert list(spending(steps)) == ["external:train asks m: the amount is known when its text is in the store; plan again then"]
    text = next(step.inputs.text for step in steps if step.name == "external:train")
    write_text(text.path, [("x" * 30, "y")] * 200, 50)
    (line,) = spending(steps)
    # 30 bytes are 10 tokens, and their translation has 1.5 * 10 + 5.
    assert line == (
        "external:train asks m for 200 sentences: about 2,000 tokens of prompts and 4,000 of answers, about 0.04 by its prices"
    )


ENGINES = {"cluster": {"resources": {"external": {"gpus": 2}}}}


def test_a_language_model_on_the_cluster_is_planned(tmp_path: Path) -> None:
    def plan(**changed: Any) -> Plan:
        return planned(tmp_path, **STUDENT, **ENGINES, teacher={"ray_llm": {"model": "org/m", "prompt": "{text}", **changed}})

    first = plan()
    assert needs(first, "external:train") == {"corpus:train"}
    step = next(step for step in first.steps if step.name == "external:train")
    assert step.config.filters is not None
    assert fingerprint(plan(batch_sentences=9), "external:train") == step.fingerprint
    for other in ({"model": "n"}, {"engine": {"max_model_len": 9}}, {"temperature": 1.0}, {"output": "json"}):
        assert fingerprint(plan(**other), "external:train") != step.fingerprint
    write_text(step.inputs.text.path, [("x" * 30, "y")] * 200, 50)
    (line,) = spending(first.steps)
    assert line == "external:train asks org/m for 200 sentences: about 2,000 tokens of prompts and 4,000 of answers"


@pytest.mark.parametrize(
    ("teacher", "changes", "problem"),
    [
        ({}, {"cluster": {}}, r"cluster.resources.external.gpus: expected the whole GPUs of each engine .* at least 1, got 0"),
        ({}, {"cluster": {"resources": {"external": {"gpus": 0.5}}}}, "gpus: expected the whole GPUs of each engine"),
        ({"engine": {"trust_remote_code": True}}, {}, "engine.trust_remote_code: expected a model without code of its own"),
        ({"engine": {"tensor_parallel_size": 2}}, {}, "tensor_parallel_size: expected cluster.resources.external.gpus"),
        ({"engine": {"pipeline_parallel_size": 3}}, {}, "expected a number that divides the 2 GPUs of an engine, got 3"),
        ({"prompt": "Translate."}, {}, r"teacher.ray_llm.prompt: expected {text} once"),
        ({}, {"distillation": {"n_best": 2}}, "teacher.ray_llm.temperature: expected above 0 with distillation.n_best above 1"),
        ({}, {"systems": {"a": {"use": "teacher"}}}, "expected a teacher with a network, not a language model"),
    ],
)
def test_engines_that_cannot_start_are_named(
    tmp_path: Path, teacher: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        planned(tmp_path, **{**STUDENT, **ENGINES, "teacher": {"ray_llm": {"model": "m", **teacher}}, **changes})


def test_engines_on_this_machine_need_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("pipeline.plan.packages.find_spec", lambda name: None if name == "vllm" else object())
    config = {
        **ENGINES,
        "teacher": {"ray_llm": {"model": "m"}},
        "corpus": {"train": {"embedded": 50}},
        "systems": STUDENT["systems"],
    }
    path = tmp_path / "engines.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(DataError, match=r"teacher\.ray_llm needs the package vllm on the workers.*pip install 'ray\[llm\]'"):
        check_packages(load_config(path, []))
    check_packages(load_config(path, ["cluster.address=ray://head:10001"]))


CURRICULUM = [{"mix": {"web": 3, "raw": 1}, "updates": 4}, {"mix": {"distilled": 1, "raw": 1}}]


def test_a_curriculum_reads_the_texts_that_it_names(tmp_path: Path) -> None:
    corpus = {**CONFIG["corpus"], "texts": {"web": {"embedded": 30}}}
    training = {"curriculum": CURRICULUM, "updates": 9}
    plan = planned(
        tmp_path,
        corpus=corpus,
        evaluation={},
        lattice=None,
        systems={"student": {"training": training}, "plain": {"training": {"updates": 9}}},
    )
    steps = {step.name: step for step in plan.steps}
    assert {"encode:raw", "encode:raw/web", "encode:distilled"} <= needs(plan, "train:student")
    assert needs(plan, "encode:raw/web") == {"corpus:train/web", "vocabulary:joint"}
    assert needs(plan, "corpus:train/web") == {"corpus:validation", "corpus:toy"}, "held-out sentences are dropped"
    inputs = steps["train:student"].inputs
    assert (inputs.tokens, list(inputs.texts)) == ((), ["raw", "web", "distilled"])
    assert "encode:raw/web" not in needs(plan, "train:plain")
    systems = {"student": {"training": {**training, "curriculum": CURRICULUM[1:]}}, "more": {"training": training}}
    other = planned(tmp_path, corpus=corpus, evaluation={}, lattice=None, systems=systems)
    assert fingerprint(other, "train:student") != fingerprint(plan, "train:student")
    assert fingerprint(other, "train:more") == fingerprint(plan, "train:student")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"systems": {"a": {}}}, "corpus.texts.web: expected a text that a curriculum names"),
        ({"corpus": {}}, r"curriculum\[0\]\.mix\.web: expected one of raw, distilled, got another name"),
        ({"teacher": None, "lattice": None, "ngram": None}, "mix.distilled: expected one of raw, web, got"),
        ({"corpus": {"texts": {"raw": {"embedded": 3}}}}, "corpus.texts.raw: expected a name that no other text has"),
        ({"systems": {"a": {"data": "mixed", "training": {"curriculum": CURRICULUM}}}}, "a.data: expected raw or distilled"),
    ],
)
def test_texts_that_do_not_exist_or_are_not_read_are_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    corpus = {**CONFIG["corpus"], **changes.pop("corpus", {"texts": {"web": {"embedded": 30}}})}
    systems = {"a": {"training": {"curriculum": CURRICULUM, "updates": 9}}}
    with pytest.raises(ConfigError, match=problem):
        planned(tmp_path, **{"corpus": corpus, "systems": systems, **changes})


def test_a_model_of_transformers_distils_by_its_content_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    teacher = {"transformers": str(folder), "source_language": "eng_Latn", "target_language": "deu_Latn"}
    with pytest.raises(DataError, match=r"teacher\.transformers: expected a directory with config\.json"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    for name in ("config.json", "pytorch_model.bin", "code.py"):
        (folder / name).write_text("{}")
    with pytest.raises(DataError, match="expected weights in safetensors, found none"):
        planned(tmp_path, teacher=teacher, **STUDENT)
    (folder / "model-00001-of-00002.safetensors").write_text("a")
    plan = planned(tmp_path, teacher=teacher, **STUDENT)
    first = fingerprint(plan, "external:train")
    (folder / "code.py").write_text("other code, which is not read")
    changed = {"shards_per_process": 2, "batch_sentences": 3}
    assert fingerprint(planned(tmp_path, teacher={**teacher, **changed}, **STUDENT), "external:train") == first
    for other in ({"beam_size": 1}, {"target_language": "fra_Latn"}, {"precision": "float16"}, {"source_prefix": "<2de> "}):
        assert fingerprint(planned(tmp_path, teacher={**teacher, **other}, **STUDENT), "external:train") != first
    (folder / "model-00001-of-00002.safetensors").write_text("b")
    assert fingerprint(planned(tmp_path, teacher=teacher, **STUDENT), "external:train") != first
    monkeypatch.setattr("pipeline.plan.packages.find_spec", lambda name: None)
    path = tmp_path / "package.yaml"
    path.write_text(yaml.safe_dump({"teacher": teacher, "systems": STUDENT["systems"], "corpus": {"train": {"embedded": 50}}}))
    with pytest.raises(DataError, match=r"teacher\.transformers needs the package transformers.*pip install transformers"):
        check_packages(load_config(path, []))


def test_a_network_of_fairseq_needs_its_checkpoint_and_a_vocabulary_of_sentencepiece(tmp_path: Path) -> None:
    Reference(**SHARED).write(tmp_path / "fairseq")
    names = {"fairseq": "model.pt", "source_dictionary": "dict.en.txt", "target_dictionary": "dict.de.txt"}
    names |= {"source_pieces": "source.model", "target_pieces": "target.model"}
    teacher = {key: str(tmp_path / "fairseq" / name) for key, name in names.items()}
    systems = {"auto": {"use": "teacher"}, "student": {"data": "distilled"}}
    plan = planned(tmp_path, **{**STUDENT, "teacher": teacher, "systems": systems, "vocabulary": {"use": "teacher"}})
    assert needs(plan, "distill:train") == {"corpus:train", "import_network:teacher"}
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    for key in ("fairseq", "source_dictionary"):
        with pytest.raises(DataError, match=rf"teacher\.{key}: expected a file, got .*none"):
            planned(tmp_path, **{**STUDENT, "teacher": {**teacher, key: str(tmp_path / "none")}})
    without = {key: value for key, value in teacher.items() if key != "source_dictionary"}
    with pytest.raises(ConfigError, match="source_dictionary"):
        planned(tmp_path, **{**STUDENT, "teacher": without})
    (tmp_path / "codes").write_text("#version: 0.2\na b</w>\n")
    with pytest.raises(DataError, match="expected a SentencePiece model, got BPE codes of subword-nmt or fastBPE"):
        planned(tmp_path, **{**STUDENT, "teacher": {**teacher, "source_pieces": str(tmp_path / "codes")}})


def test_a_program_distils_and_its_version_and_files_are_inputs(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("one")
    teacher = {**COMMAND, "files": [str(tmp_path / "model")]}
    plan = planned(tmp_path, teacher=teacher, **STUDENT)
    assert needs(plan, "encode:distilled") == {"external:train", "vocabulary:joint"}
    first = fingerprint(plan, "external:train")
    assert fingerprint(planned(tmp_path, teacher={**teacher, "timeout_seconds": 9.0}, **STUDENT), "external:train") == first
    assert fingerprint(planned(tmp_path, teacher={**teacher, "version": "2"}, **STUDENT), "external:train") != first
    (tmp_path / "model").write_text("another")
    assert fingerprint(planned(tmp_path, teacher=teacher, **STUDENT), "external:train") != first


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"systems": {"auto": {"use": "teacher"}}}, "a teacher with a network, not a command"),
        (
            {"teacher": {**COMMAND, "files": ["a/model", "b/vocab", "c/model"]}},
            r"files\[2\]: expected names that differ, .* 'model' again",
        ),
        ({"distillation": {"n_best": 3}}, "n_best: expected 1 with teacher.command"),
        ({"distillation": {"n_best": 3, "choose": "reference"}}, "choose: expected score or quality with teacher.command"),
        ({"systems": {"student": {"initial_weights": "teacher"}}}, "random with teacher.command"),
        ({"vocabulary": {"use": "teacher"}}, "an imported teacher in the config"),
        ({"languages": {"target_token": ">>deu<<"}}, "none unless the teacher is imported"),
        ({"teacher": MODEL, "systems": {"auto": {"use": "teacher"}}}, "a teacher with a network, not a model of CTranslate2"),
        ({"teacher": MODEL, "distillation": {"n_best": 3}}, "n_best: expected 1 with teacher.ctranslate2"),
        ({"teacher": MODEL, "systems": {"student": {"initial_weights": "teacher"}}}, "random with teacher.ctranslate2"),
    ],
)
def test_a_program_is_no_network(changes: dict[str, object], match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match):
        planned(tmp_path, **{"teacher": COMMAND, **STUDENT, **changes})


def test_an_imported_teacher_is_a_system_and_may_lend_its_vocabulary(tmp_path: Path) -> None:
    directory = tmp_path / "opus-mt"
    directory.mkdir()
    for name in ("config.json", "vocab.json", "other.txt"):
        (directory / name).write_text("{}")
    systems = {"auto": {"use": "teacher"}, "student": {"data": "distilled"}}
    plan = planned(
        tmp_path, **{**STUDENT, "teacher": {"marian": str(directory)}, "systems": systems, "vocabulary": {"use": "teacher"}}
    )
    assert needs(plan, "distill:train") == {"corpus:train", "import_network:teacher"}
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    assert not any(step.stage.name == "vocabulary" for step in plan.steps)
    before = fingerprint(plan, "import_network:teacher")
    (directory / "other.txt").write_text("changed")
    same = planned(tmp_path, **{**STUDENT, "teacher": {"marian": str(directory)}, "systems": systems})
    assert fingerprint(same, "import_network:teacher") == before
    assert needs(same, "encode:raw") == {"corpus:train", "vocabulary:joint"}
    for kind in ("marian", "bart"):
        with pytest.raises(DataError, match=rf"teacher\.{kind}: expected a directory"):
            planned(tmp_path, **{**STUDENT, "teacher": {kind: str(tmp_path / "none")}})


def test_an_imported_bart_names_its_kind_and_depends_on_its_merges(tmp_path: Path) -> None:
    directory = tmp_path / "bart"
    directory.mkdir()
    for name in ("config.json", "vocab.json", "merges.txt"):
        (directory / name).write_text("{}")
    changes = {**STUDENT, "teacher": {"bart": str(directory)}, "vocabulary": {"use": "teacher"}}
    plan = planned(tmp_path, **changes)
    assert needs(plan, "encode:raw") == {"corpus:train", "import_network:teacher"}
    before = fingerprint(plan, "import_network:teacher")
    (directory / "merges.txt").write_text("changed")
    assert fingerprint(planned(tmp_path, **changes), "import_network:teacher") != before


def made(tmp_path: Path, stage: str, **inputs: str) -> Path:
    """Write a finished artifact into another store and return its directory."""
    store = Store(tmp_path / "earlier")
    directory = store.directory(stage, "e" * 32)
    partial_directory(directory, "1").mkdir(parents=True)
    store.commit(directory, manifest(f"{stage}:x", "e" * 32, inputs=inputs))
    return directory


def test_a_pinned_language_model_is_not_estimated(tmp_path: Path) -> None:
    plan = planned(tmp_path, ngram={"from": str(made(tmp_path, "ngram"))})
    assert not [step for step in plan.steps if step.stage.name == "ngram"]
    with pytest.raises(DataError, match=r"ngram.from: expected a model over this run's vocabulary .*got one over ffffffff"):
        planned(tmp_path, ngram={"from": str(made(tmp_path / "other", "ngram", vocabulary="f" * 32))})


def test_a_pinned_training_must_have_the_runs_vocabulary(tmp_path: Path) -> None:
    vocabulary = fingerprint(planned(tmp_path), "vocabulary:joint")
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "train", vocabulary=vocabulary))})
    assert "train:teacher" not in [step.name for step in plan.steps]
    assert needs(plan, "system:teacher") == {"vocabulary:joint"}
    with pytest.raises(DataError, match=r"teacher\.from: expected a network trained on this run's vocabulary"):
        planned(tmp_path, teacher={"from": str(tmp_path / "earlier/train" / ("e" * 32))}, vocabulary={"size": 120})


def test_a_pinned_teacher_must_be_a_training_a_system_or_an_import(tmp_path: Path) -> None:
    plan = planned(tmp_path, teacher={"from": str(made(tmp_path, "system"))})
    assert needs(plan, "distill:train") == {"corpus:train"}
    expected = r"teacher\.from: expected an artifact of stage system, train or import_network, got one of stage encode"
    with pytest.raises(DataError, match=expected):
        planned(tmp_path, teacher={"from": str(made(tmp_path, "encode"))})


NETWORK = {"width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 1}
"""The sizes of `make_system`."""


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """Return a directory of a system that was copied from its store."""
    (tmp_path / "made").mkdir()
    return Path(shutil.copytree(make_system(tmp_path / "made", "stepwise").path, tmp_path / "finished"))


def tuned(tmp_path: Path, network: Path, vocabulary: Path, **options: object) -> Plan:
    """Return a plan with a training that starts from `network`."""
    system = {"initial_weights": {"from": str(network)}, **NETWORK, **options}
    pinned = {"vocabulary": {"from": str(vocabulary)}, "systems": {"tuned": system}}
    return planned(tmp_path, teacher=None, lattice=None, ngram=None, evaluation={}, **pinned)


def test_a_system_goes_on_from_a_finished_one(tmp_path: Path, finished: Path) -> None:
    plan = tuned(tmp_path, finished, finished)
    step = next(step for step in plan.steps if step.name == "train:tuned")
    kept = step.inputs.initial.path
    assert kept.is_relative_to(tmp_path / "store/system"), "steps verify their inputs by manifests"
    Store(tmp_path / "store").verify(kept)
    assert (kept / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert provenance(kept).unlicensed == [str(finished)]
    assert step.inputs.vocabulary.path == kept
    assert vocabulary_sizes(step.inputs.vocabulary) == Sizes(37, 37, True)
    assert not [step for step in plan.steps if step.stage.name == "vocabulary"]
    elsewhere = Path(shutil.copytree(finished, tmp_path / "elsewhere"))
    assert fingerprint(tuned(tmp_path, elsewhere, elsewhere), "train:tuned") == step.fingerprint
    assert fingerprint(tuned(tmp_path, finished, finished, training={"updates": 3}), "train:tuned") != step.fingerprint


def test_back_translations_are_training_pairs_with_their_sides_exchanged(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "news.de").write_text("Ein Haus.\nEin Hund.\n")
    corpus = {**CONFIG["corpus"], "modifiers": {"typos": 0.1}}
    corpus["back_translation"] = {"monolingual": str(tmp_path / "news.de"), "by": str(finished)}
    settings: dict[str, object] = {"teacher": None, "lattice": None, "ngram": None, "evaluation": {}, "systems": {"plain": {}}}
    with pytest.raises(DataError, match=r"back_translation.by: expected a system from de to en, got one from en to de"):
        planned(tmp_path, corpus=corpus, **settings)
    languages = {"source": "de", "target": "en"}
    plan = planned(tmp_path, corpus=corpus, languages=languages, **settings)
    steps = {step.name: step for step in plan.steps}
    assert {"encode:raw", "encode:back-translation"} <= needs(plan, "train:plain")
    assert needs(plan, "encode:back-translation") == {"distill:back-translation", "vocabulary:joint"}
    assert steps["distill:back-translation"].config.search == StepwiseSearch()
    assert steps["corpus:train/back-translation"].config.languages == ("en", "en")
    found = {name: (steps[name].config.swap, steps[name].config.modifiers) for name in steps if name.startswith("encode:")}
    typos = Modifiers(typos=0.1)
    assert found == {
        "encode:raw": (False, typos), "encode:back-translation": (True, typos), "encode:validation": (False, None),
    }  # fmt: skip


def test_weights_of_other_pieces_or_other_networks_are_refused(tmp_path: Path, finished: Path) -> None:
    vocabulary = test_system.make_vocabulary(tmp_path / "vocabulary", test_system.WORDS)
    other = Path(shutil.copytree(finished, tmp_path / "other"))
    described = json.loads((other / "system.json").read_text())
    for side in ("source", "target"):
        shutil.copyfile(vocabulary.path / f"{side}.spm", other / f"{side}.spm")
        described["parts"][f"{side}.spm"] = measure(other / f"{side}.spm")
    (other / "system.json").write_text(json.dumps(seal(described)))
    with pytest.raises(DataError, match=r"systems.tuned.initial_weights.from: expected a network with this run's vocabulary"):
        tuned(tmp_path, finished, other)
    with pytest.raises(DataError, match=r"initial_weights.from: expected the network of .*; state width: 16"):
        tuned(tmp_path, finished, finished, width=32)
    (finished / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match=r"vocabulary.from: .*model.safetensors: expected \d+ bytes"):
        tuned(tmp_path, finished, finished)


def test_weights_of_a_training_belong_to_its_vocabulary(tmp_path: Path) -> None:
    vocabulary = made(tmp_path / "pieces", "vocabulary")
    network = made(tmp_path / "network", "train", vocabulary="e" * 32)
    (network / "model.json").write_text(json.dumps({"family": "dag", "network": {}}))  # of another family: a part of it is taken
    assert fingerprint(tuned(tmp_path, network, vocabulary), "train:tuned")
    other = made(tmp_path / "others", "train", vocabulary="f" * 32)
    with pytest.raises(DataError, match=r"initial_weights.from: expected a network with this run's vocabulary"):
        tuned(tmp_path, other, vocabulary)


def test_pinned_distilled_text_must_belong_to_the_runs_training_text(tmp_path: Path) -> None:
    """Otherwise it could contain sentences of a test set that was added later."""
    text = fingerprint(planned(tmp_path), "corpus:train")
    pin = {"from": str(made(tmp_path, "distill", text=text))}
    plan = planned(tmp_path, distillation=pin)
    assert "distill:train" not in [step.name for step in plan.steps]
    more = {**CONFIG["corpus"], "test": {"toy": {"embedded": 5}, "more": {"embedded": 9}}}
    with pytest.raises(DataError, match=r"distillation\.from: expected outputs for this run's training text"):
        planned(tmp_path, distillation=pin, corpus=more, benchmark={"test": "toy"})
