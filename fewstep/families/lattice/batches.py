"""Batches of sources with the candidates of their slots, and the parts of a batch that are scored together.

Legend: B batch, S source tokens, N slots, K candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.candidates import CandidateOptions, CandidateTables, lattice_candidates
from fewstep.families.lattice.config import LatticeSearch
from fewstep.sources import Ints
from fewstep.translation import Hypothesis


class Slots(NamedTuple):
    """The candidates of a batch."""

    token_ids: Ints
    """The candidates, [B,N,K] or, with the normaliser `local`, [B,N+1,K]; -1 where there is no candidate."""
    log_probs: npt.NDArray[np.float32]
    """The natural logarithms of the candidates' probabilities by the counts, of the same shape."""
    min_lengths: Ints
    """The minimum number of tokens of an output, without EOS, [B]."""
    max_lengths: Ints
    """The maximum number of tokens of an output, without EOS, [B]; 0 for an empty source."""


class LatticeSources(NamedTuple):
    """A batch of sources."""

    ids: Ints
    """The token ids with EOS, [B,S]."""
    lengths: Ints
    """The numbers of tokens with EOS, [B]."""
    slots: Slots | None
    """The candidates for `search`; None before they are looked up."""
    search: LatticeSearch | None


class SentenceTimes(NamedTuple):
    """The time spent on one sentence, in milliseconds."""

    tokens: int
    """The number of tokens of its translation."""
    lookup: float
    encoder: float
    scoring: float
    search: float


def look_up(
    tables: CandidateTables, source: Ints, lengths: Ints, search: LatticeSearch, max_tokens: int, threads: int = 1
) -> Slots:
    """Return the candidates of all slots within the length window, for sources [B,S] of `lengths` [B] tokens without EOS.

    Outputs have at most `max_tokens` tokens. The normaliser `local` needs one slot after the last one; its candidates compete with
    EOS after the longest outputs. A cascade has no candidates yet, only their numbers.
    """
    window = [tables.length_range(length, search.length_window) for length in lengths.tolist()]
    min_lengths, max_lengths = np.minimum(np.array(window, dtype=np.int64).T, max_tokens)
    if search.strategy == "cascade":
        ids = np.full((len(source), int(max_lengths.max()), search.candidates), -1, dtype=np.int64)
        return Slots(ids, np.zeros(ids.shape, dtype=np.float32), min_lengths, max_lengths)
    behind = (max_lengths > 0) & (search.normalizer == "local")
    options = CandidateOptions(candidates=search.candidates, smoothing=search.smoothing, threads=threads)
    found = lattice_candidates(tables, source, lengths, num_slots=max_lengths + behind, options=options)
    return Slots(found.token_ids, found.log_probs.astype(np.float32), min_lengths, max_lengths)


def most_frequent(
    tables: CandidateTables, source: Ints, lengths: Ints, search: LatticeSearch, max_tokens: int, threads: int = 1
) -> list[list[Hypothesis]]:
    """Return translations by counts alone: the most frequent token of each slot of the predicted length (table 2, K = 1).

    The score is the sum of the counts' log-probabilities; a slot without a candidate writes nothing.
    """
    slots = look_up(tables, source, lengths, replace(search, candidates=1, length_window=0), max_tokens, threads)
    rows = zip(slots.token_ids[..., 0].tolist(), slots.log_probs[..., 0].tolist(), slots.max_lengths.tolist(), strict=True)
    return [[_hypothesis(ids[:length], scores[:length])] for ids, scores, length in rows]


def _hypothesis(ids: Sequence[int], scores: Sequence[float]) -> Hypothesis:
    found = [(token, score) for token, score in zip(ids, scores, strict=True) if token >= 0]
    return Hypothesis([token for token, _ in found], sum(score for _, score in found), 0)


def scoring_batches(slots: Slots, max_rows: int) -> Iterator[Ints]:
    """Yield the rows of sentences that are scored together: sentences of similar length, with at most `max_rows` candidates unless
    a single sentence has more."""
    order = slots.max_lengths.argsort(kind="stable")
    order = order[slots.max_lengths[order] > 0]
    limit = max_rows // slots.token_ids.shape[2]
    while len(order):
        sizes = slots.max_lengths[order] * np.arange(1, len(order) + 1)
        count = max(1, int((sizes <= limit).sum()))
        yield order[:count]
        order = order[count:]


def select_slots(slots: Slots, rows: Ints, search: LatticeSearch) -> Slots:
    """Return the slots of the sentences `rows`, up to the last slot of the longest sentence."""
    size = int(slots.max_lengths[rows].max()) + (1 if search.normalizer == "local" else 0)
    return Slots(slots.token_ids[rows, :size], slots.log_probs[rows, :size], slots.min_lengths[rows], slots.max_lengths[rows])


def select_sources(prepared: LatticeSources, rows: Ints) -> tuple[Ints, Ints]:
    """Return the sources `rows` and their lengths."""
    lengths = prepared.lengths[rows]
    return prepared.ids[rows, : int(lengths.max())], lengths
