from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece
import torch
from safetensors.torch import load_file

import stages.decode.run
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import BundleError
from fewstep.vocabulary import RESERVED
from kernels import NgramModel
from models.bundle.directory import load_system, save_model
from models.bundle.weights import save_weights
from models.family import family_named
from models.stepwise.model import build
from models.training.config import TrainingConfig
from stages.artifacts import Ngram, System, Text, Trained, Vocabulary
from stages.context import StepContext
from stages.errors import ArtifactError
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.shared.vocabulary.processor import processor
from stages.system import STAGE, SystemConfig, SystemInputs
from stages.workers import LocalWorkers, Resources

NETWORK = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, max_positions=64)
WORDS = ["ein haus am see", "der hund sieht die katze", "heute regnet es im wald", "die katze schläft", "sie liest ein buch"]


def make_work(directory: Path) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return StepContext(
        directory=directory,
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory.parent / f"{directory.name}.cache",
    )


def make_vocabulary(path: Path, lines: list[str]) -> Vocabulary:
    path.mkdir(parents=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20),
        model_writer=model,
        vocab_size=50,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        user_defined_symbols=list(RESERVED[4:]),
        hard_vocab_limit=False,
        minloglevel=2,
    )
    for side in ("source", "target"):
        (path / f"{side}.spm").write_bytes(model.getvalue())
    return Vocabulary(path, "vocabulary")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> SystemInputs:
    """Return a training artifact with random weights, and its vocabulary."""
    path = tmp_path_factory.mktemp("parts")
    vocabulary = make_vocabulary(path / "vocabulary", WORDS)
    return SystemInputs(make_trained(path / "trained", "stepwise", NETWORK, vocabulary), vocabulary)


def make_trained(path: Path, family: str, network: Any, vocabulary: Vocabulary, seed: int = 3) -> Trained:
    size = len(sentencepiece.SentencePieceProcessor(str(vocabulary.path / "source.spm")))
    torch.manual_seed(seed)
    sizes = Sizes(size, size, True)
    save_model(path, family, network, sizes, family_named(family).functions.build(network, sizes).state_dict())
    return Trained(path, "trained")


CONFIG = SystemConfig(
    name="small",
    family="stepwise",
    source_language="de",
    target_language="de",
    searches={"beam": StepwiseSearch(strategy="beam", beam_size=3)},
)


def test_a_system_is_complete_and_reproducible(tmp_path: Path, parts: SystemInputs) -> None:
    context = make_work(tmp_path / "a")
    STAGE.run(parts, CONFIG, context)
    loaded = load_system(context.directory)
    assert (loaded.name, loaded.source_language, loaded.searches) == ("small", "de", CONFIG.searches)
    assert len(loaded.translate(["ein haus", ""])) == 2
    first = {path.name: path.read_bytes() for path in context.directory.iterdir() if path.is_file()}
    again = make_work(tmp_path / "b")
    STAGE.run(parts, CONFIG, again)
    assert {path.name: path.read_bytes() for path in again.directory.iterdir() if path.is_file()} == first


def test_a_subset_of_the_candidates_is_averaged(tmp_path: Path, parts: SystemInputs) -> None:
    trained = tmp_path / "trained"
    shutil.copytree(parts.trained.path, trained)
    state = load_file(trained / "model.safetensors")
    bleu = {10: 1.0, 20: 4.0, 30: 3.0, 40: 2.0}
    (trained / "kept").mkdir()
    for update in bleu:
        save_weights(trained / "kept" / f"{update}.safetensors", {name: tensor + update for name, tensor in state.items()})
    validations = [{"update": update, "loss": 5.0, "bleu": value} for update, value in bleu.items()]
    (trained / "training.json").write_text(json.dumps({"validations": validations}))
    inputs = replace(parts, trained=Trained(trained, "trained"))
    for recipe, offset in ((TrainingConfig(num_averaged=2), 25), (TrainingConfig(average="last", num_averaged=3), 30)):
        context = make_work(tmp_path / str(offset))
        STAGE.run(inputs, replace(CONFIG, averaging=recipe), context)
        written = load_file(context.directory / "model.safetensors")
        assert all(torch.allclose(written[name], tensor + offset) for name, tensor in state.items())


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, parts: SystemInputs) -> None:
    with pytest.raises(ArtifactError, match="expected a network of family dag, got stepwise"):
        STAGE.run(parts, replace(CONFIG, family="dag"), make_work(tmp_path / "a"))
    other = make_vocabulary(tmp_path / "vocabulary", WORDS[:2])
    with pytest.raises(ArtifactError, match="another vocabulary"):
        STAGE.run(replace(parts, vocabulary=other), CONFIG, make_work(tmp_path / "b"))


def test_a_student_with_the_vocabulary_of_a_marian_network_segments_as_its_training_text_was(tmp_path: Path) -> None:
    """Pieces that have no id, behind those of the network, segment text alone; a piece of the other side has its id."""
    pytest.importorskip("transformers")
    from models.imports.foreign import write_foreign
    from models.imports.marian import read_marian
    from stages.import_network import FILES
    from tests.models.imports.marian_networks import LINES, write_marian

    for case, without in (("all", ()), ("fewer", ("▁the", "e"))):
        write_marian(tmp_path / case / "marian", without=without)
        files = {name: tmp_path / case / "marian" / name for name in FILES if (tmp_path / case / "marian" / name).is_file()}
        foreign = read_marian(files, name="marian", digests={})
        teacher = Vocabulary(tmp_path / case / "teacher", "teacher")
        write_foreign(foreign, teacher.path, name="teacher", source_language="en", target_language="de")
        (teacher.path / "vocabulary.json").write_text(json.dumps(foreign.vocabulary))
        trained = tmp_path / case / "trained"
        save_model(trained, "stepwise", NETWORK, foreign.sizes, build(NETWORK, foreign.sizes).state_dict())
        context = make_work(tmp_path / case / "student")
        STAGE.run(SystemInputs(Trained(trained, "trained"), teacher), CONFIG, context)
        student, lines = load_system(context.directory), [*LINES, "the zürich frauen"]
        assert student.encode(lines) == [[*row] for row in processor(teacher.path, "source").encode(lines)]
        assert student.encode(lines) == load_system(teacher.path).encode(lines)
        described = json.loads((context.directory / "system.json").read_text())
        assert described["unmapped_pieces"] == foreign.unmapped
        assert (sum(foreign.unmapped.values()) > 0) == bool(without)
        assert "origin" not in described  # the network is not the imported one


def test_hypotheses_of_a_real_system_do_not_depend_on_batches(tmp_path: Path, parts: SystemInputs) -> None:
    context = make_work(tmp_path / "system")
    STAGE.run(parts, CONFIG, context)
    system = System(context.directory, "system")
    lines = [*WORDS, "", "haus", *(f"{a} {b}" for a in WORDS for b in WORDS)]
    table = pa.table({"id": list(range(len(lines))), "source": lines, "target": lines})
    write_shard(shard_path(tmp_path / "text", 0), table, context)
    written = []
    for budget in (1, 60, 5000):
        out = make_work(tmp_path / f"out{budget}")
        config = stages.decode.DecodeConfig(
            search=replace(CONFIG.searches["beam"], n_best=2, output_limits=OutputLimits(max_extra_tokens=8)), batch_tokens=budget
        )
        stages.decode.run.run(stages.decode.DecodeInputs(system, Text(tmp_path / "text", "text")), config, out)
        rows = [row for shard in read_shards(out.directory) for row in shard.to_pylist()]
        ties = json.loads((out.directory / "decode.json").read_text())["near_ties"]["first"]
        written.append([(row["id"], row["rank"], row["ids"], row["text"]) for row in rows if row["id"] not in ties])
        assert len({row["id"] for row in rows}) == len(lines)
    assert written[0] == written[1] == written[2]
    assert len(written[0]) > len(lines)


GRAPH = DagConfig(
    encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, max_positions=64, max_vertices=64, graph_factor=3.0
)
ASKS = DagSearch(strategy="beam", beam_size=20, ngram_weight=3.0)


def graph_parts(path: Path, vocabulary: Vocabulary) -> SystemInputs:
    """Return a training artifact of the dag family with random weights, and an n-gram model."""
    pieces = sentencepiece.SentencePieceProcessor(str(vocabulary.path / "target.spm"))
    (path / "ngram").mkdir()
    text = [pieces.encode(line, out_type=str) for line in WORDS]
    NgramModel.estimate(text, 3, discount_fallback=(0.5, 1.0, 1.5)).save(path / "ngram" / "model.ngram")
    return SystemInputs(make_trained(path / "trained", "dag", GRAPH, vocabulary), vocabulary, Ngram(path / "ngram", "ngram"))


def test_a_dag_system_contains_its_language_model(tmp_path: Path, parts: SystemInputs) -> None:
    inputs = graph_parts(tmp_path, parts.vocabulary)
    config = replace(CONFIG, family="dag", searches={"beam": ASKS})
    STAGE.run(inputs, config, make_work(tmp_path / "with"))
    STAGE.run(replace(inputs, ngram=None), replace(config, searches={"lookahead": DagSearch()}), make_work(tmp_path / "without"))
    loaded, bare = load_system(tmp_path / "with"), load_system(tmp_path / "without")
    assert loaded.search == ASKS
    line = "der hund sieht die katze"
    plain = replace(ASKS, ngram_weight=0.0)
    assert loaded.translate([line], plain) == bare.translate([line], plain)
    assert loaded.translate([line]) != loaded.translate([line], plain)
    with pytest.raises(ValueError, match="ngram_weight: expected 0 for a system without an n-gram model"):
        bare.translate([line], ASKS)
    (tmp_path / "with" / "ngram" / "model.ngram").write_bytes(b"damaged")
    with pytest.raises(BundleError, match="ngram"):
        load_system(tmp_path / "with", verify=False)
