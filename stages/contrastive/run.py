"""Run the contrastive stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from stages.artifacts import System
from stages.context import StepContext, WorkerContext
from stages.contrastive import ContrastiveConfig, ContrastiveInputs
from stages.contrastive.sentences import (
    AGREEMENT,
    DISTANCES,
    FREQUENCIES,
    ContrastiveSentence,
    Error,
    embedded_distances,
    embedded_sentences,
    read_contrasts,
)
from stages.errors import DataError
from stages.shared.decoding.systems import load_for_worker
from stages.shared.scoring.pairs import Scored, score_pairs
from stages.shared.shards import shard_path, write_shard

PIECE_SENTENCES = 64
"""Sentences that a worker scores at a time, each with its translation and those with errors."""


def run(inputs: ContrastiveInputs, config: ContrastiveConfig, context: StepContext) -> None:
    """Write the log-probabilities of both translations of each pair, and `contrastive.json` with the accuracy.

    Raises DataError when the system can score no pair, and for a file of pairs in another form.
    """
    if inputs.pairs is None:
        sentences = embedded_sentences(config.target_language, config.pairs)
        distances = embedded_distances(config.target_language)
    else:
        sentences = read_contrasts(inputs.pairs.path)
        distances = DISTANCES
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


class Pair(NamedTuple):
    """The scores of a translation and of the same translation with one error."""

    error: Error
    right: Scored
    wrong: Scored

    @property
    def compared(self) -> bool:
        """Whether both translations have a score."""
        return self.right.log_probability is not None and self.wrong.log_probability is not None

    @property
    def correct(self) -> bool:
        """Whether the right translation has the higher log-probability. A tie is not correct."""
        return self._wins(1, 1)

    @property
    def correct_by_mean(self) -> bool:
        """Whether the right translation has the higher log-probability per token."""
        return self._wins(self.right.tokens, self.wrong.tokens)

    def _wins(self, right_tokens: int, wrong_tokens: int) -> bool:
        assert self.right.log_probability is not None
        assert self.wrong.log_probability is not None
        return self.right.log_probability / right_tokens > self.wrong.log_probability / wrong_tokens


def summarise(pairs: Sequence[Pair], distances: Mapping[str, range]) -> dict[str, Any]:
    """Return the content of `contrastive.json`: numbers of compared and of correct pairs in total, by type, distance and frequency.

    `bands` are errors in the number of verbs by distance, `distances` and `frequencies` errors of all types. A bin that no pair of
    the set is in is left out.
    """
    types = {pair.error.type: pair.error.type for pair in pairs}
    verbs = [pair for pair in pairs if pair.error.type == AGREEMENT]
    return {
        **_counts(pairs),
        "left_out": sum(not pair.compared for pair in pairs),
        "types": [{"type": name, **_counts(pair for pair in pairs if pair.error.type == name)} for name in types],
        "bands": _binned(verbs, "distance", distances, lambda error: error.distance),
        "distances": _binned(pairs, "distance", distances, lambda error: error.distance),
        "frequencies": _binned(pairs, "frequency", FREQUENCIES, lambda error: error.frequency),
    }


def _binned(
    pairs: Sequence[Pair], name: str, bins: Mapping[str, range], key: Callable[[Error], int | None]
) -> list[dict[str, Any]]:
    inside: dict[str, list[Pair]] = {label: [] for label in bins}
    for pair in pairs:
        if (value := key(pair.error)) is not None:
            inside[next(label for label, values in bins.items() if value in values)].append(pair)
    return [{name: label, **_counts(found)} for label, found in inside.items() if found]


def _counts(pairs: Iterable[Pair]) -> dict[str, int]:
    compared = [pair for pair in pairs if pair.compared]
    return {
        "pairs": len(compared),
        "correct": sum(pair.correct for pair in compared),
        "correct_by_mean": sum(pair.correct_by_mean for pair in compared),
    }
