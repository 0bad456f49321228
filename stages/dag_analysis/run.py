"""Run the dag_analysis stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import fewstep
from fewstep.decoding import batches
from fewstep.system.format import BundleError
from models.bundle.directory import load_model
from models.bundle.likelihood import encode_pairs
from models.dag.analysis import View, inspect
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.training.batch import collate
from stages.artifacts import System, Trained
from stages.context import Context, StepContext, WorkerContext
from stages.dag_analysis import DagAnalysisConfig, DagAnalysisInputs
from stages.dag_analysis.drawing import draw, drawing_of, posteriors, statistics
from stages.dag_analysis.statistics import Counts, counts_of, summary
from stages.errors import ArtifactError, DataError
from stages.shared.decoding.sentences import Sentence, read_sentences
from stages.shared.decoding.systems import load_for_worker
from stages.shared.scoring.pairs import left_out
from stages.shared.statistics import evenly_spaced

PIECE_ROWS = 64
"""Pairs that a worker analyses at a time."""

BATCH_TOKENS = 1000
"""Padded source tokens in a batch, EOS included."""

TOP_TOKENS = 3
"""Number of tokens of a vertex that a drawing may show."""

CAPTION = 200
"""Largest number of characters of a sentence in a caption."""


@dataclass(frozen=True)
class Drawn:
    """A figure with its caption."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Found:
    """Counts and drawings of some pairs."""

    late: Counts
    """Counts for the trained network."""
    early: Counts
    """Counts for the network of the first validation."""
    drawn: list[Drawn]


@dataclass(frozen=True)
class Piece:
    """Some pairs of a text."""

    sentences: tuple[Sentence, ...]
    drawn: dict[int, int]
    """Number of each drawing, by the index of its sentence in `sentences`."""


def run(inputs: DagAnalysisInputs, config: DagAnalysisConfig, context: StepContext) -> None:
    """Write `dag_analysis.json` and figures: the DAG and the posteriors of each chosen sentence, and the statistics.

    Pairs with an empty side, or a side that is too long for the network, are left out and counted. Raises DataError when all pairs
    are left out and when the system is of another family.
    """
    pieces = list(cut(read_sentences(inputs.text.path), config))
    update = _first_update(inputs.trained)
    found: dict[int, Found] = {}
    total = sum(len(piece.sentences) for piece in pieces)
    context.progress(0, total, "sentences")
    argument = inputs.system, inputs.trained, update, context.for_workers()
    for index, part in context.workers.map(make_inspector, argument, pieces):
        found[index] = part
        context.progress(sum(len(pieces[done].sentences) for done in found), total, "sentences")
    write([found[index] for index in range(len(pieces))], update, context)


def _first_update(trained: Trained | None) -> int | None:
    if trained is None:
        return None
    validations = json.loads((trained.path / "training.json").read_text(encoding="utf-8"))["validations"]
    return int(validations[0]["update"])


def cut(sentences: Sequence[Sentence], config: DagAnalysisConfig) -> Iterator[Piece]:
    """Yield the analysed pairs in pieces; drawn sentences are among them."""
    rows = evenly_spaced(len(sentences), config.rows)
    lengths = {row: len(sentences[row].source.split()) for row in rows}
    by_length = sorted((row for row in rows if lengths[row]), key=lambda row: (lengths[row], row))
    shorter = sorted(by_length[: (len(by_length) + 1) // 2])
    drawn = [shorter[index] for index in evenly_spaced(len(shorter), config.sentences)]
    numbers = {row: number for number, row in enumerate(drawn, 1)}
    for start in range(0, len(rows), PIECE_ROWS):
        part = rows[start : start + PIECE_ROWS]
        drawings = {index: numbers[row] for index, row in enumerate(part) if row in numbers}
        yield Piece(tuple(sentences[row] for row in part), drawings)


def make_inspector(argument: tuple[System, Trained | None, int | None, WorkerContext]) -> Callable[[Piece], Found]:
    """Load the networks, and return a function that analyses a piece.

    Raises DataError for a system of another family, ArtifactError when the weights of the first validation are missing.
    """
    artifact, trained, update, context = argument
    system = load_for_worker(artifact, context)
    if not isinstance(system.decoder, DagDecoder):
        raise DataError(
            f"dag_analysis: expected a system of family dag, got {system.name} of family {system.family}; "
            "correct evaluation.dag_analysis"
        )
    network = system.decoder.model
    first = None if trained is None else _first(trained, f"kept/{update}.safetensors", str(next(network.parameters()).device))

    def inspect_piece(piece: Piece) -> Found:
        return analyse(piece, system, network, first, update)

    return inspect_piece


def _first(trained: Trained, weights: str, device: str) -> Any:
    try:
        return load_model(trained.path, device, weights)
    except BundleError as error:
        raise ArtifactError(f"{error}; train with keep_first, or remove the artifact and run again") from error


def analyse(piece: Piece, system: fewstep.System, network: DagModel, first: DagModel | None, update: int | None) -> Found:
    """Return the counts and drawings of a piece. `first` is the network after `update`, if it is analysed as well."""
    late, early = _empty(), _empty()
    drawn: list[Drawn] = []
    pairs = encode_pairs(system, [s.source for s in piece.sentences], [s.references[0] for s in piece.sentences])
    reasons = [left_out(system, len(source), len(target)) for source, target in pairs]
    for reason in filter(None, reasons):
        late[reason] += 1
    rows = [row for row, reason in enumerate(reasons) if reason is None]
    views = _views(network, [pairs[row] for row in rows])
    first_views = [None] * len(rows) if first is None else _views(first, [pairs[row] for row in rows])
    for row, view, before in zip(rows, views, first_views, strict=True):
        late.update(counts_of(view))
        if before is not None:
            early.update(counts_of(before))
        if row in piece.drawn:
            drawn += _draw(piece.drawn[row], piece.sentences[row], system, view, before, update)
    return Found(late, early, drawn)


def _empty() -> Counts:
    return Counter()


def _views(network: DagModel, pairs: Sequence[tuple[list[int], list[int]]]) -> list[View]:
    """The views of all pairs, in their order."""
    found: dict[int, View] = {}
    for batch in batches([len(source) for source, _ in pairs], BATCH_TOKENS):
        collated = collate(batch, [pairs[row][0] for row in batch], [pairs[row][1] for row in batch])
        found |= dict(zip(batch, inspect(network, collated, TOP_TOKENS), strict=True))
    return [found[row] for row in range(len(pairs))]


def _draw(
    number: int, sentence: Sentence, system: fewstep.System, view: View, before: View | None, update: int | None
) -> Iterator[Drawn]:
    def piece(token: int) -> str:
        return str(system.target_pieces.id_to_piece(token))

    source, target = (shorten(text, CAPTION, placeholder=" …") for text in (sentence.source, sentence.references[0]))
    caption = (
        f"The DAG of “{source}”: the most probable transitions (90 % of the mass) between vertices with a passing probability of "
        "at least 0.1. A vertex shows its number and its passing probability, and below its best tokens with their probabilities."
    )
    yield Drawn(f"{number:02}-dag", draw(drawing_of(view, piece)), caption)
    if int(view.path[0]) < 0:
        return
    panels = {} if before is None or int(before.path[0]) < 0 else {f"After {update:,} updates": before.posteriors.tolist()}
    panels["At the end of training"] = view.posteriors.tolist()
    tokens = [piece(token) for token in view.target.tolist()]
    caption = (
        f"Posterior over the vertices of the DAG of “{source}” for each token of “{target}” (a line each): the probability that a "
        "path for this target emits the token at the vertex."
    )
    yield Drawn(f"{number:02}-posteriors", posteriors(tokens, panels), caption)


def write(found: Sequence[Found], update: int | None, context: Context) -> None:
    """Write `dag_analysis.json` and the figures. Raises DataError when all pairs are left out."""
    late, early = _empty(), _empty()
    for part in found:
        late.update(part.late)
        early.update(part.early)
    reasons = {reason: late[reason] for reason in ("empty", "over_long") if late[reason]}
    if not late["sentences"]:
        raise DataError(
            f"dag_analysis: expected pairs that the network can take, got none ({reasons}); check the lengths of the text"
        )
    whole = summary(late)
    result: dict[str, Any] = {**whole, "left_out": reasons}
    if update is not None:
        result["early"] = {**summary(early), "update": update}
    caption = (
        "Left: inner vertices by passing probability and by the probability of their best token (area: number of vertices). Right: "
        "vertices with a passing probability of at least 0.2, by the number of their most probable transitions (80 % of the mass); "
        "transitions to vertices with the same best token count once."
    )
    drawn = [figure for part in found for figure in part.drawn]
    for figure in [Drawn("statistics", statistics(whole["joint"], whole["out_degrees"]), caption), *drawn]:
        context.write_text(context.records("figures", f"{figure.name}.svg"), figure.svg)
        context.write_json(context.records("figures", f"{figure.name}.json"), {"caption": figure.caption})
    if whole["tokens"]:
        context.metrics(0, {"token_accuracy": whole["correct"] / whole["tokens"]})
    context.write_json(context.directory / "dag_analysis.json", result)
