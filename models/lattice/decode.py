"""The decoder of the lattice family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fewstep import CandidateTables
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.lattice import decoder as runtime
from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots, look_up, most_frequent
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.lattice.paths import Lattice
from fewstep.sources import Ints, gather
from fewstep.system.parts import load_tables
from fewstep.translation import Hypothesis
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of, native_arrays
from models.common.inference import MEMORY_ERRORS, score_pairs
from models.common.layers.linear import pack
from models.lattice.loss import log_probability
from models.lattice.model import LatticeModel
from models.lattice.run import TorchDecoder
from models.lattice.tables import BigramTables, bigram_tables


class LatticeDecoder:
    """A network with the tables of its candidates and the engines that can decode with it."""

    memory_errors = MEMORY_ERRORS

    def __init__(
        self,
        model: LatticeModel,
        tables: CandidateTables | None = None,
        bigrams: BigramTables | None = None,
        *,
        frozen: bool = False,
        native: runtime.NativeDecoder | None = None,
    ) -> None:
        """Create the engines for a network.

        Without `tables` the decoder scores but does not decode. `frozen` states that the weights do not change any more, so that
        engines may copy them. `bigrams` are precomputed from such weights; `native` is the runtime's decoder of the same network,
        if it was loaded.
        """
        self.model = model
        self.tables = tables
        self.bigrams = bigrams
        self.engines = engines_of(
            TorchDecoder(model, tables, bigrams),
            model,
            model.config,
            lambda: runtime.NativeDecoder(model.config, native_arrays(model), self._tables),
            frozen=frozen and tables is not None,
            native=native,
        )

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its network."""
        return SystemParts(tables=self.tables is not None)

    def problems(self, search: LatticeSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: LatticeSearch | None = None, threads: int | None = None
    ) -> LatticeSources:
        """Return sources without EOS as one batch, with the candidates that `search` needs.

        Raises ValueError for a source that exceeds the network's `max_positions`.
        """
        _, ids, lengths = gather(sources, self._max_tokens)
        prepared = LatticeSources(ids, lengths, None, None)
        if search is None or not sources or search.strategy == "lookup" or not self._engine(search).needs_slots(search):
            return prepared
        return self.looked_up(prepared, search, threads)

    def decode(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; an empty source has an empty hypothesis.

        If a sentence has no path in its length window, because a slot has no candidate (its source tokens were never linked), the
        search is repeated with shorter paths. Without a shorter path its hypothesis is empty and its score is minus infinity.

        Raises ValueError for a search that has problems (`LatticeSearch.problems`) or that no engine of this decoder can run, and
        if the decoder has no tables.
        """
        check_search(search, self.model.config, self.system_parts)
        if len(prepared.ids) == 0:
            return []
        if search.strategy == "lookup":
            return most_frequent(
                self._tables, prepared.ids, prepared.lengths - 1, search, self._max_tokens, threads or torch.get_num_threads()
            )
        engine = self._engine(search)
        if engine.needs_slots(search):
            prepared = self.looked_up(prepared, search, threads)
        return engine.search(prepared, search, threads or torch.get_num_threads())

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return log-probabilities by the bigrams of lattices, over the whole vocabulary; see `ScoringDecoder.score`."""
        return score_pairs(self.model, log_probability, sources, targets, self._max_tokens)

    def looked_up(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None = None) -> LatticeSources:
        """Return the batch with the candidates for `search`. Raises ValueError if the decoder has no tables."""
        if search == prepared.search:
            return prepared
        count = threads or torch.get_num_threads()
        slots = look_up(self._tables, prepared.ids, prepared.lengths - 1, search, self._max_tokens, count)
        return prepared._replace(slots=slots, search=search)

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS over counted candidates.

        Raises ValueError for a search that no engine of this decoder can run.
        """
        return self._engine(search).lattice(ids, lengths, slots, search, torch.get_num_threads()).arrays()

    def timed(self, source: Sequence[int], search: LatticeSearch) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part."""
        return self._engine(search).timed(source, search, torch.get_num_threads())

    def _engine(self, search: LatticeSearch) -> TorchDecoder | runtime.NativeDecoder:
        return choose_engine(self.engines, search)

    @property
    def _tables(self) -> CandidateTables:
        """The tables of candidates. Raises ValueError if the decoder has no tables."""
        if self.tables is None:
            raise ValueError("tables: expected candidate tables to decode with, got none; give them to the decoder")
        return self.tables

    @property
    def _max_tokens(self) -> int:
        """The maximum length of sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig, device: str) -> LatticeDecoder:
    """Load the decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    model = make_model(directory, description, device)
    assert isinstance(model, LatticeModel)
    native = runtime.load(directory, description, search) if device == "cpu" and not model.config.needs_torch else None
    links = str(description.get("links", ""))
    tables = load_tables(directory, model.sizes.source, model.sizes.target, links) if native is None else native.tables
    pack(model)
    return LatticeDecoder(model, tables, bigram_tables(model), frozen=True, native=native)
