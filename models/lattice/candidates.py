"""The look-up of the candidates of a batch of sources, on the CPU. It may run one batch ahead of the network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fewstep import CandidateOptions, CandidateTables, lattice_candidates
from fewstep.families.lattice.config import LatticeSearch
from fewstep.sources import Ints
from fewstep.translation import Hypothesis
from models.lattice.batches import Slots


def look_up(tables: CandidateTables, source: Ints, lengths: Ints, search: LatticeSearch, max_tokens: int) -> Slots:
    """Return the candidates of all slots within the length window, for sources [B,S] of `lengths` [B] tokens without EOS.

    Outputs have at most `max_tokens` tokens. The normaliser `local` needs one slot after the last one; its candidates compete with
    EOS after the longest outputs.
    """
    window = [tables.length_range(length, search.length_window) for length in lengths.tolist()]
    min_lengths, max_lengths = np.minimum(np.array(window, dtype=np.int64).T, max_tokens)
    behind = (max_lengths > 0) & (search.normalizer == "local")
    options = CandidateOptions(candidates=search.candidates, threads=torch.get_num_threads())
    found = lattice_candidates(tables, source, lengths, num_slots=max_lengths + behind, options=options)
    parts = found.token_ids, found.log_probs.astype(np.float32), min_lengths, max_lengths
    return Slots(*(torch.from_numpy(part) for part in parts))


def most_frequent(tables: CandidateTables, source: Ints, lengths: Ints, max_tokens: int) -> list[list[Hypothesis]]:
    """Return translations by counts alone: the most frequent token of each slot of the predicted length (table 2, K = 1).

    The score is the sum of the counts' log-probabilities; a slot without a candidate writes nothing.
    """
    slots = look_up(tables, source, lengths, LatticeSearch(candidates=1, length_window=0), max_tokens)
    rows = zip(slots.token_ids[..., 0].tolist(), slots.log_probs[..., 0].tolist(), slots.max_lengths.tolist(), strict=True)
    return [[_hypothesis(ids[:length], scores[:length])] for ids, scores, length in rows]


def _hypothesis(ids: Sequence[int], scores: Sequence[float]) -> Hypothesis:
    found = [(token, score) for token, score in zip(ids, scores, strict=True) if token >= 0]
    return Hypothesis([token for token, _ in found], sum(score for _, score in found), 0)
