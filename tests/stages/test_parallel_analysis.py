"""The parallel_analysis stage: counts of its pieces, pairs that are left out, systems of other families."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import stages.parallel_analysis.run
from fewstep.config.network import Sizes
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from models.bundle.directory import load_system, write_system
from models.bundle.likelihood import encode_pairs
from models.bundle.weights import save_weights
from models.family import family_named
from models.parallel.analysis import Assigned
from stages.artifacts import System, Text
from stages.errors import DataError
from stages.parallel_analysis import STAGE, ParallelAnalysisConfig, ParallelAnalysisInputs
from stages.parallel_analysis.run import CANDIDATES, counts_of, summary
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces
from tests.stages.steps import ShuffledWorkers, context_in, write_text
from tests.stages.test_dag_analysis import PAIRS, WORDS
from tests.stages.test_dag_analysis import make_system as make_dag

SIZES = Sizes(37, 37, True)


def make_system(root: Path, objective: str) -> System:
    draw = random.Random(1)
    root.mkdir(parents=True, exist_ok=True)
    (root / "pieces").write_bytes(train_pieces((" ".join(draw.choices(WORDS, k=6)) for _ in range(200)), VocabularyConfig(size=37)))
    options: dict[str, Any] = {
        "objective": objective, "width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1,
        "max_positions": 40,
    }  # fmt: skip
    network = ParallelConfig(**options)
    torch.manual_seed(0)
    save_weights(root / "model.safetensors", family_named("parallel").functions.build(network, SIZES).state_dict())
    write_system(
        root / "system", family="parallel", network=network, sizes=SIZES, weights=root / "model.safetensors",
        source_vocabulary=root / "pieces", target_vocabulary=root / "pieces", name="slots", source_language="en",
        target_language="de", searches={"greedy": ParallelSearch()},
    )  # fmt: skip
    return System(root / "system", objective)


@pytest.mark.parametrize("objective", ["nat", "ctc"])
def test_counts_are_those_of_all_pairs_in_any_order(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, text = make_system(tmp_path, objective), write_text(tmp_path / "text", PAIRS)
    inputs = ParallelAnalysisInputs(system, text)
    STAGE.run(inputs, ParallelAnalysisConfig(), context_in(tmp_path / "straight"))
    found = json.loads((tmp_path / "straight" / "parallel_analysis.json").read_text())
    assert found["left_out"] == {"empty": 1, "over_long": 1}
    assert found["sentences"] == len(PAIRS) - 2
    loaded = load_system(system.path)
    lengths = [len(target) for source, target in encode_pairs(loaded, *map(list, zip(*PAIRS, strict=True)))]
    analysed = [length for (source, _), length in zip(PAIRS, lengths, strict=True) if source and len(source) < 200]
    assert found["impossible"] == (1 if objective == "ctc" else 0), "one source is shorter than its target"
    assert found["tokens"] == sum(analysed) - (max(analysed) if objective == "ctc" else 0)
    assert 0 <= found["correct"] <= found["tokens"]
    assert found["recall"] == sorted(found["recall"])
    assert found["recall"][-1] == 1, "37 tokens are fewer than 512"
    assert ("recall_predicted_length" in found) == (objective == "nat")

    monkeypatch.setattr(stages.parallel_analysis.run, "PIECE_ROWS", 2)
    STAGE.run(inputs, ParallelAnalysisConfig(), context_in(tmp_path / "pieces-of-2", workers=ShuffledWorkers()))
    assert json.loads((tmp_path / "pieces-of-2" / "parallel_analysis.json").read_text()) == found


def test_counts_by_hand() -> None:
    ranks = torch.tensor([0, 1, 5])
    one = Assigned(torch.tensor([1.0, 0.5, 0.0]), ranks, torch.tensor([0, 40, 40]), torch.log(torch.tensor([4.0, 1.0])))
    total = counts_of(one)
    total.update(counts_of(None))
    found = summary(total)
    assert (found["sentences"], found["impossible"], found["tokens"], found["correct"]) == (2, 1, 3, 1.5)
    assert found["choices"] == pytest.approx(2.0), "exp of the mean entropy"
    recall = dict(zip(CANDIDATES, found["recall"], strict=True))
    assert [recall[size] for size in (1, 2, 4, 8)] == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1], abs=1e-6)
    assert found["recall_predicted_length"][:6] == pytest.approx([1 / 3] * 6, abs=1e-6)


def test_other_families_and_texts_without_pairs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "graph").mkdir()
    system = make_dag(tmp_path / "graph")
    with pytest.raises(DataError, match="expected a system of family parallel, got graph of family dag"):
        STAGE.run(
            ParallelAnalysisInputs(system, write_text(tmp_path / "text", PAIRS)),
            ParallelAnalysisConfig(),
            context_in(tmp_path / "out"),
        )
    write_text(tmp_path / "empty", [("", "hund")])
    inputs = ParallelAnalysisInputs(make_system(tmp_path / "slots", "nat"), Text(tmp_path / "empty", "e"))
    with pytest.raises(DataError, match="expected pairs that the network can take, got none"):
        STAGE.run(inputs, ParallelAnalysisConfig(), context_in(tmp_path / "none"))
