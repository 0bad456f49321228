"""Run the parallel_analysis stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp
from typing import Any

import fewstep
from fewstep.decoding import batches
from models.bundle.likelihood import encode_pairs
from models.parallel.analysis import Assigned, inspect
from models.parallel.decode import ParallelDecoder
from models.training.batch import collate
from stages.artifacts import System
from stages.context import Context, StepContext, WorkerContext
from stages.errors import DataError
from stages.parallel_analysis import ParallelAnalysisConfig, ParallelAnalysisInputs
from stages.shared.decoding.sentences import Sentence, read_sentences
from stages.shared.decoding.systems import load_for_worker
from stages.shared.scoring.pairs import left_out
from stages.shared.statistics import evenly_spaced

PIECE_ROWS = 64
"""Pairs that a worker analyses at a time."""

BATCH_TOKENS = 1000
"""Padded source tokens in a batch, EOS included."""

CANDIDATES = tuple(2**power for power in range(10))
"""Values of K: 1, 2, 4, ..., 512."""

Counts = Counter[Any]
"""Sums by name; a pair (name, K) counts the tokens among the K best of a slot."""


def run(inputs: ParallelAnalysisInputs, config: ParallelAnalysisConfig, context: StepContext) -> None:
    """Write `parallel_analysis.json`.

    Pairs with an empty side, or a side that is too long for the network, are left out and counted. Raises DataError when all pairs
    are left out and when the system is of another family.
    """
    sentences = read_sentences(inputs.text.path)
    chosen = [sentences[row] for row in evenly_spaced(len(sentences), config.rows)]
    pieces = [tuple(chosen[start : start + PIECE_ROWS]) for start in range(0, len(chosen), PIECE_ROWS)]
    found: dict[int, Counts] = {}
    context.progress(0, len(chosen), "sentences")
    for index, part in context.workers.map(make_counter, (inputs.system, context.for_workers()), pieces):
        found[index] = part
        context.progress(sum(len(pieces[done]) for done in found), len(chosen), "sentences")
    total: Counts = Counter()
    for index in range(len(pieces)):
        total.update(found[index])
    write(total, context)


def make_counter(argument: tuple[System, WorkerContext]) -> Callable[[Sequence[Sentence]], Counts]:
    """Load the network, and return a function that counts over a piece. Raises DataError for a system of another family."""
    artifact, context = argument
    system = load_for_worker(artifact, context)
    if not isinstance(system.decoder, ParallelDecoder):
        raise DataError(
            f"parallel_analysis: expected a system of family parallel, got {system.name} of family {system.family}; "
            "correct evaluation.parallel_analysis"
        )
    decoder = system.decoder
    return lambda piece: count(piece, system, decoder)


def count(piece: Sequence[Sentence], system: fewstep.System, decoder: ParallelDecoder) -> Counts:
    """Return the counts of some pairs."""
    found: Counts = Counter()
    pairs = encode_pairs(system, [s.source for s in piece], [s.references[0] for s in piece])
    reasons = [left_out(system, len(source), len(target)) for source, target in pairs]
    found.update(filter(None, reasons))
    rows = [row for row, reason in enumerate(reasons) if reason is None]
    for batch in batches([len(pairs[row][0]) for row in rows], BATCH_TOKENS):
        these = [pairs[rows[index]] for index in batch]
        collated = collate(range(len(these)), [source for source, _ in these], [target for _, target in these])
        for one in inspect(decoder.model, collated):
            found.update(counts_of(one))
    return found


def counts_of(found: Assigned | None) -> Counts:
    """Return the counts of one target."""
    if found is None:
        return Counter(sentences=1, impossible=1)
    counts: Counts = Counter(
        {
            "sentences": 1,
            "tokens": len(found.ranks),
            "correct": float(found.correct.double().sum()),
            "slots": len(found.entropies),
            "entropy": float(found.entropies.double().sum()),
        }
    )
    for name, ranks in (("recall", found.ranks), ("recall_predicted_length", found.predicted_ranks)):
        if ranks is not None:
            counts.update({(name, size): int((ranks < size).sum()) for size in CANDIDATES})
    return counts


def summary(found: Counts) -> dict[str, Any]:
    """Return the content of `parallel_analysis.json`.

    Counts of sentences and tokens; `correct`, the sum over tokens of the share of their slots that rank them first; `choices`, exp
    of the mean entropy of slots; and recall for each number of candidates.
    """
    kinds = [kind for kind in ("recall", "recall_predicted_length") if (kind, CANDIDATES[0]) in found]
    return {
        **{name: found[name] for name in ("sentences", "impossible", "tokens")},
        "correct": round(found["correct"], 4),
        "choices": round(exp(found["entropy"] / found["slots"]), 4) if found["slots"] else None,
        "candidates": list(CANDIDATES),
        **{kind: [round(found[kind, size] / max(1, found["tokens"]), 6) for size in CANDIDATES] for kind in kinds},
        "left_out": {reason: found[reason] for reason in ("empty", "over_long") if found[reason]},
    }


def write(found: Counts, context: Context) -> None:
    """Write `parallel_analysis.json`. Raises DataError when all pairs are left out."""
    result = summary(found)
    if not result["sentences"]:
        raise DataError(
            f"parallel_analysis: expected pairs that the network can take, got none ({result['left_out']}); check the lengths of "
            "the text"
        )
    if result["tokens"]:
        context.metrics(0, {"token_accuracy": result["correct"] / result["tokens"]})
    context.write_json(context.directory / "parallel_analysis.json", result)
