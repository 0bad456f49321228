"""Run the dag_analysis stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import models.bundle.system
from fewstep.system.format import BundleError
from models.bundle.directory import load_model
from models.dag.analysis import View, inspect
from models.dag.decode import DagDecoder
from models.dag.model import DagModel
from models.training.batch import collate
from stages.artifacts import System, Trained
from stages.benchmark.timing import evenly_spaced
from stages.context import Context, StepContext, WorkerContext
from stages.dag_analysis import DagAnalysisConfig, DagAnalysisInputs
from stages.dag_analysis.statistics import Counts, counts_of, summary
from stages.decoding.batching import batches
from stages.decoding.sentences import Sentence, read_sentences
from stages.errors import ArtifactError, DataError
from stages.likelihood.pairs import left_out, loaded
from stages.report.dag_drawing import draw, drawing_of
from stages.report.dag_figures import posteriors, statistics

PIECE_ROWS = 64
"""Pairs looked at a time."""


BATCH_TOKENS = 1000
"""Padded source tokens in a batch, EOS included."""


WORDS = 3
"""Tokens of each vertex that a drawing shows."""


CAPTION = 200
"""Characters of a sentence that a caption repeats."""


@dataclass(frozen=True)
class Drawn:
    """A figure with its words."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Found:
    """What some pairs add: to the counts of the network, to those of the early one, and drawings."""

    late: Counts
    early: Counts
    drawn: list[Drawn]


@dataclass(frozen=True)
class Piece:
    """Some pairs of a text; `drawn` are the places of those among them that are drawn, with their numbers."""

    sentences: tuple[Sentence, ...]
    drawn: dict[int, int]


def run(inputs: DagAnalysisInputs, config: DagAnalysisConfig, context: StepContext) -> None:
    """Write `dag_analysis.json` and drawings: for each chosen sentence its graph and the place of its target in it, and the
    statistics.

    Pairs with an empty side or one too long for the network are left out and counted. Raises DataError when none is left or the
    system has no graphs.
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
    """The pairs that are looked at, some at a time; those that are drawn are among them."""
    rows = evenly_spaced(len(sentences), config.rows)
    lengths = {row: len(sentences[row].source.split()) for row in rows}
    by_length = sorted((row for row in rows if lengths[row]), key=lambda row: (lengths[row], row))
    shorter = sorted(by_length[: (len(by_length) + 1) // 2])
    drawn = [shorter[place] for place in evenly_spaced(len(shorter), config.sentences)]
    numbers = {row: number for number, row in enumerate(drawn, 1)}
    for start in range(0, len(rows), PIECE_ROWS):
        part = rows[start : start + PIECE_ROWS]
        places = {place: numbers[row] for place, row in enumerate(part) if row in numbers}
        yield Piece(tuple(sentences[row] for row in part), places)


def make_inspector(argument: tuple[System, Trained | None, int | None, WorkerContext]) -> Callable[[Piece], Found]:
    """One worker: loads the networks once, then looks at pieces. Raises DataError for a system of another family, ArtifactError
    when the weights of the first validation are not there."""
    artifact, trained, update, context = argument
    system = loaded(artifact, context)
    if not isinstance(system.decoder, DagDecoder):
        raise DataError(f"dag_analysis: expected a system of family dag, got {system.name} of family {system.family}")
    network = system.decoder.model
    first = None if trained is None else _first(trained, f"kept/{update}.safetensors", str(next(network.parameters()).device))

    def inspect(piece: Piece) -> Found:
        return look(piece, system, network, first, update)

    return inspect


def _first(trained: Trained, weights: str, device: str) -> Any:

    try:
        return load_model(trained.path, device, weights)
    except BundleError as error:
        raise ArtifactError(f"{error}; train with keep_first, or remove the artifact and run again") from error


def look(piece: Piece, system: models.bundle.system.System, network: DagModel, first: DagModel | None, update: int | None) -> Found:
    """What one piece adds. `first` is the network after `update`, where it is looked at, too."""
    late, early = _empty(), _empty()
    drawn: list[Drawn] = []
    pairs = system.encode_pairs([s.source for s in piece.sentences], [s.references[0] for s in piece.sentences])
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
    """In the order of the pairs, which are batched by length."""
    found: dict[int, View] = {}
    for batch in batches([len(source) for source, _ in pairs], BATCH_TOKENS):
        collated = collate(batch, [pairs[row][0] for row in batch], [pairs[row][1] for row in batch])
        found |= dict(zip(batch, inspect(network, collated, WORDS), strict=True))
    return [found[row] for row in range(len(pairs))]


def _draw(
    number: int, sentence: Sentence, system: models.bundle.system.System, view: View, before: View | None, update: int | None
) -> Iterator[Drawn]:

    def piece(token: int) -> str:
        return str(system.target_pieces.id_to_piece(token))

    source, target = (shorten(text, CAPTION, placeholder=" …") for text in (sentence.source, sentence.references[0]))
    caption = (
        f"The graph of “{source}”: transitions in the top 90 %, without vertices of a passing probability below 0.1. "
        "The number above a vertex is its place in the graph, the one beside it its passing probability; below stand its best "
        "tokens with their probabilities."
    )
    yield Drawn(f"{number:02}-graph", draw(drawing_of(view, piece)), caption)
    if int(view.path[0]) < 0:
        return
    panels = {} if before is None or int(before.path[0]) < 0 else {f"After {update:,} updates": before.posteriors.tolist()}
    panels["At the end of training"] = view.posteriors.tolist()
    tokens = [piece(token) for token in view.target.tolist()]
    caption = (
        f"Where the tokens of “{target}” stand in the graph of “{source}”, given both: the share of the "
        "paths that write a token (a line each) at a vertex."
    )
    yield Drawn(f"{number:02}-posteriors", posteriors(tokens, panels), caption)


def write(found: Sequence[Found], update: int | None, context: Context) -> None:
    """`dag_analysis.json` and the figures. Raises DataError when no pair could be looked at."""
    late, early = _empty(), _empty()
    for part in found:
        late.update(part.late)
        early.update(part.early)
    reasons = {reason: late[reason] for reason in ("empty", "over_long") if late[reason]}
    if not late["sentences"]:
        raise DataError(f"dag_analysis: expected pairs that the network can take, got none ({reasons})")
    told = summary(late)
    result: dict[str, Any] = {**told, "left_out": reasons}
    if update is not None:
        result["early"] = {**summary(early), "update": update}
    caption = (
        "Left: the vertices between both ends by passing probability and by the probability of their best token (area: how many). "
        "Right: vertices by the transitions that make up 80 % of what leaves them, those to one token counted once, where the "
        "passing probability is at least 0.2."
    )
    drawn = [figure for part in found for figure in part.drawn]
    for figure in [Drawn("statistics", statistics(told["joint"], told["out_degrees"]), caption), *drawn]:
        context.write_text(context.records("figures", f"{figure.name}.svg"), figure.svg)
        context.write_json(context.records("figures", f"{figure.name}.json"), {"caption": figure.caption})
    if told["tokens"]:
        context.metrics(0, {"token_accuracy": told["correct"] / told["tokens"]})
    context.write_json(context.directory / "dag_analysis.json", result)
