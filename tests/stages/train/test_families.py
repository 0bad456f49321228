"""Trainings of graphs, lattices and heads on the toy language, and a training that starts from other weights."""

import json
from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import load_file

import fewstep
from fewstep.config.network import NetworkConfig
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig
from fewstep.families.lattice.config import LatticeModelConfig
from fewstep.families.stepwise.config import StepwiseSearch
from stages import align, lattice, system, train
from stages.artifacts import Links, System, Tables, Trained, Vocabulary
from stages.errors import ArtifactError, DataError, TransientError
from stages.train import TrainConfig
from tests.stages.train.toy_training import NETWORK, RECIPE, Stopping, config_of, make_work, metrics, results

GRAPH = DagConfig(
    encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64, graph_factor=3.0
)


def test_a_stopped_and_continued_training_of_a_dag_is_reproducible(inputs, straight, tmp_path):
    """Train on summaries, whose length searches of this family do not limit."""
    config = TrainConfig(family="dag", network=GRAPH, training=replace(RECIPE, label_smoothing=0.0), task="summarization")
    train.STAGE.run(inputs, config, make_work(tmp_path / "straight"))
    stopping = make_work(tmp_path / "stopped", Stopping, after=9)
    with pytest.raises(TransientError):
        train.STAGE.run(inputs, config, stopping)
    train.STAGE.run(inputs, config, make_work(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert any("accuracy" in line for line in metrics(tmp_path / "straight"))


LATTICE = LatticeModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, dropout=0.1, max_positions=64)


@pytest.fixture(scope="module")
def tables(inputs, tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    (tokens,) = inputs.tokens
    align.STAGE.run(align.AlignInputs(tokens), align.AlignConfig(), make_work(root / "links"))
    counted = lattice.LatticeInputs(tokens, Links(root / "links", "links"), inputs.validation, inputs.vocabulary)
    lattice.STAGE.run(counted, lattice.LatticeConfig(), make_work(root / "tables"))
    return Tables(root / "tables", "tables")


def test_a_stopped_and_continued_training_of_a_lattice_scorer_is_reproducible(inputs, tables, tmp_path):
    """Segments are drawn from a generator that is seeded for each update: a stopped training draws the same."""
    given = replace(inputs, tables=tables)
    config = TrainConfig(family="lattice", network=replace(LATTICE, normalizer_penalty=0.01), training=RECIPE)
    train.STAGE.run(given, config, make_work(tmp_path / "straight"))
    with pytest.raises(TransientError):
        train.STAGE.run(given, config, make_work(tmp_path / "stopped", Stopping, after=9))
    train.STAGE.run(given, config, make_work(tmp_path / "stopped", attempt="a2"))
    assert results(tmp_path / "stopped") == results(tmp_path / "straight")
    report = json.loads((tmp_path / "straight" / "training.json").read_text())
    assert report["validations"][-1]["loss"] < report["validations"][0]["loss"]
    assert all(0 <= validation["bleu"] <= 100 for validation in report["validations"])
    assert report["links"] == json.loads((tables.path / "lattice.json").read_text())["links"]
    assert any("log_z_squared" in line for line in metrics(tmp_path / "straight"))


def test_tables_of_another_vocabulary_are_refused(inputs, tables, tmp_path):
    (tmp_path / "words").mkdir()
    for side in ("source", "target"):
        (tmp_path / "words" / f"{side}.spm").write_bytes(
            (inputs.vocabulary.path / f"{side}.spm").read_bytes() + b"\xc0\x3e\x01"
        )  # an unknown field
    (tmp_path / "words" / "vocabulary.json").write_bytes((inputs.vocabulary.path / "vocabulary.json").read_bytes())
    given = replace(inputs, tables=tables, vocabulary=Vocabulary(tmp_path / "words", "words"))
    with pytest.raises(ArtifactError, match="expected candidate tables of the vocabulary"):
        train.STAGE.run(given, TrainConfig(family="lattice", network=LATTICE, training=RECIPE), make_work(tmp_path / "run"))


def test_a_training_starts_from_the_weights_that_fit(inputs, straight, tmp_path):
    given = load_file(straight / "model.safetensors")
    recipe = replace(RECIPE, updates=1, learning_rate=1e-12)
    for family, network in (("dag", GRAPH), ("stepwise", replace(NETWORK, feed_forward=48))):
        config = TrainConfig(family=family, network=network, training=recipe)
        train.STAGE.run(replace(inputs, initial=Trained(straight, "straight")), config, make_work(tmp_path / family))
        found = load_file(tmp_path / family / "model.safetensors")
        same = {name for name in found if name in given and found[name].shape == given[name].shape}
        assert any(name.startswith("encoder") for name in same)
        for name in same:
            torch.testing.assert_close(found[name], given[name], atol=1e-6, rtol=0)
        taken = sum(given[name].numel() for name in same)
        assert json.loads((tmp_path / family / "training.json").read_text())["weights_taken"] == taken
    wide = replace(NETWORK, width=18, feed_forward=20, heads=3)
    with pytest.raises(DataError, match="expected weights of the names and shapes of this network's, got none"):
        train.STAGE.run(
            replace(inputs, initial=Trained(straight, "straight")),
            TrainConfig(family="stepwise", network=wide, training=recipe),
            make_work(tmp_path / "wide"),
        )
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match="expected weights in safetensors format"):
        train.STAGE.run(replace(inputs, initial=Trained(tmp_path / "damaged", "damaged")), config_of(), make_work(tmp_path / "no"))


@pytest.mark.parametrize("train_verifier", [False, True])
def test_heads_are_chosen_by_the_tokens_that_a_pass_of_their_verifier_writes(inputs, straight, tmp_path, train_verifier):
    """The candidates that are averaged are those with the most tokens a pass, and the system verifies with the right network."""
    trained = Trained(straight, "trained")
    greedy = {"greedy": StepwiseSearch()}
    described = {"source_language": "en", "target_language": "de"}
    system.STAGE.run(
        system.SystemInputs(trained, inputs.vocabulary),
        system.SystemConfig(name="verifier", family="stepwise", searches=greedy, **described),
        make_work(tmp_path / "verifier"),
    )
    verifier = System(tmp_path / "verifier", "verifier")
    sizes = {field.name: getattr(NETWORK, field.name) for field in fields(NetworkConfig)}
    network = AggressiveConfig(**sizes, drafting="medusa", encoder="shared", draft_width=2, train_verifier=train_verifier)
    recipe = replace(RECIPE, validation_metric="tokens_per_pass")
    given = replace(inputs, initial=trained, verifier=verifier)
    train.STAGE.run(given, TrainConfig(family="aggressive", network=network, training=recipe), make_work(tmp_path / "heads"))
    report = json.loads((tmp_path / "heads" / "training.json").read_text())
    passes = {found["update"]: found["tokens_per_pass"] for found in report["validations"]}
    assert report["averaged"] == sorted(sorted(passes, key=lambda update: (passes[update], update))[-2:])
    assert all(0.5 < value <= 3 for value in passes.values()), "a pass writes up to two drafts and a token of the verifier"
    searches = {
        "gad": AggressiveSearch(),
        "gad-tree_nodes4": AggressiveSearch(tree_nodes=4),
        "greedy": AggressiveSearch(strategy="greedy"),
    }
    system.STAGE.run(
        system.SystemInputs(Trained(tmp_path / "heads", "heads"), inputs.vocabulary, companions={"verifier": verifier}),
        system.SystemConfig(
            name="heads", family="aggressive", searches=searches, averaging=replace(recipe, num_averaged=1), **described
        ),
        make_work(tmp_path / "system"),
    )
    texts = ["one two three", "five six seven one", "four"]
    loaded = fewstep.load(tmp_path / "system")
    outputs = {label: loaded.translate(texts, search=label) for label in searches}
    assert outputs["gad"] == outputs["gad-tree_nodes4"] == outputs["greedy"]
    assert (outputs["gad"] == fewstep.load(verifier.path).translate(texts)) != train_verifier
