"""Systems: their parts, those that do not fit, and the verifiers and language models that they carry."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file

import stages.decode.run
from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import WEIGHTS, BundleError
from fewstep.vocabulary import RESERVED
from kernels import NgramModel
from models.bundle.directory import load_system, save_model
from models.bundle.likelihood import score
from models.bundle.weights import load_matching_weights, save_weights
from models.family import family_named
from models.stepwise.model import build
from models.training.config import TrainingConfig
from stages.artifacts import Ngram, System, Text, Trained, Vocabulary
from stages.benchmark.summary import parts_table
from stages.benchmark.timing import measure, timed_translator
from stages.errors import ArtifactError
from stages.shared.vocabulary import processor
from stages.system import STAGE, SystemConfig, SystemInputs
from tests.stages.steps import context_in, rows_of, write_text

NETWORK = StepwiseConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, max_positions=64)
WORDS = ["ein haus am see", "der hund sieht die katze", "heute regnet es im wald", "die katze schläft", "sie liest ein buch"]


def make_vocabulary(path: Path, lines: list[str]) -> Vocabulary:
    path.mkdir(parents=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20), model_writer=model, vocab_size=50, pad_id=0, bos_id=1, eos_id=2, unk_id=3,
        user_defined_symbols=list(RESERVED[4:]), hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    for side in ("source", "target"):
        (path / f"{side}.spm").write_bytes(model.getvalue())
    return Vocabulary(path, "vocabulary")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> SystemInputs:
    """Return a training artifact with random weights, and its vocabulary."""
    path = tmp_path_factory.mktemp("parts")
    vocabulary = make_vocabulary(path / "vocabulary", WORDS)
    return SystemInputs(make_trained(path / "trained", "stepwise", NETWORK, vocabulary), vocabulary)


def sizes_of(vocabulary: Vocabulary) -> Sizes:
    size = len(sentencepiece.SentencePieceProcessor(str(vocabulary.path / "source.spm")))
    return Sizes(size, size, True)


def make_trained(path: Path, family: str, network: Any, vocabulary: Vocabulary, seed: int = 3) -> Trained:
    torch.manual_seed(seed)
    sizes = sizes_of(vocabulary)
    save_model(path, family, network, sizes, family_named(family).functions.build(network, sizes).state_dict())
    return Trained(path, "trained")


CONFIG = SystemConfig(
    name="small", family="stepwise", source_language="de", target_language="de",
    searches={"beam": StepwiseSearch(strategy="beam", beam_size=3)},
)  # fmt: skip


def test_a_system_is_complete_and_reproducible(tmp_path: Path, parts: SystemInputs) -> None:
    context = context_in(tmp_path / "a")
    STAGE.run(parts, CONFIG, context)
    loaded = load_system(context.directory)
    assert (loaded.name, loaded.source_language, loaded.searches) == ("small", "de", CONFIG.searches)
    assert len(loaded.translate(["ein haus", ""])) == 2
    first = {path.name: path.read_bytes() for path in context.directory.iterdir() if path.is_file()}
    again = context_in(tmp_path / "b")
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
        context = context_in(tmp_path / str(offset))
        STAGE.run(inputs, replace(CONFIG, averaging=recipe), context)
        written = load_file(context.directory / "model.safetensors")
        assert all(torch.allclose(written[name], tensor + offset) for name, tensor in state.items())


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, parts: SystemInputs) -> None:
    with pytest.raises(ArtifactError, match="expected a network of family dag, got stepwise"):
        STAGE.run(parts, replace(CONFIG, family="dag"), context_in(tmp_path / "a"))
    other = make_vocabulary(tmp_path / "vocabulary", WORDS[:2])
    with pytest.raises(ArtifactError, match="another vocabulary"):
        STAGE.run(replace(parts, vocabulary=other), CONFIG, context_in(tmp_path / "b"))


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
        context = context_in(tmp_path / case / "student")
        STAGE.run(SystemInputs(Trained(trained, "trained"), teacher), CONFIG, context)
        student, lines = load_system(context.directory), [*LINES, "the zürich frauen"]
        assert student.encode(lines) == [[*row] for row in processor(teacher.path, "source").encode(lines)]
        assert student.encode(lines) == load_system(teacher.path).encode(lines)
        described = json.loads((context.directory / "system.json").read_text())
        assert described["unmapped_pieces"] == foreign.unmapped
        assert (sum(foreign.unmapped.values()) > 0) == bool(without)
        assert "origin" not in described  # the network is not the imported one


def test_hypotheses_of_a_real_system_do_not_depend_on_batches(tmp_path: Path, parts: SystemInputs) -> None:
    context = context_in(tmp_path / "system")
    STAGE.run(parts, CONFIG, context)
    system = System(context.directory, "system")
    lines = [*WORDS, "", "haus", *(f"{a} {b}" for a in WORDS for b in WORDS)]
    write_text(tmp_path / "text", [(line, line) for line in lines])
    written = []
    for budget in (1, 60, 5000):
        out = context_in(tmp_path / f"out{budget}")
        config = stages.decode.DecodeConfig(
            search=replace(CONFIG.searches["beam"], n_best=2, output_limits=OutputLimits(max_extra_tokens=8)), batch_tokens=budget
        )
        stages.decode.run.run(stages.decode.DecodeInputs(system, Text(tmp_path / "text", "text")), config, out)
        rows = rows_of(out.directory)
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
    STAGE.run(inputs, config, context_in(tmp_path / "with"))
    STAGE.run(replace(inputs, ngram=None), replace(config, searches={"lookahead": DagSearch()}), context_in(tmp_path / "without"))
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


SMALL: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 32, "heads": 2, "max_positions": 64}

GAD = AggressiveSearch(min_tokens_per_pass=0.0, output_limits=OutputLimits(max_extra_tokens=8))


def config_of(family: str, search: Any) -> SystemConfig:
    return SystemConfig(name=family, family=family, source_language="de", target_language="de", searches={"default": search})


def drafter_in(path: Path, vocabulary: Vocabulary, verifier: System | None, encoder: str = "shared") -> SystemInputs:
    torch.manual_seed(4)
    config, sizes = AggressiveConfig(encoder=encoder, draft_width=3, **SMALL), sizes_of(vocabulary)
    model = family_named("aggressive").functions.build(config, sizes)
    if verifier is not None:
        load_matching_weights(verifier.path / WEIGHTS, model)
    save_model(path, "aggressive", config, sizes, model.state_dict())
    return SystemInputs(Trained(path, "trained"), vocabulary, companions={"verifier": verifier} if verifier else {})


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SystemInputs]:
    """A system with its verifier, and what it was put together from."""
    return make_drafting(tmp_path_factory.mktemp("drafting"))


def make_drafting(path: Path) -> tuple[Path, SystemInputs]:
    vocabulary = make_vocabulary(path / "vocabulary", WORDS)
    greedy = config_of("stepwise", StepwiseSearch(output_limits=OutputLimits(max_extra_tokens=8)))
    trained = make_trained(path / "verifier" / "trained", "stepwise", NETWORK, vocabulary)
    STAGE.run(SystemInputs(trained, vocabulary), greedy, context_in(path / "verifier" / "system"))
    inputs = drafter_in(path / "trained", vocabulary, System(path / "verifier" / "system", "verifier"))
    STAGE.run(inputs, config_of("aggressive", GAD), context_in(path / "system"))
    return path / "system", inputs


def test_a_system_contains_its_verifier(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, inputs = drafting
    moved = tmp_path / "elsewhere"
    directory.rename(moved)
    try:
        system = load_system(moved)
        greedy = load_system(inputs.companions["verifier"].path)
        assert system.translate(WORDS) == greedy.translate(WORDS)
        assert score(system, WORDS, WORDS) == pytest.approx(score(greedy, WORDS, WORDS), abs=1e-4)
    finally:
        moved.rename(directory)


def test_another_vocabulary_is_refused(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    _, inputs = drafting
    other = make_vocabulary(tmp_path / "vocabulary", [line[::-1] for line in WORDS])
    strange = drafter_in(tmp_path / "trained", other, None, "separate").trained
    with pytest.raises(ArtifactError, match="verifier"):
        STAGE.run(
            SystemInputs(strange, other, companions=inputs.companions),
            config_of("aggressive", GAD),
            context_in(tmp_path / "system"),
        )


def test_another_vocabulary_of_the_same_size_is_refused(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, _ = drafting
    shutil.copytree(directory, tmp_path / "system")
    other = make_vocabulary(tmp_path / "vocabulary", [line[::-1] for line in WORDS])
    shutil.copy(other.path / "target.spm", tmp_path / "system" / "verifier" / "target.spm")
    with pytest.raises(BundleError, match="expected one vocabulary for the drafter and the verifier, got two"):
        load_system(tmp_path / "system", verify=False)


def test_a_drafter_of_another_encoder_is_refused(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    _, inputs = drafting
    strange = drafter_in(tmp_path / "trained", inputs.vocabulary, None)
    with pytest.raises(ArtifactError, match="expected the one that the drafter was trained on"):
        STAGE.run(
            SystemInputs(strange.trained, inputs.vocabulary, companions=inputs.companions),
            config_of("aggressive", GAD),
            context_in(tmp_path / "system"),
        )


def test_a_system_without_its_verifier_is_refused(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, inputs = drafting
    with pytest.raises(ArtifactError, match="verifier"):
        STAGE.run(SystemInputs(inputs.trained, inputs.vocabulary), config_of("aggressive", GAD), context_in(tmp_path / "system"))
    weights = directory / "verifier" / WEIGHTS
    kept = weights.read_bytes()
    weights.unlink()
    with pytest.raises(BundleError, match="verifier"):
        load_system(directory)
    weights.write_bytes(kept)


def test_another_system_can_be_the_drafter(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    """The verifier is its own drafter, so that every block is accepted."""
    _, inputs = drafting
    given = SystemInputs(
        inputs.trained, inputs.vocabulary, companions={**inputs.companions, "drafter": inputs.companions["verifier"]}
    )
    STAGE.run(given, config_of("aggressive", GAD), context_in(tmp_path / "system"))
    system = load_system(tmp_path / "system")
    hinted = AggressiveSearch(
        drafter="system", draft_width=4, ngram=20, output_limits=OutputLimits(max_extra_tokens=8), min_tokens_per_pass=0.0
    )
    sources = system.encode(WORDS)
    alone, helped = system.decode(sources), system.decode(sources, hinted)
    assert [found[0].ids for found in alone] == [found[0].ids for found in helped]
    assert sum(found[0].steps for found in helped) < sum(len(found[0].ids) for found in helped)
    drafted = system.decode(sources, replace(hinted, drafter="draft_model"))
    assert [found[0].ids for found in alone] == [found[0].ids for found in drafted]
    assert all(found[0].statistics["accepted"] == found[0].statistics["drafted"] > 0 for found in drafted if found[0].ids)


def test_decoding_records_statistics_of_drafting(drafting: tuple[Path, SystemInputs], tmp_path: Path) -> None:
    directory, _ = drafting
    lines = [*WORDS, ""]
    write_text(tmp_path / "text", [(line, line) for line in lines])
    out = context_in(tmp_path / "out")
    text, system = Text(tmp_path / "text", "text"), System(directory, "system")
    stages.decode.run.run(stages.decode.DecodeInputs(system, text), stages.decode.DecodeConfig(search=GAD), out)
    found = json.loads((out.directory / "decode.json").read_text())["drafting"]
    rows = [row for row in rows_of(out.directory) if row["steps"]]
    assert found["sentences"] == len(WORDS) == len(rows)
    tokens, steps = sum(len(row["ids"]) for row in rows), sum(row["steps"] for row in rows)
    assert found["tokens_per_pass"] == pytest.approx(tokens / steps)
    assert found["passes"] == pytest.approx(steps / len(rows))
    assert found["quantiles"][0] == min(len(row["ids"]) / row["steps"] for row in rows)
    assert len(found["acceptance"]) <= 3
    assert all(0 <= share <= 1 for share in found["acceptance"])
    assert found["fell_back"] == 0.0


def test_a_benchmark_records_the_time_by_part(drafting: tuple[Path, SystemInputs]) -> None:
    directory, _ = drafting
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
