"""Run the contrastive stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from stages.artifacts import System
from stages.context import StepContext, WorkerContext
from stages.contrastive import ContrastiveConfig, ContrastiveInputs
from stages.contrastive.sentences import (
    DISTANCES,
    ContrastiveSentence,
    embedded_distances,
    embedded_sentences,
    read_contrasts,
)
from stages.contrastive.summary import Pair, summarise
from stages.errors import DataError
from stages.shared.decoding.systems import load_for_worker
from stages.shared.scoring.pairs import score_pairs
from stages.shared.shards import shard_path, write_shard

PIECE_SENTENCES = 64
"""Sentences that a worker scores at a time, each with its translation and those with errors."""


def run(inputs: ContrastiveInputs, config: ContrastiveConfig, context: StepContext) -> None:
    """Write the log-probabilities of both translations of each pair, and `contrastive.json` with the accuracy.

    Raises DataError when the system can score no pair, and for a file of pairs in another form.
    """
    if inputs.pairs is None:
        sentences, distances = (
            embedded_sentences(config.target_language, config.pairs),
            embedded_distances(config.target_language),
        )
    else:
        sentences, distances = read_contrasts(inputs.pairs.path), DISTANCES
    pairs = _scored(inputs.system, sentences, context)
    write_shard(shard_path(context.directory, 0), _table(sentences, pairs), context)
    summary = summarise(pairs, distances)
    if not summary["pairs"]:
        raise DataError(
            f"contrastive: expected pairs that the system can score, got none of {len(pairs)}; increase max_positions of its "
            "network"
        )
    context.metrics(0, {"contrastive_accuracy": summary["correct"] / summary["pairs"]})
    context.write_json(context.directory / "contrastive.json", summary)


def _scored(system: System, sentences: Sequence[ContrastiveSentence], context: StepContext) -> list[Pair]:
    pieces = [sentences[start : start + PIECE_SENTENCES] for start in range(0, len(sentences), PIECE_SENTENCES)]
    scored: dict[int, list[Pair]] = {}
    total = sum(len(sentence.errors) for sentence in sentences)
    context.progress(0, total, "pairs")
    for index, found in context.workers.map(make_scorer, (system, context.for_workers()), pieces):
        scored[index] = found
        context.progress(sum(map(len, scored.values())), total, "pairs")
    return [pair for index in range(len(pieces)) for pair in scored[index]]


def make_scorer(argument: tuple[System, WorkerContext]) -> Callable[[Sequence[ContrastiveSentence]], list[Pair]]:
    """Load the system, and return a function that scores the right and the wrong translations of sentences.

    A right translation is scored once for all of its errors. Pairs are in the order of the sentences and of their errors.
    """
    system = load_for_worker(*argument)

    def score(sentences: Sequence[ContrastiveSentence]) -> list[Pair]:
        rights = [sentence.right for sentence in sentences]
        wrongs = [(sentence.source, error.wrong) for sentence in sentences for error in sentence.errors]
        sources = [sentence.source for sentence in sentences] + [source for source, _ in wrongs]
        found = score_pairs(system, sources, rights + [wrong for _, wrong in wrongs])
        others = iter(found[len(rights) :])
        return [
            Pair(error, right, next(others)) for sentence, right in zip(sentences, found, strict=False) for error in sentence.errors
        ]

    return score


def _table(sentences: Sequence[ContrastiveSentence], pairs: Sequence[Pair]) -> pa.Table:
    texts = [(sentence.source, sentence.right) for sentence in sentences for _ in sentence.errors]
    columns = {
        "source": pa.array([source for source, _ in texts], pa.string()),
        "right": pa.array([right for _, right in texts], pa.string()),
        "wrong": pa.array([pair.error.wrong for pair in pairs], pa.string()),
        "type": pa.array([pair.error.type for pair in pairs], pa.string()),
        "distance": pa.array([pair.error.distance for pair in pairs], pa.int32()),
        "frequency": pa.array([pair.error.frequency for pair in pairs], pa.int64()),
    }
    for name in ("right", "wrong"):
        scores = [getattr(pair, name) for pair in pairs]
        columns[f"{name}_log_probability"] = pa.array([score.log_probability for score in scores], pa.float64())
        columns[f"{name}_tokens"] = pa.array([score.tokens for score in scores], pa.int32())
    return pa.table(columns)
