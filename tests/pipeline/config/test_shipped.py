"""The files of configs/: they load and suit their schema, and recipes ask for what the papers state, and for GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from sacrebleu.dataset import DATASETS

from models.training.config import TrainingConfig
from pipeline.config import docs as config_docs
from pipeline.config.docs import schema
from pipeline.config.files.yaml import read_config
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig
from pipeline.config.texts import TextConfig
from pipeline.data.mtdata_sets import look_up
from tests.docs.test_contents import properties
from tests.pipeline.config.config_text import ROOT, load

PARTS = ("cluster", "corpora", "settings", "systems")
"""Folders of files that others extend."""
FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.name != "runtime-env.yaml")
SHIPPED = [path for path in FILES if path.parent.name not in PARTS]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_shipped_configs_load(path: Path) -> None:
    load_config(path, ["corpus.pairs=29000"])  # no file has to be counted


def validator() -> Any:
    """Return a validator of the schema; building it takes longer than validating a file."""
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(json.loads(config_docs.schema()))


def test_shipped_files_suit_the_schema_that_they_name_for_editors() -> None:
    check = validator()
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        errors = [error.message for error in check.iter_errors(yaml.safe_load(text))]
        assert not errors, f"{path}: {errors}"
        first = text.splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema="), path
        assert (path.parent / first.partition("=")[2]).resolve() == ROOT / "configs/schema.json", path


def test_the_schema_knows_short_forms_and_refuses_wrong_ones() -> None:
    check = validator()
    text = {"corpus": {"train": {"source": "a", "target": ["b"]}, "test": {"x": {"tsv": "a"}}}}
    for search in ("greedy", ["greedy", {"beam": {"beam_size": 4}}], {"strategy": "beam"}):
        check.validate({**text, "teacher": {"from": "x"}, "systems": {"a": {"search": search}}})
    check.validate({"base": "b.yaml", "systems": {"a": None}})
    for bad in ({"corups": {}}, {"systems": {"a": {"search": "gredy"}}}, {"corpus": {"train": {"source": 3}}}):
        assert not check.is_valid(bad)


def test_headings_distinguish_the_forms_of_a_key() -> None:
    headings = [line.removeprefix("## ") for line in documentation().splitlines() if line.startswith("## ")]
    assert {"`teacher` with `marian`", "`teacher` with `command`", "`systems.<name>` with `use`"} <= set(headings)
    assert {"`systems.<name>`, family `dag`", "`systems.<name>.search.<name>`, family `dag`"} <= set(headings)
    assert [heading for heading in set(headings) if headings.count(heading) > 1] == ["`distillation`"]


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` writes them."""
    assert (ROOT / "docs/reference/config.md").read_text(encoding="utf-8") == documentation()


LIST = ROOT / "tests" / "golden" / "config_keys.txt"


@cache
def keys() -> set[str]:
    """Return the keys of all sections."""
    return set(properties(json.loads(schema())))


documentation = cache(config_docs.documentation)  # takes seconds


def test_the_list_of_keys_is_closed() -> None:
    listed = set(LIST.read_text(encoding="utf-8").split())
    assert sorted(keys() - listed) == [], (
        f"expected the keys of {LIST.name}, found others; a key needs a user who asked for it: name the reason in the commit, and "
        "add it there"
    )
    assert sorted(listed - keys()) == [], f"{LIST.name} names keys that no section has; remove them"


OPTIONS = list(yaml.safe_load_all(Path(__file__).with_name("options.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("config", OPTIONS, ids=lambda config: config["name"])
def test_configs_of_rare_options_load(tmp_path: Path, config: dict[str, Any]) -> None:
    load(tmp_path, yaml.safe_dump(config, sort_keys=False))


def stated(value: Any) -> Iterator[str]:
    """Yield the keys of all maps of a value."""
    for key, inner in value.items() if isinstance(value, dict) else [("", one) for one in value] if isinstance(value, list) else ():
        yield str(key)
        yield from stated(inner)


def test_each_key_is_in_a_config() -> None:
    files = [*FILES, *(ROOT / "tests").rglob("*.yaml")]
    configs = [config for path in files for config in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    shown = {key for config in configs for key in stated(config)} | {"segments"}  # it follows from pretraining.target
    assert sorted(keys() - shown) == [], (
        "expected each key in a config of configs/ or tests/; add it to options.yaml, or remove the key"
    )


PAPERS = Path(__file__).resolve().parents[3] / "configs/papers"
RECIPES = sorted(path.stem for path in PAPERS.glob("*.yaml"))
GPUS = {"dag": 16, "parallel": 16, "interleaved": 8, "shallow": 8, "aggressive": 8, "lattice": 3, "double-token": 1}
"""GPUs of a training by method."""
SHARED = {"corpora", "systems", "settings", "cluster"}


def recipe(name: str) -> RunConfig:
    return load_config(PAPERS / f"{name}.yaml", ())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_asks_for_gpus(name: str) -> None:
    resources = recipe(name).cluster.resources
    train = resources["train"]
    expected = 1 if name.startswith("iwslt14") else next(count for method, count in GPUS.items() if f"-{method}" in name)
    assert (train.workers or 1) * train.gpus == expected
    assert all(resources[stage].gpus == 1 for stage in ("distill", "decode", "tune", "benchmark"))
    assert recipe(name).cluster.microbatch_tokens


@pytest.mark.parametrize("name", RECIPES)
def test_text_and_systems_of_a_recipe_each_stand_in_one_file(name: str) -> None:
    root, problems = read_config(PAPERS / f"{name}.yaml", ())
    assert not problems
    systems = {node.where.rpartition(":")[0] for node in root.map["systems"].map.values()}
    assert len(systems) == 1
    texts = {text.where.rpartition(":")[0] for text in (root.map["corpus"].map[part] for part in ("train", "validation"))}
    assert [Path(file).parent.name for file in texts] == ["corpora"]
    written = yaml.safe_load((PAPERS / f"{name}.yaml").read_text())
    assert {Path(base).parent.name for base in written["base"]} <= SHARED
    assert written["name"] == recipe(name).name == name


@pytest.mark.parametrize(("overlay", "gpus"), [("one-gpu", 1), ("one-node", 8), ("two-nodes", 16)])
def test_another_cluster_is_laid_over_a_recipe(overlay: str, gpus: int, tmp_path: Path) -> None:
    for name in ("wmt14-en-de-dag", "wmt14-en-de-lattice"):
        mine = tmp_path / "mine.yaml"
        mine.write_text(f"base: [{PAPERS / name}.yaml, {PAPERS.parent / 'cluster' / overlay}.yaml]\n")
        found, before = load_config(mine, ()), recipe(name)
        assert found.cluster.resources["train"].workers == gpus
        assert found.systems == before.systems


def test_directions_of_a_corpus_read_the_same_files() -> None:
    for one, other in (("wmt14-en-de", "wmt14-de-en"), ("wmt17-zh-en", "wmt17-en-zh"), ("wmt16-ro-en", "wmt16-en-ro")):
        method = "aggressive" if one.startswith("wmt16") else "dag"
        forth, back = recipe(f"{one}-{method}"), recipe(f"{other}-{method}")
        assert (forth.languages.source, forth.languages.target) == (back.languages.target, back.languages.source)
        assert (forth.corpus.train.source, forth.corpus.train.target) == (back.corpus.train.target, back.corpus.train.source)
        assert (forth.corpus.train.mtdata, forth.corpus.train.opus) == (back.corpus.train.mtdata, back.corpus.train.opus)
        assert (forth.corpus.validation, forth.corpus.test) == (back.corpus.validation, back.corpus.test)
    for one, other in zip(texts_of("wmt16-ro-en-lattice"), texts_of("wmt16-en-ro-lattice"), strict=True):  # files of Lee et al.
        assert (one.source, one.target) == (other.target, other.source)


def texts_of(name: str) -> list[TextConfig]:
    corpus = recipe(name).corpus
    return [corpus.train, corpus.validation, *corpus.test.values()]


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if name.startswith("wmt") and not ("wmt16" in name and "lattice" in name)]
)
def test_named_test_sets_have_the_languages_of_their_recipe(name: str) -> None:
    config = recipe(name)
    pair = f"{config.languages.source}-{config.languages.target}"
    named = [text.sacrebleu.name for text in (config.corpus.validation, *config.corpus.test.values()) if text.sacrebleu]
    assert named
    assert all(pair in DATASETS[one].langpairs for one in named)


@pytest.mark.slow  # mtdata builds its index for each look-up
def test_named_training_sets_are_in_the_index_of_mtdata() -> None:
    pytest.importorskip("mtdata")
    names = {(name, recipe(each).languages.target) for each in RECIPES for name in recipe(each).corpus.train.mtdata}
    pairs = {"de": ("en", "de"), "en": ("de", "en"), "fr": ("en", "fr"), "ru": ("en", "ru")}
    for target in {target for _, target in names}:
        found = look_up([name for name, other in sorted(names) if other == target], pairs[target])
        assert all(entry["format"] == "tgz" and len(entry["members"]) == 2 for entry in found)


def test_test_sets_are_joined_as_in_the_paper() -> None:
    wmt = recipe("wmt14-en-de-double-token").corpus
    assert [str(file)[-7:-3] for file in wmt.test["newstest2010-2016"].source] == [str(year) for year in range(2010, 2017)]
    assert wmt.validation.sacrebleu is not None
    assert wmt.validation.sacrebleu.name == "wmt09"
    assert len(recipe("aspec-ja-en-double-token").corpus.test["aspec"].source) == 2


def test_aggressive_decoding_has_the_papers_batches_and_ends() -> None:
    config = recipe("wmt14-en-de-aggressive")
    systems: dict[str, Any] = config.systems
    assert systems["verifier"].training.batch_tokens == 8 * 20_000 * 4  # devices, tokens, update frequency (Xia et al., appendix)
    for name in ("aggressive", "aggressive-big"):
        searches = [search for search in systems[name].search.values() if search.strategy == "gad++"]
        assert len(searches) == 2
        assert not any(search.require_top1_eos for search in searches)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-lattice")])
def test_lattices_drop_out_and_choose_checkpoints_as_the_authors_program(name: str) -> None:
    systems: dict[str, Any] = recipe(name).systems
    for system in (systems["lattice"], systems["lattice-raw"]):
        assert (system.attention_dropout, system.feed_forward_dropout) == (0, 0)
        assert (system.training.average, system.training.num_averaged) == ("best", 1)
        assert system.training.validation_sentences == 3000


def test_text_that_is_tokenised_is_scored_as_it_is() -> None:
    evaluation = recipe("iwslt14-de-en-lattice").evaluation
    assert (evaluation.tokenizer, evaluation.decode_entities) == ("none", True)
    assert recipe("wmt14-de-en-lattice").evaluation.tokenizer == "auto"


def test_graphs_are_chosen_on_the_whole_validation_text_and_alpha_is_tuned() -> None:
    config = recipe("wmt14-en-de-dag")
    systems: dict[str, Any] = config.systems
    assert systems["dag"].training.validation_sentences >= 3000  # newstest2013
    for system in (systems["dag"], systems["dag-distilled"]):
        assert (system.conventions, system.initialisation, system.source_bos) == ("paper", "normal", True)
        assert (system.glancing, system.pinning, system.max_positions) == ("number-random", "column", 128)
        assert system.training.max_tokens + 2 >= 8 * 127  # as many target tokens as the largest graph has vertices
    assert (min(config.evaluation.length_penalties), max(config.evaluation.length_penalties)) == (1.0, 1.4)


def test_aspec_has_bpe_joined_test_sets_and_patience_in_epochs() -> None:
    config = recipe("aspec-ja-en-double-token")
    vocabulary: Any = config.vocabulary
    assert vocabulary.model == "bpe"
    assert [str(path).rpartition("/")[2] for path in config.corpus.test["aspec"].source] == ["devtest.ja", "test.ja"]  # type: ignore[arg-type]
    for name, system in config.systems.items():
        recipe_of: TrainingConfig = system.training  # type: ignore[union-attr]
        expected = (0, 0) if name == "mask-predict" else (10, 0)  # which has 300,000 updates, table 1
        assert (recipe_of.patience_epochs, recipe_of.patience, recipe_of.updates) == (*expected, 300_000)


def test_automatic_passes_are_the_whole_share_of_a_batch() -> None:
    path = PAPERS / "wmt14-en-de-interleaved.yaml"
    assert load_config(path, ["cluster.microbatch_tokens=auto"]).cluster.microbatch_tokens == 0


def test_parallel_drafters_start_from_encoder_and_embeddings() -> None:
    systems: dict[str, Any] = recipe("wmt14-en-de-aggressive").systems
    for name in ("aggressive", "aggressive-big"):
        assert systems[name].network.copied_weights == "encoder"
