from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import sentencepiece
import torch

import models
import stages.decode
from models.bundle import load_system, save_model
from models.family import RESERVED, Sizes
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from stages.artifacts import System, Text, Trained, Vocabulary
from stages.errors import ArtifactError
from stages.shards import read_shards, shard_path, write_shard
from stages.stage import Resources, Work
from stages.system import STAGE, SystemConfig, SystemInputs
from stages.workers import LocalWorkers

NETWORK = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, max_positions=64)
WORDS = ["ein haus am see", "der hund sieht die katze", "heute regnet es im wald", "die katze schläft", "sie liest ein buch"]


def make_work(directory: Path) -> Work:
    directory.mkdir(parents=True, exist_ok=True)
    return Work(directory, "a1", LocalWorkers(), Resources(workers=1, cpus=1), directory.parent / f"{directory.name}.cache")


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
    """A trained network of random weights, and its vocabulary."""
    path = tmp_path_factory.mktemp("parts")
    vocabulary = make_vocabulary(path / "vocabulary", WORDS)
    size = len(sentencepiece.SentencePieceProcessor(str(vocabulary.path / "source.spm")))
    torch.manual_seed(3)
    sizes = Sizes(size, size, True)
    model = models.family_of("stepwise").build(NETWORK, sizes)
    save_model(path / "trained", "stepwise", NETWORK, sizes, model.state_dict())
    return SystemInputs(Trained(path / "trained", "trained"), vocabulary)


CONFIG = SystemConfig(
    name="small", family="stepwise", source_language="de", target_language="de", search=StepwiseSearch(strategy="beam", beam_size=3)
)


def test_a_system_is_whole_and_the_same_again(tmp_path: Path, parts: SystemInputs) -> None:
    work = make_work(tmp_path / "a")
    STAGE.run(parts, CONFIG, work)
    loaded = load_system(work.directory)
    assert (loaded.name, loaded.source_language, loaded.search) == ("small", "de", CONFIG.search)
    assert len(loaded.translate(["ein haus", ""])) == 2
    first = {path.name: path.read_bytes() for path in work.directory.iterdir() if path.is_file()}
    again = make_work(tmp_path / "b")
    STAGE.run(parts, CONFIG, again)
    assert {path.name: path.read_bytes() for path in again.directory.iterdir() if path.is_file()} == first


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, parts: SystemInputs) -> None:
    with pytest.raises(ArtifactError, match="expected a network of family dag, got stepwise"):
        STAGE.run(parts, replace(CONFIG, family="dag"), make_work(tmp_path / "a"))
    other = make_vocabulary(tmp_path / "vocabulary", WORDS[:2])
    with pytest.raises(ArtifactError, match="another vocabulary"):
        STAGE.run(replace(parts, vocabulary=other), CONFIG, make_work(tmp_path / "b"))


def test_a_real_system_decodes_alike_in_any_company(tmp_path: Path, parts: SystemInputs) -> None:
    work = make_work(tmp_path / "system")
    STAGE.run(parts, CONFIG, work)
    system = System(work.directory, "system")
    lines = [*WORDS, "", "haus", *(f"{a} {b}" for a in WORDS for b in WORDS)]
    table = pa.table({"id": list(range(len(lines))), "source": lines, "target": lines})
    write_shard(shard_path(tmp_path / "text", 0), table, work)
    written = []
    for budget in (1, 60, 5000):
        out = make_work(tmp_path / f"out{budget}")
        config = stages.decode.DecodeConfig(search=replace(CONFIG.search, n_best=2, max_extra_tokens=8), batch_tokens=budget)
        stages.decode.run(stages.decode.DecodeInputs(system, Text(tmp_path / "text", "text")), config, out)
        rows = [row for shard in read_shards(out.directory) for row in shard.to_pylist()]
        ties = json.loads((out.directory / "decode.json").read_text())["near_ties"]["first"]
        written.append([(row["id"], row["rank"], row["ids"], row["text"]) for row in rows if row["id"] not in ties])
        assert len({row["id"] for row in rows}) == len(lines)
    assert written[0] == written[1] == written[2]
    assert len(written[0]) > len(lines)
