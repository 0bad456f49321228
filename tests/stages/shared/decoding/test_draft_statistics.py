"""Systems that carry their verifier, and the statistics of drafting that their decoding records."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece
import torch

import stages.decode.run
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import WEIGHTS, BundleError
from fewstep.vocabulary import RESERVED
from models.bundle.directory import load_system, save_model
from models.bundle.likelihood import score
from models.bundle.weights import load_matching_weights
from models.family import family_named
from stages.artifacts import System, Text, Trained, Vocabulary
from stages.benchmark.tables import parts_table
from stages.benchmark.timing import measure
from stages.benchmark.translator import timed_translator
from stages.context import StepContext
from stages.errors import ArtifactError
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.system import STAGE, SystemConfig, SystemInputs
from stages.workers import LocalWorkers, Resources

SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 32, "heads": 2, "max_positions": 64}
WORDS = ["ein haus am see", "der hund sieht die katze", "heute regnet es im wald", "die katze schläft", "sie liest ein buch"]
GAD = AggressiveSearch(min_tokens_per_pass=0.0, output_limits=OutputLimits(max_extra_tokens=8))


def work_in(directory: Path) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return StepContext(
        directory=directory,
        attempt="a1",
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory.parent / f"{directory.name}.cache",
    )


def vocabulary_of(path: Path, lines: list[str]) -> tuple[Vocabulary, Sizes]:
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
    size = len(sentencepiece.SentencePieceProcessor(str(path / "source.spm")))
    return Vocabulary(path, "vocabulary"), Sizes(size, size, True)


def config_of(family: str, search: Any) -> SystemConfig:
    return SystemConfig(name=family, family=family, source_language="de", target_language="de", searches={"default": search})


def verifier_in(path: Path, vocabulary: Vocabulary, sizes: Sizes) -> System:
    torch.manual_seed(3)
    config = StepwiseConfig(**SMALL)
    save_model(path / "trained", "stepwise", config, sizes, family_named("stepwise").functions.build(config, sizes).state_dict())
    inputs = SystemInputs(Trained(path / "trained", "trained"), vocabulary)
    STAGE.run(
        inputs, config_of("stepwise", StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=8))), work_in(path / "system")
    )
    return System(path / "system", "verifier")


def drafter_in(path: Path, vocabulary: Vocabulary, sizes: Sizes, verifier: System | None, encoder: str = "shared") -> SystemInputs:
    torch.manual_seed(4)
    config = AggressiveConfig(encoder=encoder, draft_width=3, **SMALL)
    model = family_named("aggressive").functions.build(config, sizes)
    if verifier is not None:
        load_matching_weights(verifier.path / WEIGHTS, model)
    save_model(path, "aggressive", config, sizes, model.state_dict())
    return SystemInputs(Trained(path, "trained"), vocabulary, companions={"verifier": verifier} if verifier else {})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SystemInputs]:
    """A system with its verifier, and what it was put together from."""
    return build(tmp_path_factory.mktemp("built"))


def build(path: Path) -> tuple[Path, SystemInputs]:
    vocabulary, sizes = vocabulary_of(path / "vocabulary", WORDS)
    verifier = verifier_in(path / "verifier", vocabulary, sizes)
    inputs = drafter_in(path / "trained", vocabulary, sizes, verifier)
    STAGE.run(inputs, config_of("aggressive", GAD), work_in(path / "system"))
    return path / "system", inputs


def test_a_system_contains_its_verifier(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, inputs = built
    moved = tmp_path / "elsewhere"
    directory.rename(moved)
    try:
        system = load_system(moved)
        greedy = load_system(inputs.companions["verifier"].path)
        assert system.translate(WORDS) == greedy.translate(WORDS)
        assert score(system, WORDS, WORDS) == pytest.approx(score(greedy, WORDS, WORDS), abs=1e-4)
    finally:
        moved.rename(directory)


def test_another_vocabulary_is_refused(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    _, inputs = built
    other, sizes = vocabulary_of(tmp_path / "vocabulary", [line[::-1] for line in WORDS])
    strange = drafter_in(tmp_path / "trained", other, sizes, None, "separate").trained
    with pytest.raises(ArtifactError, match="verifier"):
        STAGE.run(
            SystemInputs(strange, other, companions=inputs.companions), config_of("aggressive", GAD), work_in(tmp_path / "system")
        )


def test_another_vocabulary_of_the_same_size_is_refused(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, _ = built
    shutil.copytree(directory, tmp_path / "system")
    other, _ = vocabulary_of(tmp_path / "vocabulary", [line[::-1] for line in WORDS])
    shutil.copy(other.path / "target.spm", tmp_path / "system" / "verifier" / "target.spm")
    with pytest.raises(BundleError, match="expected one vocabulary for the drafter and the verifier, got two"):
        load_system(tmp_path / "system", verify=False)


def test_a_drafter_of_another_encoder_is_refused(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    _, inputs = built
    sizes = load_system(inputs.companions["verifier"].path).decoder.model.sizes  # type: ignore[attr-defined]
    strange = drafter_in(tmp_path / "trained", inputs.vocabulary, sizes, None)
    with pytest.raises(ArtifactError, match="expected the one that the drafter was trained on"):
        STAGE.run(
            SystemInputs(strange.trained, inputs.vocabulary, companions=inputs.companions),
            config_of("aggressive", GAD),
            work_in(tmp_path / "system"),
        )


def test_a_system_without_its_verifier_is_refused(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, inputs = built
    with pytest.raises(ArtifactError, match="verifier"):
        STAGE.run(SystemInputs(inputs.trained, inputs.vocabulary), config_of("aggressive", GAD), work_in(tmp_path / "system"))
    weights = directory / "verifier" / WEIGHTS
    kept = weights.read_bytes()
    weights.unlink()
    with pytest.raises(BundleError, match="verifier"):
        load_system(directory)
    weights.write_bytes(kept)


def test_another_system_can_be_the_drafter(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    """The verifier is its own drafter, so that every block is accepted."""
    _, inputs = built
    given = SystemInputs(
        inputs.trained, inputs.vocabulary, companions={**inputs.companions, "drafter": inputs.companions["verifier"]}
    )
    STAGE.run(given, config_of("aggressive", GAD), work_in(tmp_path / "system"))
    system = load_system(tmp_path / "system")
    hinted = AggressiveSearch(
        drafter="system", draft_width=4, ngram=20, output_limits=OutputLimits(max_extra_tokens=8), min_tokens_per_pass=0.0
    )
    sources = system.encode(WORDS)
    alone, helped = system.decode(sources), system.decode(sources, hinted)
    assert [found[0].ids for found in alone] == [found[0].ids for found in helped]
    assert sum(found[0].steps for found in helped) < sum(len(found[0].ids) for found in helped)


def test_decoding_records_statistics_of_drafting(built: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, _ = built
    lines = [*WORDS, ""]
    write_shard(
        shard_path(tmp_path / "text", 0),
        pa.table({"id": list(range(len(lines))), "source": lines, "target": lines}),
        work_in(tmp_path / "w"),
    )
    out = work_in(tmp_path / "out")
    text, system = Text(tmp_path / "text", "text"), System(directory, "system")
    stages.decode.run.run(stages.decode.DecodeInputs(system, text), stages.decode.DecodeConfig(search=GAD), out)
    found = json.loads((out.directory / "decode.json").read_text())["drafting"]
    rows = [row for shard in read_shards(out.directory) for row in shard.to_pylist() if row["steps"]]
    assert found["sentences"] == len(WORDS) == len(rows)
    tokens, steps = sum(len(row["ids"]) for row in rows), sum(row["steps"] for row in rows)
    assert found["tokens_per_pass"] == pytest.approx(tokens / steps)
    assert found["passes"] == pytest.approx(steps / len(rows))
    assert found["quantiles"][0] == min(len(row["ids"]) / row["steps"] for row in rows)
    assert len(found["acceptance"]) <= 3
    assert all(0 <= share <= 1 for share in found["acceptance"])
    assert found["fell_back"] == 0.0


def test_a_benchmark_records_the_time_by_part(built: tuple[Path, SystemInputs]) -> None:
    directory, _ = built
    system = load_system(directory)
    (timings,) = measure(
        {"a/gad": timed_translator(system, GAD), "a/greedy": timed_translator(system, AggressiveSearch(strategy="greedy"))},
        WORDS,
        1,
        (4,),
    )
    assert all(set(own.parts) == {"encoder", "drafter_encoder", "drafter", "verifier", "rest"} for own in timings)
    for own in timings:
        assert sum(own.parts.values()) < sum(own.latencies_ms) / 1000
    table = parts_table(timings)
    assert table is not None
    assert [row[0] for row in table["rows"]] == ["a/gad", "a/greedy"]
    assert parts_table([]) is None
