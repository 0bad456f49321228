"""The dag_analysis stage: its counts, its drawings, and the inputs that it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import stages.dag_analysis.run
from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.vocabulary import BOS, EOS
from models.bundle.directory import load_model, load_system, save_model, write_system
from models.bundle.likelihood import encode_pairs
from models.bundle.weights import save_weights
from models.dag.analysis import View, passing_probabilities
from models.dag.vertices import VertexTokens
from models.family import family_named
from stages.artifacts import System, Text, Trained
from stages.context import StepContext
from stages.dag_analysis import STAGE, DagAnalysisConfig, DagAnalysisInputs
from stages.dag_analysis.drawing import Drawing, Vertex, draw, drawing_of, posteriors, statistics
from stages.dag_analysis.run import cut
from stages.dag_analysis.statistics import counts_of, summary
from stages.errors import ArtifactError, DataError
from stages.shared.decoding.sentences import Sentence
from stages.vocabulary import VocabularyConfig
from stages.vocabulary.run import train_pieces
from tests.stages.steps import ShuffledWorkers, context_in, read_json, write_text

WORDS = ["ein", "zwei", "drei", "blau", "grün", "hund", "katze", "läuft", "springt", "schnell"]
PAIRS = [
    ("ein hund läuft", "zwei katze"), ("katze", "hund"), ("", "hund"),
    ("zwei blau <hund> & katze springt", "ein grün hund läuft"), ("hund " * 50, "katze"), ("drei", "ein " * 20),
    ("grün katze", "schnell"),
]  # fmt: skip
"""Pairs with an empty side, a source that is too long, and a target that is longer than its graph."""
NETWORK = DagConfig(width=16, feed_forward=16, heads=2, encoder_layers=1, decoder_layers=1, max_positions=40, graph_factor=2.0)
SIZES = Sizes(37, 37, True)


def make_system(root: Path, family: str = "dag") -> System:
    draw = random.Random(1)
    (root / "pieces").write_bytes(train_pieces((" ".join(draw.choices(WORDS, k=6)) for _ in range(200)), VocabularyConfig(size=37)))
    network: Any = NETWORK if family == "dag" else StepwiseConfig(width=16, feed_forward=16, heads=2, encoder_layers=1)
    trained, early = (weights_of(family, network, seed) for seed in (0, 1))
    (root / "trained" / "kept").mkdir(parents=True)
    save_weights(root / "trained" / "kept" / "50.safetensors", early)
    save_model(root / "trained", family, network, SIZES, trained, ["kept/50.safetensors"])
    (root / "trained" / "training.json").write_text(json.dumps({"validations": [{"update": 50}, {"update": 100}]}))
    return bundle(root, "system", root / "trained" / "model.safetensors", family, network)


def weights_of(family: str, network: Any, seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return family_named(family).functions.build(network, SIZES).state_dict()


def bundle(root: Path, name: str, weights: Path, family: str = "dag", network: Any = NETWORK) -> System:
    write_system(
        root / name, family=family, network=network, sizes=SIZES, weights=weights, source_vocabulary=root / "pieces",
        target_vocabulary=root / "pieces", name="graph", source_language="en", target_language="de",
        searches={"default": DagSearch() if family == "dag" else StepwiseSearch()},
    )  # fmt: skip
    return System(root / name, "s")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("graphs")
    make_system(root)
    write_text(root / "text", PAIRS)
    return root


def run(root: Path, directory: Path, *, early: bool = False, **changes: Any) -> tuple[dict[str, Any], StepContext]:
    context = context_in(directory, **changes)
    trained = Trained(root / "trained", "t") if early else None
    STAGE.run(
        DagAnalysisInputs(System(root / "system", "s"), Text(root / "text", "x"), trained), DagAnalysisConfig(sentences=2), context
    )
    return read_json(directory / "dag_analysis.json"), context


def test_counts_agree_with_the_network(root: Path, tmp_path: Path) -> None:
    found, _ = run(root, tmp_path / "a")
    assert found["left_out"] == {"empty": 1, "over_long": 1}
    assert (found["sentences"], found["impossible"], found["aligned"]) == (5, 1, 4)
    system = load_system(root / "system")
    pairs = encode_pairs(system, *zip(*(PAIRS[row] for row in (0, 1, 3, 6)), strict=True))
    assert found["tokens"] == sum(len(target) for _, target in pairs)
    sizes = [2 * (len(source) + 2) for source, _ in [*pairs, *encode_pairs(system, ["drei"], ["ein"])]]
    assert found["vertices"] == sum(sizes) - 2 * 5
    assert sum(map(sum, found["joint"])) == found["vertices"]
    assert 1 <= found["spread"] <= max(sizes)
    assert "early" not in found


def test_the_network_of_the_first_validation_is_analysed_as_well(root: Path, tmp_path: Path) -> None:
    plain, _ = run(root, tmp_path / "a")
    found, context = run(root, tmp_path / "b", early=True)
    early = found.pop("early")
    assert found == plain
    assert early.pop("update") == 50
    other = bundle(root, "other", root / "trained/kept/50.safetensors")
    alone = context_in(tmp_path / "c")
    STAGE.run(DagAnalysisInputs(other, Text(root / "text", "x")), DagAnalysisConfig(sentences=0), alone)
    expected = read_json(alone.directory / "dag_analysis.json")
    del expected["left_out"]
    assert early == expected
    assert early["spread"] != found["spread"]
    svg = context.records("figures", "01-posteriors.svg").read_text()
    assert "After 50 updates" in svg
    assert "At the end of training" in svg


def test_pieces_may_finish_in_any_order(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.dag_analysis.run, "PIECE_ROWS", 2)
    one, first = run(root, tmp_path / "a")
    other, second = run(root, tmp_path / "b", workers=ShuffledWorkers())
    assert one == other
    names = sorted(path.name for path in first.records("figures", "x").parent.glob("*"))
    assert names == sorted(path.name for path in second.records("figures", "x").parent.glob("*"))
    assert [name for name in names if name.endswith(".svg")] == [
        "01-dag.svg", "01-posteriors.svg", "02-dag.svg", "statistics.svg",
    ], "the second sentence's target has no path"  # fmt: skip
    for name in names:
        assert first.records("figures", name).read_bytes() == second.records("figures", name).read_bytes()
    caption = json.loads(first.records("figures", "01-dag.json").read_text())["caption"]
    assert "“katze”" in caption


def test_rows_are_evenly_spaced_and_the_shorter_half_of_them_is_drawn_from() -> None:
    sentences = [Sentence(row, "w " * (row % 7), ("t",)) for row in range(40)]
    (piece,) = cut(sentences, DagAnalysisConfig(sentences=3, rows=8))
    assert [sentence.id for sentence in piece.sentences] == [0, 5, 10, 15, 20, 25, 30, 35]
    drawn = {number: piece.sentences[place].id for place, number in piece.drawn.items()}
    assert drawn == {1: 10, 2: 15, 3: 30}, "of 0 5 3 1 6 4 2 0 words, blank ones never"
    (piece,) = cut(sentences, DagAnalysisConfig(sentences=0))
    assert (len(piece.sentences), piece.drawn) == (40, {})


def test_other_families_and_missing_weights_are_refused(root: Path, tmp_path: Path) -> None:
    text = Text(root / "text", "x")
    with pytest.raises(DataError, match="expected a system of family dag, got graph of family stepwise"):
        STAGE.run(
            DagAnalysisInputs(make_system(tmp_path, "stepwise"), text), DagAnalysisConfig(sentences=1), context_in(tmp_path / "a")
        )
    save_model(tmp_path / "bare", "dag", NETWORK, SIZES, load_model(root / "trained").state_dict())
    (tmp_path / "bare" / "training.json").write_text((root / "trained" / "training.json").read_text())
    inputs = DagAnalysisInputs(System(root / "system", "s"), text, Trained(tmp_path / "bare", "t"))
    with pytest.raises(ArtifactError, match=r"kept/50.safetensors: the file is missing.*train with keep_first"):
        STAGE.run(inputs, DagAnalysisConfig(sentences=1), context_in(tmp_path / "b"))
    empty = tmp_path / "empty"
    write_text(empty, [("hund", "")])
    with pytest.raises(DataError, match=r"expected pairs that the network can take, got none \(\{'empty': 1\}\)"):
        STAGE.run(
            DagAnalysisInputs(System(root / "system", "s"), Text(empty, "e")),
            DagAnalysisConfig(sentences=1),
            context_in(tmp_path / "c"),
        )


def view_of(transitions: list[list[float]], words: list[list[tuple[int, float]]], **more: Any) -> View:
    edges = torch.tensor(transitions, dtype=torch.float64)
    scores = torch.tensor([[score for _, score in pairs] for pairs in words], dtype=torch.float64)
    ids = torch.tensor([[token for token, _ in pairs] for pairs in words])
    target = torch.tensor([BOS, 10, 11, EOS])
    given = {
        "target": target,
        "path": torch.tensor([0, 1, 3, len(edges) - 1]),
        "first": ids[:, 0],
        "posteriors": torch.zeros(4, len(edges), dtype=torch.float64),
    }
    return View(
        **{**given, **more}, top_tokens=VertexTokens(scores, ids), transitions=edges, passing=passing_probabilities(edges[None])[0]
    )


TRANSITIONS = [
    [0, 0.7, 0.15, 0.05, 0.1, 0], [0, 0, 0, 0.42, 0.42, 0.16], [0, 0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0],
]  # fmt: skip
"""Passing probabilities 1, 0.7, 0.15, 0.419, 0.469, 1."""
VERTICES = [
    [(BOS, 1.0), (9, 0.0)], [(10, 0.55), (12, 0.2)], [(12, 0.15), (13, 0.04)], [(14, 0.9), (15, 0.02)], [(14, 0.3), (15, 0.3)],
    [(EOS, 1.0), (9, 0.0)],
]  # fmt: skip


def test_vertices_are_in_the_categories_of_the_paper() -> None:
    found = summary(counts_of(view_of(TRANSITIONS, VERTICES)))
    assert found["vertices"] == 4
    assert (found["likely"], found["confident"], found["vague"]) == (1, 1, 1), "vertices 1, 3 and 2; 4 is none of these"
    cells = {(row, column) for row in range(10) for column in range(10) if found["joint"][row][column]}
    assert cells == {(7, 5), (1, 1), (4, 9), (4, 3)}


def test_out_degrees_count_the_tokens_of_the_most_probable_transitions() -> None:
    """Vertex 0 goes to 10 and 12 (0.85 in two); 1 to 14 alone, though by two vertices (0.84); 2 is passed too rarely."""
    found = summary(counts_of(view_of(TRANSITIONS, VERTICES)))
    assert found["out_degrees"] == {"1": 3, "2": 1}


def test_accuracy_is_of_the_best_path_with_the_ends_apart() -> None:
    posteriors_ = torch.zeros(4, 6, dtype=torch.float64)
    posteriors_[1, 1] = 1.0
    posteriors_[2, :4] = 0.25
    found = summary(counts_of(view_of(TRANSITIONS, VERTICES, posteriors=posteriors_)))
    assert (found["tokens"], found["correct"], found["correct_ends"]) == (2, 1, 2), "vertex 3 says 14, not 11"
    assert found["spread"] == pytest.approx((1 + 4) / 2)
    lost = summary(counts_of(view_of(TRANSITIONS, VERTICES, path=torch.tensor([-1] * 4))))
    assert (lost["sentences"], lost["impossible"], lost["tokens"], lost["spread"]) == (1, 1, 0, None)
    assert lost["vertices"] == 4


def elements(svg: str, kind: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g") if e.get("class") == kind]


def test_a_drawing_shows_likely_vertices_and_their_transitions() -> None:
    drawing = drawing_of(view_of(TRANSITIONS, VERTICES), lambda token: f"<{token}> & co")
    assert [vertex.number for vertex in drawing.vertices] == [0, 1, 2, 3, 4, 5]
    assert [(i, j) for i, j, _ in drawing.transitions] == [
        (0, 1), (0, 2), (0, 4), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (3, 5), (4, 5),
    ]  # fmt: skip
    assert drawing.vertices[1].tokens == [("<10> & co", 0.55), ("<12> & co", 0.2)]
    assert drawing.vertices[2].tokens == [("<12> & co", 0.15)]
    svg = draw(drawing)
    assert svg == draw(drawing)
    vertices = elements(svg, "vertex")
    assert [vertex.get("id") for vertex in vertices] == [f"vertex-{number}" for number in range(6)]
    assert [text.text for text in vertices[1][1:]] == ["1 · 0.70", "<10> & co 0.55", "<12> & co 0.20"]
    assert [transition[1].text for transition in elements(svg, "transition")] == [f"{p:.2f}" for _, _, p in drawing.transitions]


def test_unlikely_vertices_are_hidden() -> None:
    rare = [[0, 0.92, 0.08, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    drawing = drawing_of(view_of(rare, [[(9, 0.5), (8, 0.1)]] * 4), str)
    assert [vertex.number for vertex in drawing.vertices] == [0, 1, 3]
    assert [(i, j) for i, j, _ in drawing.transitions] == [(0, 1), (1, 3)]


def test_vertices_of_a_drawing_do_not_overlap_and_are_in_order() -> None:
    draw_ = random.Random(3)
    vertices = [Vertex(number, draw_.random(), [("w" * draw_.randint(1, 12), 0.5)] * draw_.randint(1, 3)) for number in range(14)]
    transitions = [(i, j, 0.2) for i in range(14) for j in range(i + 1, min(14, i + 5)) if j == i + 1 or draw_.random() < 0.5]
    svg = draw(Drawing(vertices, transitions))
    root = ElementTree.fromstring(svg)
    left, top, width, height = (float(value) for value in root.attrib["viewBox"].split())
    boxes = [tuple(float(v[0].attrib[key]) for key in ("x", "y", "width", "height")) for v in elements(svg, "vertex")]
    for index, (x, y, w, h) in enumerate(boxes):
        assert left <= x
        assert x + w <= left + width
        assert top <= y
        assert y + h <= top + height
        for other_x, other_y, other_w, other_h in boxes[index + 1 :]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y
    for i, j, _ in transitions:
        assert boxes[i][0] + boxes[i][2] < boxes[j][0]


def test_figures_are_drawn_and_name_the_tokens() -> None:
    svg = posteriors(["<s>", "▁$5", "</s>"], {"At the end": [[1, 0, 0, 0], [0, 0.25, 0.75, 0], [0, 0, 0, 1]]})
    texts = {"".join(e.itertext()).strip() for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"<s>", "▁$5", "</s>", "At the end"} <= texts
    joint = [[0] * 10 for _ in range(10)]
    joint[9][9] = 5
    ElementTree.fromstring(statistics(joint, {"1": 3, "2": 1}))
    ElementTree.fromstring(statistics([[0] * 10 for _ in range(10)], {}))
