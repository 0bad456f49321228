"""The native decoder of the parallel family: filled and ranked slots on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fewstep.config.options import shortlist_sizes
from fewstep.config.problems import Problem, refuse
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.parallel.config import LENGTH_CLASSES, ParallelConfig, ParallelSearch, impossible, separator
from fewstep.families.parallel.search import (
    FilledSlots,
    RankedSlots,
    Rescore,
    choose_lengths,
    passes,
    search_alignments,
    tokens_needed,
)
from fewstep.networks.arrays import Precision
from fewstep.networks.copies import Copies
from fewstep.networks.parallel_network import ParallelNetwork, ParallelRules, ParallelSlots
from fewstep.sources import Sources, gather
from fewstep.system.format import RESCORER, BundleError
from fewstep.system.networks import network_of, read_network, shape_of, sizes_of
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis
from fewstep.vocabulary import MASK, UNK

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon
    from fewstep.system.networks import Arrays


class NativeDecoder:
    """Copies of a network. Several threads may use it at the same time.

    Outputs of one search have no margin, because they are bit-identical in any batch.
    """

    memory_errors = (MemoryError,)

    def __init__(
        self,
        config: ParallelConfig,
        arrays: Arrays,
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        rescorer: bool = False,
        precision: Precision = "float32",
    ) -> None:
        """Copy a network with the arrays of `fewstep.ParallelNetwork`, first in `precision`.

        `ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists; `rescorer` states
        that the system contains another one that scores outputs. Raises ValueError for arrays that do not fit `config`.
        """
        self.config = config
        self.ngram = ngram
        self.lexicon = lexicon
        self.parts = SystemParts(ngram=ngram is not None, tables=lexicon is not None, rescorer=rescorer)
        _check_arrays(config, arrays)
        self._vocabulary_size = len(arrays["target_embedding"])
        self._copies = Copies(lambda precision: self._copy(arrays, precision))
        # Made now, so that the first sentence does not wait for it.
        self._copies[precision]

    def _copy(self, arrays: Arrays, precision: Precision) -> ParallelNetwork:
        return ParallelNetwork(
            arrays,
            shape=shape_of(self.config),
            slots=_slots(self.config),
            impossible=tuple(impossible(self.config)),
            precision=precision,
            lexicon=self.lexicon,
        )

    def problems(self, search: ParallelSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system, or that native code does not support."""
        yield from search.problems(self.config, self.parts)
        if search.engine != "auto":
            yield Problem(("engine",), "auto in native code", search.engine)
        if search.rescoring == "system":
            yield Problem(("rescoring",), "self in the runtime, which scores no given text", search.rescoring)

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for a source that exceeds the network's `max_positions`."""
        return gather(sources, self.config.max_positions - 1)

    def decode(self, prepared: Sources, search: ParallelSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a search with `problems`."""
        check_search(search, self.config, self.parts)
        refuse(self.problems(search))
        return self.search(prepared, search, threads or default_threads()) if prepared.rows else []

    def search(
        self, prepared: Sources, search: ParallelSearch, threads: int, rescore: Rescore | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of a search without problems. `rescore` scores texts, if the search asks for another system's
        scores."""
        network = self._copies[search.precision]
        rules = _rules(self.config, search)
        if self.config.uses_ctc:
            count = min(tokens_needed(search), self._vocabulary_size)
            ranked = network.rank(prepared.ids, prepared.lengths, tokens=count, rules=rules, threads=threads)
            return search_alignments(RankedSlots(*ranked), search, prepared.rows, self.ngram, threads)
        filled = network.fill(
            prepared.ids,
            prepared.lengths,
            candidates=min(search.length_candidates, LENGTH_CLASSES),
            around=search.length_choice == "around",
            iterations=passes(search),
            rules=rules,
            threads=threads,
        )
        return choose_lengths(FilledSlots(*filled), search, len(prepared.rows), passes(search), rescore)


def _check_arrays(config: ParallelConfig, arrays: Arrays) -> None:
    """Raise ValueError for codes or length classes of another number than the config's."""
    wanted = {"slot_codes": config.max_slots} | ({} if config.uses_ctc else {"lengths": LENGTH_CLASSES})
    for name, rows in wanted.items():
        if name not in arrays or len(arrays[name]) != rows:
            raise ValueError(f"{name}: expected {rows} rows, got {len(arrays[name]) if name in arrays else 'none'}")


@lru_cache
def _slots(config: ParallelConfig) -> ParallelSlots:
    return ParallelSlots(
        input=config.input,
        mask=MASK,
        temperature=config.copy_temperature,
        upsampling=config.upsampling if config.uses_ctc else 0.0,
        length_offset=config.length_offset,
        min_slots=config.min_slots,
    )


@lru_cache
def _rules(config: ParallelConfig, search: ParallelSearch) -> ParallelRules:
    banned = () if search.allow_unknown else (UNK,)
    return ParallelRules(separator=separator(config), banned=banned, **shortlist_sizes(search.shortlist))


def has_rescorer(description: Mapping[str, Any]) -> bool:
    """Return whether a system of this description contains a system that scores outputs."""
    return f"{RESCORER}/system.json" in description["parts"]


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig) -> NativeDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    config = cast(ParallelConfig, network_of(directory, description, ParallelConfig))
    sizes = sizes_of(directory, description)
    arrays = read_network(directory, config, sizes)
    ngram = load_ngram(directory, description, sizes)
    lexicon = load_lexicon(directory, description, sizes)
    precision = cast(ParallelSearch, search).precision
    try:
        return NativeDecoder(
            config,
            arrays,
            ngram,
            lexicon,
            rescorer=has_rescorer(description),
            precision="float32" if precision == "float16" else precision,
        )
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error
