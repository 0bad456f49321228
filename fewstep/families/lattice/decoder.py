"""The native decoder of the lattice family: candidates, scores and exact search on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fewstep.candidates import Candidates, CandidateTables
from fewstep.config.problems import Problem, refuse
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.explanation import Explanation, of_lattice
from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots, look_up, most_frequent, select_slots
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.lattice.paths import Lattice, decode_slots
from fewstep.networks.arrays import Precision
from fewstep.networks.copies import Copies
from fewstep.networks.lattice_transformer import LatticeOptions, LatticeTransformer
from fewstep.sources import Ints, gather, padded
from fewstep.system.format import BundleError
from fewstep.system.networks import network_of, read_network, shape_of, sizes_of
from fewstep.system.parts import load_tables
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis

if TYPE_CHECKING:
    from fewstep.system.networks import Arrays


class NativeDecoder:
    """Copies of a network, with the tables of its candidates. Several threads may use it at the same time.

    A single best path has no margin, because it is bit-identical in any batch.
    """

    memory_errors = (MemoryError,)

    def __init__(
        self, config: LatticeModelConfig, arrays: Arrays, tables: CandidateTables, *, precision: Precision = "float32"
    ) -> None:
        """Copy a network with the arrays of `fewstep.LatticeTransformer`, first in `precision`.

        Raises ValueError for arrays that do not fit `config`, and for a network that torch alone decodes.
        """
        if config.needs_torch:
            raise ValueError(
                "expected a network that native code decodes, got one with segment_start bos; load it in a checkout with "
                "models.bundle.directory.load_system, which decodes it with torch"
            )
        self.config = config
        self.tables = tables
        self.parts = SystemParts(tables=True)
        self._copies = Copies(lambda precision: LatticeTransformer(arrays, shape=shape_of(config), precision=precision))
        # Made now, so that the first sentence does not wait for it.
        self._copies[precision]

    def problems(self, search: LatticeSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        yield from search.problems(self.config, self.parts)
        if search.engine != "auto":
            yield Problem(("engine",), "auto in native code", search.engine)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: LatticeSearch | None = None, threads: int | None = None
    ) -> LatticeSources:
        """Return sources without EOS as one batch, with the candidates that `search` needs.

        Raises ValueError for a source that exceeds the network's `max_positions`.
        """
        _, ids, lengths = gather(sources, self._max_tokens)
        prepared = LatticeSources(ids, lengths, None, None)
        if search is None or not sources or search.strategy == "lookup" or not self.needs_slots(search):
            return prepared
        return self._looked_up(prepared, search, threads or default_threads())

    def decode(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; an empty source has an empty hypothesis.

        If a sentence has no path in its length window, because a slot has no candidate (its source tokens were never linked), the
        search is repeated with shorter paths. Without a shorter path its hypothesis is empty and its score is minus infinity.
        Raises ValueError for a search with `problems`.
        """
        check_search(search, self.config, self.parts)
        refuse(self.problems(search))
        if len(prepared.ids) == 0:
            return []
        threads = threads or default_threads()
        if search.strategy == "lookup":
            return most_frequent(self.tables, prepared.ids, prepared.lengths - 1, search, self._max_tokens, threads)
        return self.search(self._looked_up(prepared, search, threads) if self.needs_slots(search) else prepared, search, threads)

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return whether `search` needs looked-up candidates: False for a single path, where native code looks them up itself, with
        smoothing."""
        return search.strategy != "viterbi" or search.n_best > 1 or search.confidences or not search.smoothing

    def search(self, prepared: LatticeSources, search: LatticeSearch, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of a search without problems, whose candidates were looked up if it `needs_slots`."""
        if self.needs_slots(search):

            def score(ids: Ints, lengths: Ints, slots: Slots) -> tuple[Slots, Lattice]:
                return slots, self.lattice(ids, lengths, slots, search, threads)

            return decode_slots(score, prepared, search, threads=threads)
        outcomes = self._copies[search.precision].decode(
            prepared.ids, prepared.lengths, self.tables, options=_options(search), threads=threads
        )
        rows = zip(outcomes, prepared.lengths.tolist(), strict=True)
        return [[Hypothesis(one.ids, one.score, int(length > 1))] for one, length in rows]

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch, threads: int) -> Lattice:
        """Return the lattices of sources [B,S] with EOS."""
        start, edges, exits = self._copies[search.precision].score(
            ids, lengths, _candidates(slots), options=_options(search), threads=threads
        )
        size = int(slots.max_lengths.max())  # `local` has one more slot, which no path reaches.
        return Lattice(start, edges[:, : size - 1], exits[:, :size])

    def explain(
        self, source: Sequence[int], search: LatticeSearch, piece: Callable[[int], str], threads: int | None = None
    ) -> Explanation | None:
        """Return the lattice of a source (`fewstep.explanation.Explaining`); None for a search of counts alone."""
        if search.strategy == "lookup":
            return None
        best = self.decode(self.prepare([source], search, threads), search, threads)[0][0]
        _, ids, lengths = gather([source], self._max_tokens)
        prepared = self._looked_up(LatticeSources(ids, lengths, None, None), search, threads or default_threads())
        assert prepared.slots is not None
        slots = select_slots(prepared.slots, np.zeros(1, dtype=np.int64), search)
        start, edges, exits = self.lattice(ids, lengths, slots, search, threads or default_threads())
        # The search allows shorter outputs than the window if there is no path of its lengths.
        min_length = min(int(slots.min_lengths[0]), max(1, len(best.ids)))
        return of_lattice(start[0], edges[0], exits[0], slots.token_ids[0, : len(exits[0])], min_length, best.ids, piece)

    def timed(self, source: Sequence[int], search: LatticeSearch, threads: int) -> SentenceTimes:
        """Decode one non-empty source, with smoothing, and return the time of each part."""
        ids, lengths = padded([source])
        (outcome,), seconds = self._copies[search.precision].timed_decode(
            ids, lengths, self.tables, options=_options(search), threads=threads
        )
        parts = (seconds.lookup, seconds.encoding, seconds.scoring, seconds.search)
        return SentenceTimes(len(outcome.ids), *(1000 * part for part in parts))

    def _looked_up(self, prepared: LatticeSources, search: LatticeSearch, threads: int) -> LatticeSources:
        if search == prepared.search:
            return prepared
        slots = look_up(self.tables, prepared.ids, prepared.lengths - 1, search, self._max_tokens, threads)
        return prepared._replace(slots=slots, search=search)

    @property
    def _max_tokens(self) -> int:
        """The maximum length of sources and targets, in tokens without EOS."""
        return self.config.max_positions - 1


def _candidates(slots: Slots) -> Candidates:
    return Candidates(np.ascontiguousarray(slots.token_ids), slots.log_probs.astype(np.float64), slots.max_lengths)


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


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig) -> NativeDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    config = cast(LatticeModelConfig, network_of(directory, description, LatticeModelConfig))
    sizes = sizes_of(directory, description)
    arrays = read_network(directory, config, sizes)
    tables = load_tables(directory, sizes.source, sizes.target, str(description.get("links", "")))
    precision = cast(LatticeSearch, search).precision
    try:
        return NativeDecoder(config, arrays, tables, precision="float32" if precision == "float16" else precision)
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error
