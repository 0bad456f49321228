"""What counts propose for a batch of sources: work of the CPU, which may run a batch ahead of the network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fewstep import CandidateOptions, CandidateTables, lattice_candidates
from models.family import Hypothesis
from models.lattice.config import LatticeSearch
from models.lattice.scoring import Slots
from models.training.batch import Ints


def look_up(tables: CandidateTables, source: Ints, lengths: Ints, search: LatticeSearch, longest: int) -> Slots:
    """The candidates of every slot that the length window admits for sources [B,S] of `lengths` [B] tokens without EOS, up to
    `longest` words; with `local` also of the slot behind the last, which the end of the longest outputs is weighed against."""
    window = [tables.length_range(length, search.length_window) for length in lengths.tolist()]
    least, most = np.minimum(np.array(window, dtype=np.int64).T, longest)
    behind = (most > 0) & (search.normalizer == "local")
    options = CandidateOptions(candidates=search.candidates, threads=torch.get_num_threads())
    found = lattice_candidates(tables, source, lengths, num_slots=most + behind, options=options)
    return Slots(*(torch.from_numpy(part) for part in (found.token_ids, found.log_probs.astype(np.float32), least, most)))


def first_words(tables: CandidateTables, source: Ints, lengths: Ints, longest: int) -> list[list[Hypothesis]]:
    """The most frequent word of each slot of the predicted length: what counts alone translate (table 2, K = 1). It scores the sum
    of the counts' log-probabilities; a slot without a candidate writes nothing."""
    slots = look_up(tables, source, lengths, LatticeSearch(candidates=1, length_window=0), longest)
    rows = zip(slots.token_ids[..., 0].tolist(), slots.log_probs[..., 0].tolist(), slots.most.tolist(), strict=True)
    return [[_first(ids[:most], scores[:most])] for ids, scores, most in rows]


def _first(ids: Sequence[int], scores: Sequence[float]) -> Hypothesis:
    found = [(token, score) for token, score in zip(ids, scores, strict=True) if token >= 0]
    return Hypothesis([token for token, _ in found], sum(score for _, score in found), 0)
