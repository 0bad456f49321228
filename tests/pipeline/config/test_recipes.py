"""Recipes of the papers ask for what the papers state, and for GPUs."""

from pathlib import Path
from typing import Any

import pytest

from models.training.config import TrainingConfig
from pipeline.config.load import load_config
from pipeline.config.schema import RunConfig

PAPERS = Path(__file__).resolve().parents[3] / "configs/papers"
RECIPES = sorted(path.stem for path in PAPERS.glob("*.yaml"))
GPUS = {"wmt14-en-de-lattice": 3, "iwslt14-de-en-lattice": 1, "aspec-ja-en": 1, "wmt14-en-de-dag": 16, "wmt17-zh-en-dag": 16}
"""GPUs of a training where they are not eight."""


def recipe(name: str) -> RunConfig:
    return load_config(PAPERS / f"{name}.yaml", ())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_asks_for_gpus(name: str) -> None:
    resources = recipe(name).cluster.resources
    train = resources["train"]
    assert (train.workers or 1) * train.gpus == GPUS.get(name, 8)
    assert all(resources[stage].gpus == 1 for stage in ("distill", "decode", "benchmark"))
    assert recipe(name).cluster.microbatch_tokens


def test_automatic_passes_are_the_whole_share_of_a_batch() -> None:
    path = PAPERS / "wmt14-en-de.yaml"
    assert load_config(path, ["cluster.microbatch_tokens=auto"]).cluster.microbatch_tokens == 0


def test_aggressive_decoding_has_the_papers_batches_and_ends() -> None:
    config = recipe("wmt14-en-de-aggressive")
    systems: dict[str, Any] = config.systems
    assert systems["verifier"].training.batch_tokens == 8 * 20_000 * 4  # devices, tokens, update frequency (Xia et al., appendix)
    for name in ("aggressive", "aggressive-big", "aggressive-shared"):
        searches = [search for search in systems[name].search.values() if search.strategy == "gad++"]
        assert len(searches) == 2
        assert not any(search.require_top1_eos for search in searches)


@pytest.mark.parametrize("name", ["wmt14-en-de-lattice", "iwslt14-de-en-lattice"])
def test_lattices_drop_out_and_choose_checkpoints_as_the_authors_program(name: str) -> None:
    systems: dict[str, Any] = recipe(name).systems
    for system in (systems["lattice"], systems["lattice-raw"]):
        assert (system.attention_dropout, system.feed_forward_dropout) == (0, 0)
        assert (system.training.average, system.training.num_averaged) == ("best", 1)
        assert system.training.validation_sentences == 3000


def test_text_that_is_tokenised_is_scored_as_it_is() -> None:
    evaluation = recipe("iwslt14-de-en-lattice").evaluation
    assert (evaluation.tokenizer, evaluation.decode_entities) == ("none", True)


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
    config = recipe("aspec-ja-en")
    vocabulary: Any = config.vocabulary
    assert vocabulary.model == "bpe"
    assert [str(path).rpartition("/")[2] for path in config.corpus.test["aspec"].source] == ["devtest.ja", "test.ja"]  # type: ignore[arg-type]
    for system in config.systems.values():
        recipe_of: TrainingConfig = system.training  # type: ignore[union-attr]
        assert (recipe_of.patience_epochs, recipe_of.patience) == (10, 0)


def test_parallel_drafters_start_from_encoder_and_embeddings() -> None:
    systems: dict[str, Any] = recipe("wmt14-en-de-aggressive").systems
    for name in ("aggressive", "aggressive-big", "aggressive-shared"):
        assert systems[name].network.copied_weights == "encoder"
