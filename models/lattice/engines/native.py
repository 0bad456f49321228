"""Lattices in native code on a CPU: a finished network as arrays for `fewstep.LatticeTransformer`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fewstep import Candidates, CandidateTables, LatticeOptions, LatticeTransformer
from fewstep.config.options import Precision
from fewstep.config.problems import Problem
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.networks.copies import native_precision
from fewstep.sources import padded
from fewstep.system.networks import shape_of
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.common.native import arrays_of
from models.lattice.batches import SentenceTimes, Slots, Sources
from models.lattice.hypotheses import decode_slots
from models.lattice.model import LatticeModel
from models.lattice.scoring import Lattice


class NativeEngine:
    """Copies of a finished network, one for each precision that was used. It uses as many threads as torch.

    A single best path has no margin, because it is bit-identical in any batch.
    """

    def __init__(self, model: LatticeModel, tables: CandidateTables) -> None:
        """Copy a network on the CPU in float32."""
        self._model, self._tables = model, tables
        self._transformers: dict[Precision, LatticeTransformer] = {"float32": transformer(model)}

    def problems(self, search: LatticeSearch, network: LatticeModelConfig) -> list[Problem]:
        """Return an empty list: native code can run all searches."""
        return []

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return whether `decode` needs looked-up candidates: False for a single path, where native code looks them up itself."""
        return not _single_path(search)

    def decode(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a precision that native code does not support."""
        if self.needs_slots(search):
            with inference_mode(self._model) as device:
                return decode_slots(self.lattice, prepared, search, device)
        outcomes = self._transformer(search).decode(
            prepared.ids, prepared.lengths, self._tables, options=_options(search), threads=torch.get_num_threads()
        )
        rows = zip(outcomes, prepared.lengths.tolist(), strict=True)
        return [[Hypothesis(one.ids, one.score, int(length > 1))] for one, length in rows]

    def lattice(self, source: Tensor, lengths: Tensor, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS."""
        scores = self._transformer(search).score(
            source.numpy(), lengths.numpy(), _candidates(slots), options=_options(search), threads=torch.get_num_threads()
        )
        start, edges, exits = (torch.from_numpy(part) for part in scores)
        size = int(slots.max_lengths.max())  # `local` has one more slot, which no path reaches.
        return Lattice(start, edges[:, : size - 1], exits[:, :size])

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part, as native code measures it."""
        ids, lengths = padded([source])
        (outcome,), seconds = self._transformer(search).timed_decode(
            ids, lengths, self._tables, options=_options(search), threads=torch.get_num_threads()
        )
        parts = (seconds.lookup, seconds.encoding, seconds.scoring, seconds.search)
        return SentenceTimes(len(outcome.ids), *(1000 * part for part in parts))

    def _transformer(self, search: LatticeSearch) -> LatticeTransformer:
        if search.precision not in self._transformers:
            self._transformers[search.precision] = transformer(self._model, search.precision)
        return self._transformers[search.precision]


def _single_path(search: LatticeSearch) -> bool:
    """Return whether a search needs only the best path, without confidences."""
    return search.strategy == "viterbi" and search.n_best == 1 and not search.confidences


def _candidates(slots: Slots) -> Candidates:
    return Candidates(slots.token_ids.contiguous().numpy(), slots.log_probs.numpy().astype(np.float64), slots.max_lengths.numpy())


@lru_cache
def _options(search: LatticeSearch) -> LatticeOptions:
    return LatticeOptions(
        candidates=search.candidates,
        length_window=search.length_window,
        normaliser=search.normalizer,
        candidate_threshold=math.inf if search.candidate_threshold is None else search.candidate_threshold,
        count_weight=search.count_weight,
        token_bonus=search.token_bonus,
    )


@torch.no_grad()
def transformer(model: LatticeModel, precision: Precision = "float32") -> LatticeTransformer:
    """Return the native copy of a network. Position codes of any kind become tables."""
    arrays = arrays_of(model, model.config)
    arrays["slot_codes"] = model.position_codes(model.config.max_positions).numpy()
    return LatticeTransformer(arrays, shape=shape_of(model.config, "relu"), precision=native_precision(precision))
