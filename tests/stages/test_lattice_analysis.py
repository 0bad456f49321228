"""Systems with candidate tables: their contents, the inputs that they refuse, and the analysis of their lattices."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fewstep import CandidateTables
from fewstep.config.network import Sizes
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.lattice.paths import Lattice, Paths
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.system.format import BundleError
from fewstep.vocabulary import vocabulary_digest
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates
from models.bundle.directory import load_system, save_model
from models.bundle.likelihood import score
from models.family import family_named
from models.lattice.analysis import Ranks, _ranks, ranks
from models.lattice.decode import LatticeDecoder
from models.training.batch import collate
from stages import lattice_analysis as lattices
from stages import system
from stages.artifacts import System, Tables, Text, Trained, Vocabulary
from stages.context import StepContext
from stages.errors import ArtifactError, DataError
from stages.lattice_analysis import LatticeAnalysisConfig, LatticeAnalysisInputs
from stages.lattice_analysis.run import PARTS, _class_of, class_name, length_name
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces
from tests.stages.steps import context_in, write_text

WORDS = ["ein", "zwei", "drei", "haus", "katze", "wald", "see"]
NETWORK = LatticeModelConfig(width=16, feed_forward=16, heads=2, encoder_layers=1, decoder_layers=1, max_positions=60)
SEARCH = LatticeSearch(candidates=4)
LINES = ["ein haus", "", "zwei katze drei wald", "see", "ein ein ein", "wald " * 9]


def make_tables(path: Path, vocabulary: Path, size: int, seed: int) -> Tables:
    """Return tables of pairs of random pieces that are linked in order."""
    draw = random.Random(seed)
    rows = [[draw.randrange(7, size) for _ in range(draw.randrange(1, 12))] for _ in range(300)]
    targets = [[7 + (piece - 7 + draw.randrange(3)) % (size - 7) for piece in row] for row in rows]
    path.mkdir(parents=True)
    options = CountOptions(source_size=size, target_size=size)
    links = Sentences.of([range(len(row)) for row in rows]).values
    count_candidates(Sentences.of(rows), Sentences.of(targets), links, path / "counts.run", options=options)
    merge_candidates([path / "counts.run"], path / "tables.bin", options=TableOptions(vocabulary=vocabulary_digest(vocabulary)))
    return Tables(path, f"t{seed}")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> system.SystemInputs:
    return make_parts(tmp_path_factory.mktemp("parts"))


def make_parts(root: Path) -> system.SystemInputs:
    draw = random.Random(1)
    pieces = train_pieces((" ".join(draw.choices(WORDS, k=6)) for _ in range(200)), VocabularyConfig(size=27))
    (root / "vocabulary").mkdir()
    for side in ("source", "target"):
        (root / "vocabulary" / f"{side}.spm").write_bytes(pieces)
    tables = make_tables(root / "tables", root / "vocabulary", 27, 1)
    sizes = Sizes(27, 27, True)
    torch.manual_seed(2)
    save_model(root / "trained", "lattice", NETWORK, sizes, family_named("lattice").functions.build(NETWORK, sizes).state_dict())
    links = CandidateTables.load(tables.file).summary.links.hex()
    (root / "trained" / "training.json").write_text(json.dumps({"links": links}))
    return system.SystemInputs(Trained(root / "trained", "n"), Vocabulary(root / "vocabulary", "v"), None, tables)


def make_system(parts: system.SystemInputs, directory: Path, **changes: Any) -> System:
    config = system.SystemConfig(
        name="scorer", family="lattice", source_language="en", target_language="de", searches={SEARCH.label: SEARCH}
    )
    system.STAGE.run(replace(parts, **changes), config, context_in(directory))
    return System(directory, "s")


def test_a_system_contains_its_tables(parts: system.SystemInputs, tmp_path: Path) -> None:
    made = make_system(parts, tmp_path / "system")
    shutil.move(made.path, tmp_path / "elsewhere")
    loaded = load_system(tmp_path / "elsewhere")
    description = json.loads((tmp_path / "elsewhere" / "system.json").read_text())
    assert "tables/tables.bin" in description["parts"]
    assert [bool(text) for text in loaded.translate(LINES)] == [bool(line) for line in LINES]
    assert len(score(loaded, ["ein haus"], ["zwei"])) == 1
    for search in (LatticeSearch(strategy="lookup"), LatticeSearch(candidates=2, normalizer="local")):
        assert len(loaded.translate(LINES, search)) == len(LINES)


def test_tables_that_do_not_belong_to_a_system_are_refused(parts: system.SystemInputs, tmp_path: Path) -> None:
    assert parts.tables is not None
    directory = make_system(parts, tmp_path / "system").path
    inside = directory / "tables" / "tables.bin"
    other = make_tables(tmp_path / "other", parts.vocabulary.path, 27, 2)
    for damage, problem in (
        (lambda: inside.unlink(), "the file is missing"),
        (lambda: inside.write_bytes(b"no table"), "tables.bin"),
        (lambda: shutil.copyfile(other.file, inside), "use the tables that were counted"),
    ):
        damage()
        with pytest.raises(BundleError, match=problem):
            load_system(directory, verify=False)
    with pytest.raises(ArtifactError, match="which the training was validated with, got those of"):
        make_system(parts, tmp_path / "again", tables=other)
    (tmp_path / "words").mkdir()
    for side in ("source", "target"):
        (tmp_path / "words" / f"{side}.spm").write_bytes((parts.vocabulary.path / "source.spm").read_bytes() + b"\x00\x00")
    foreign = make_tables(tmp_path / "foreign", tmp_path / "words", 27, 1)
    with pytest.raises(ArtifactError, match="expected candidate tables of the vocabulary"):
        make_system(parts, tmp_path / "more", tables=foreign)
    with pytest.raises(ArtifactError, match=r"tables\.bin"):
        make_system(parts, tmp_path / "none", tables=None)


def run(parts: system.SystemInputs, tmp_path: Path, lines: list[str] = LINES) -> tuple[dict[str, Any], StepContext]:
    made = make_system(parts, tmp_path / "system")
    write_text(tmp_path / "text", [(line, line) for line in lines])
    context = context_in(tmp_path / "lattices")
    lattices.STAGE.run(
        LatticeAnalysisInputs(made, Text(tmp_path / "text", "x")), LatticeAnalysisConfig(name="scorer on x", timed=3), context
    )
    return json.loads((context.directory / "lattice_analysis.json").read_text()), context


def test_ranks_are_those_of_the_chosen_tokens_and_bigrams(parts: system.SystemInputs, tmp_path: Path) -> None:
    found, context = run(parts, tmp_path)
    assert (found["sentences"], found["impossible"], found["candidates"]) == (5, 0, 4)
    loaded = load_system(tmp_path / "system")
    decoder = loaded.decoder
    assert isinstance(decoder, LatticeDecoder)
    narrow = replace(SEARCH, length_window=0)
    sources = [source for source in loaded.encode(LINES) if source]
    words = [len(ranked[0].ids) for ranked in decoder.decode(decoder.prepare(sources, narrow), narrow)]
    assert sum(found["tokens"].values()) == sum(words)
    assert sum(found["bigrams"].values()) == sum(words) - 5
    assert set(found["tokens"]) <= {"1", "2", "4"}
    assert set(found["bigrams"]) <= {"1", "2", "4", "8", "16"}
    found = json.loads(context.records("tables", "lattice_ranks.json").read_text())
    assert found["rows"][0][0] == "1"
    assert context.records("figures", "lattice_ranks.svg").read_text().startswith("<?xml")


def test_a_rank_counts_better_candidates(parts: system.SystemInputs, tmp_path: Path) -> None:
    """Ranks agree with the scores of the lattice, one by one."""
    loaded = load_system(make_system(parts, tmp_path / "system").path)
    decoder = loaded.decoder
    assert isinstance(decoder, LatticeDecoder)
    (source,) = loaded.encode(["zwei katze"])
    search = replace(SEARCH, length_window=0)
    (found,) = ranks(decoder, [source], search)
    ((best,),) = decoder.decode(decoder.prepare([source], search), search)
    assert found is not None
    assert (len(found.tokens), len(found.edges)) == (len(best.ids), len(best.ids) - 1)
    slots = decoder.looked_up(decoder.prepare([source]), search).slots
    assert slots is not None
    columns = slots.token_ids[0].tolist()
    assert [columns[slot][rank - 1] for slot, rank in enumerate(found.tokens)] == best.ids
    for slot, rank in enumerate(found.edges):
        scores = {
            (one, other): following(decoder, source, [*best.ids[:slot], one])[other]
            for one in columns[slot]
            for other in columns[slot + 1]
            if min(one, other) >= 0
        }
        chosen = scores[best.ids[slot], best.ids[slot + 1]]
        assert rank == 1 + sum(score > chosen + 1e-5 for score in scores.values())


def following(decoder: LatticeDecoder, source: list[int], words: list[int]) -> list[float]:
    """Return log-probabilities of the token after given ones."""
    batch = collate([0], [source], [words])
    with torch.no_grad():
        states = decoder.model.hidden(batch.target, decoder.model.encode(batch.source, batch.source_lengths), None)[0, -1]
        found: list[float] = decoder.model.logits(states).log_softmax(0).tolist()
    return found


def test_times_of_parts_are_reported_by_length(parts: system.SystemInputs, tmp_path: Path) -> None:
    _, context = run(parts, tmp_path)
    found = json.loads(context.records("latency.json").read_text())
    assert found["search"] == "viterbi-candidates4"
    for medians in found["milliseconds"].values():
        assert set(medians) == set(PARTS)
        assert min(medians.values()) > 0
    table = json.loads(context.records("tables", "latency.json").read_text())
    assert table["columns"] == ["tokens", "sentences", *PARTS, "all"]
    assert sum(int(row[1]) for row in table["rows"]) == 3
    assert not (context.directory / "latency.json").exists(), "timings are no results"


def test_classes_of_ranks_and_lengths() -> None:
    assert [class_name(_class_of(rank)) for rank in (1, 2, 3, 4, 5, 8, 9)] == [
        "1", "2", "3-4", "3-4", "5-8", "5-8", "9-16",
    ]  # fmt: skip
    assert [length_name(words) for words in (1, 8, 9, 16, 32, 33, 90)] == ["1-8", "1-8", "9-16", "9-16", "25-32", "33+", "33+"]


def test_other_families_and_empty_texts_are_refused(parts: system.SystemInputs, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a sentence to read, got none"):
        run(parts, tmp_path, ["", " "])
    network, sizes = StepwiseConfig(width=16, feed_forward=16, heads=2, encoder_layers=1, decoder_layers=1), Sizes(27, 27, True)
    save_model(
        tmp_path / "trained", "stepwise", network, sizes, family_named("stepwise").functions.build(network, sizes).state_dict()
    )
    config = system.SystemConfig(
        name="one", family="stepwise", source_language="en", target_language="de", searches={"greedy": StepwiseSearch()}
    )
    inputs = system.SystemInputs(Trained(tmp_path / "trained", "n"), parts.vocabulary)
    system.STAGE.run(inputs, config, context_in(tmp_path / "one"))
    with pytest.raises(DataError, match="expected a system of family lattice, got one of family stepwise"):
        lattices.STAGE.run(
            LatticeAnalysisInputs(System(tmp_path / "one", "o"), Text(tmp_path / "text", "x")),
            LatticeAnalysisConfig(name="one on x", timed=1),
            context_in(tmp_path / "other"),
        )


def test_lattices_of_one_slot_have_no_edges_to_rank() -> None:
    lattice = Lattice(np.zeros((2, 3)), np.zeros((2, 0, 3, 3)), np.zeros((2, 1, 3)))
    paths = Paths(np.array([[[1]], [[-1]]]), np.array([[1], [0]]), np.zeros((2, 1)))
    assert list(_ranks(lattice, paths)) == [Ranks([2], []), None]
