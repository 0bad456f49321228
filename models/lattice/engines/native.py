"""Decoding on a CPU without torch: a finished network as arrays for `kernels.LatticeTransformer`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fewstep import Candidates, CandidateTables, LatticeOptions, LatticeTransformer, TransformerShape
from models.common.native import kernel_precision
from models.common.options import Precision
from models.family import Hypothesis
from models.lattice.config import LatticeSearch
from models.lattice.decode import LatticeDecoder, Sources, Taken
from models.lattice.model import LatticeModel
from models.lattice.scoring import Lattice, Slots
from models.lattice.tables import BigramTables
from models.training.batch import padded


class NativeDecoder(LatticeDecoder):
    """A finished network on the CPU. A single best path comes without a margin: it is the same to the last bit in any company."""

    def __init__(self, model: LatticeModel, tables: CandidateTables, bigrams: BigramTables | None = None) -> None:
        """A network whose weights do not change any more."""
        super().__init__(model, tables, bigrams)
        self._transformers: dict[Precision, LatticeTransformer] = {"float32": transformer(model)}

    def prepare(self, sources: Sequence[Sequence[int]], search: LatticeSearch | None = None) -> Sources:
        """As `LatticeDecoder.prepare`; what the kernel decodes it looks up itself."""
        return super().prepare(sources, None if search is None or _one_path(search) else search)

    def lattice(self, source: Tensor, lengths: Tensor, slots: Slots, search: LatticeSearch) -> Lattice:
        """As `LatticeDecoder.lattice`."""
        found = self._transformer(search).score(
            source.numpy(), lengths.numpy(), _candidates(slots), options=_options(search), threads=torch.get_num_threads()
        )
        start, edges, exits = (torch.from_numpy(part) for part in found)
        size = int(slots.most.max())  # with `local` there is one slot more, which no path reaches
        return Lattice(start, edges[:, : size - 1], exits[:, :size])

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> Taken:
        """Decode one source, not empty; what its parts took, as the kernel tells it."""
        ids, lengths = padded([source])
        threads = torch.get_num_threads()
        (found,), seconds = self._transformer(search).timed_decode(
            ids, lengths, self._tables, options=_options(search), threads=threads
        )
        parts = (seconds.lookup, seconds.encoding, seconds.scoring, seconds.search)
        return Taken(len(found.words), *(1000 * part for part in parts))

    def _transformer(self, search: LatticeSearch) -> LatticeTransformer:
        """That of the search's precision."""
        if search.precision not in self._transformers:
            self._transformers[search.precision] = transformer(self.model, search.precision)
        return self._transformers[search.precision]

    def _decoded(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        if not _one_path(search):
            return super()._decoded(prepared, search)
        outcomes = self._transformer(search).decode(
            prepared.ids, prepared.lengths, self._tables, options=_options(search), threads=torch.get_num_threads()
        )
        rows = zip(outcomes, prepared.lengths.tolist(), strict=True)
        return [[Hypothesis(one.words, one.score, int(length > 1))] for one, length in rows]


def _one_path(search: LatticeSearch) -> bool:
    """Is the best path all that is asked for?"""
    return search.strategy == "viterbi" and search.n_best == 1 and not search.confidences


def _candidates(slots: Slots) -> Candidates:
    return Candidates(slots.token_ids.contiguous().numpy(), slots.log_probs.numpy().astype(np.float64), slots.most.numpy())


@lru_cache
def _options(search: LatticeSearch) -> LatticeOptions:
    return LatticeOptions(
        candidates=search.candidates,
        length_window=search.length_window,
        normaliser=search.normalizer,
        prune=math.inf if search.candidate_threshold is None else search.candidate_threshold,
        count_weight=search.count_weight,
        word_bonus=search.token_bonus,
    )


@torch.no_grad()
def transformer(model: LatticeModel, precision: Precision = "float32") -> LatticeTransformer:
    """The kernel's copy of a network. Position codes, whatever they are made of, become tables."""
    config = model.config
    arrays = {name: values.numpy() for name, values in model.state_dict().items() if name.startswith(("encoder.", "decoder."))}
    arrays["target_embedding"] = model.target_embedding.weight.numpy()
    if model.source_embedding is not None:
        arrays["source_embedding"] = model.source_embedding.weight.numpy()
    arrays["source_positions"] = model.source_positions(torch.arange(config.max_positions)).numpy()
    arrays["slot_codes"] = model.position_codes(config.max_positions).numpy()
    shape = TransformerShape(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.width,
        feed_forward=config.feed_forward,
        heads=config.heads,
        norm=config.norm,
    )
    return LatticeTransformer(arrays, shape=shape, precision=kernel_precision(precision))
