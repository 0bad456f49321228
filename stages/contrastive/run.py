"""Run the contrastive stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from stages.artifacts import System
from stages.context import StepContext, WorkerContext
from stages.contrastive import ContrastiveConfig, ContrastiveInputs
from stages.corpus.embedded.contrast import Contrast, Language, bands, contrasts, label
from stages.decoding.systems import load_for_worker
from stages.errors import DataError
from stages.likelihood.pairs import Scored, score_pairs
from stages.shards import shard_path, write_shard

PIECE_PAIRS = 128
"""Pairs that a worker scores at a time."""


def run(inputs: ContrastiveInputs, config: ContrastiveConfig, context: StepContext) -> None:
    """Write the log-probabilities of both translations of each pair, and `contrastive.json` with the accuracy.

    Raises DataError when the system can score no pair.
    """
    pairs = list(contrasts(config.target_language, config.pairs))
    pieces = [pairs[start : start + PIECE_PAIRS] for start in range(0, len(pairs), PIECE_PAIRS)]
    scored: dict[int, list[tuple[Scored, Scored]]] = {}
    context.progress(0, len(pairs), "pairs")
    for index, found in context.workers.map(make_scorer, (inputs.system, context.for_workers()), pieces):
        scored[index] = found
        context.progress(sum(map(len, scored.values())), len(pairs), "pairs")
    scores = [both for index in range(len(pieces)) for both in scored[index]]
    write_shard(shard_path(context.directory, 0), _table(pairs, scores), context)
    summary = summarise(config.target_language, [pair.distance for pair in pairs], scores)
    if not summary["pairs"]:
        raise DataError(
            f"contrastive: expected pairs that the system can score, got none of {len(pairs)}; increase max_positions of its "
            "network"
        )
    context.metrics(0, {"contrastive_accuracy": summary["correct"] / summary["pairs"]})
    context.write_json(context.directory / "contrastive.json", summary)


def make_scorer(argument: tuple[System, WorkerContext]) -> Callable[[Sequence[Contrast]], list[tuple[Scored, Scored]]]:
    """Load the system, and return a function that scores the right and the wrong translation of each pair."""
    system = load_for_worker(*argument)

    def score(pairs: Sequence[Contrast]) -> list[tuple[Scored, Scored]]:
        sources = [pair.source for pair in pairs]
        found = score_pairs(system, sources * 2, [pair.right for pair in pairs] + [pair.wrong for pair in pairs])
        return list(zip(found[: len(pairs)], found[len(pairs) :], strict=True))

    return score


def _table(pairs: Sequence[Contrast], scores: Sequence[tuple[Scored, Scored]]) -> pa.Table:
    columns = {name: pa.array([getattr(pair, name) for pair in pairs], pa.string()) for name in ("source", "right", "wrong")}
    columns["distance"] = pa.array([pair.distance for pair in pairs], pa.int32())
    for side, name in enumerate(("right", "wrong")):
        columns[f"{name}_log_probability"] = pa.array([both[side].log_probability for both in scores], pa.float64())
        columns[f"{name}_tokens"] = pa.array([both[side].tokens for both in scores], pa.int32())
    return pa.table(columns)


def summarise(target: Language, distances: Sequence[int], scores: Sequence[tuple[Scored, Scored]]) -> dict[str, Any]:
    """Return the content of `contrastive.json`: numbers of compared and of correct pairs, in total and by distance.

    A pair is correct if the right translation has the higher log-probability (`correct`), or log-probability per token
    (`correct_by_mean`). A tie is not correct.
    """
    right_by_distance: list[tuple[int, bool]] = []
    by_mean = 0
    for distance, (right, wrong) in zip(distances, scores, strict=True):
        if right.log_probability is None or wrong.log_probability is None:
            continue
        right_by_distance.append((distance, right.log_probability > wrong.log_probability))
        by_mean += right.log_probability / right.tokens > wrong.log_probability / wrong.tokens
    inside = {label(band): [right for distance, right in right_by_distance if distance in band] for band in bands(target)}
    return {
        "pairs": len(right_by_distance),
        "left_out": len(scores) - len(right_by_distance),
        "correct": sum(right for _, right in right_by_distance),
        "correct_by_mean": by_mean,
        "bands": [{"distance": name, "pairs": len(found), "correct": sum(found)} for name, found in inside.items()],
    }
