"""The native decoder of the stepwise family: greedy and beam search on a CPU, and the removal of repetitions from outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fewstep.config.problems import Problem, refuse
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.options import beam_options, coupling, joint_step, slot_rules
from fewstep.families.stepwise.orders import GenerationOrder, natural_positions
from fewstep.networks.arrays import Precision
from fewstep.networks.copies import Copies
from fewstep.networks.transformer import BoundSearch, Transformer
from fewstep.search.beam import Outcome
from fewstep.search.coupling import INDEPENDENT_SLOTS
from fewstep.sources import Ints, Sources, gather, max_output_lengths
from fewstep.system.format import BundleError, network_folders
from fewstep.system.networks import network_of, read_network, shape_of, sizes_of
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis

if TYPE_CHECKING:
    from fewstep_native import F32

    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon


class NativeDecoder:
    """Copies of a network, or of several whose probabilities are averaged. Several threads may use it at the same time."""

    memory_errors = (MemoryError,)

    def __init__(
        self,
        config: StepwiseConfig,
        networks: Sequence[Mapping[str, F32]],
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        precision: Precision = "float32",
    ) -> None:
        """Copy networks with the arrays of `fewstep.Transformer`, first in `precision`.

        `ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists. Raises ValueError
        for arrays that do not fit `config`, and for a network that torch alone decodes.
        """
        if config.needs_torch:
            raise ValueError(
                "expected a network that native code decodes, got one with embedding_norm or begin_vectors, or without "
                "tied_output; load it in a checkout with models.bundle.directory.load_system, which decodes it with torch"
            )
        self.config = config
        self.order = config.generation()
        self.ngram = ngram
        self.lexicon = lexicon
        self.parts = SystemParts(ngram=ngram is not None, tables=lexicon is not None, networks=len(networks))
        self._check_slots(networks)
        self._copies = Copies(lambda precision: [self._copy(arrays, precision) for arrays in networks])
        # Made now, so that the first sentence does not wait for it.
        self._copies[precision]
        self._last: tuple[StepwiseSearch, BoundSearch] | None = None

    def _check_slots(self, networks: Sequence[Mapping[str, F32]]) -> None:
        """Raise ValueError for fewer codes of slots than the longest output has, in whole steps."""
        longest = self.config.max_positions
        step = self.order.step_size
        needed = longest + -longest % step
        for arrays in networks:
            if "slot_codes" in arrays and len(found := arrays["slot_codes"]) < needed:
                raise ValueError(f"slot_codes: expected {needed} rows for outputs in steps of {step} tokens, got {len(found)}")

    def _copy(self, arrays: Mapping[str, F32], precision: Precision) -> Transformer:
        return Transformer(arrays, shape=shape_of(self.config), precision=precision, lexicon=self.lexicon)

    def problems(self, search: StepwiseSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system, or that native code does not support."""
        yield from search.problems(self.config, self.parts)
        if search.engine != "auto":
            yield Problem(("engine",), "auto in native code", search.engine)
        yield from self.unsupported(search)

    def unsupported(self, search: StepwiseSearch) -> Iterator[Problem]:
        """Yield the strategy of a search if native code does not have it."""
        if search.strategy == "sample":
            yield Problem(("strategy",), "greedy or beam in native code", search.strategy)

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for one that exceeds the network's `max_positions`."""
        return gather(sources, self.config.max_positions - 1)

    def decode(self, prepared: Sources, search: StepwiseSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a search with `problems`."""
        check_search(search, self.config, self.parts)
        refuse(self.problems(search))
        if not prepared.rows:
            return []
        limits = max_output_lengths(search.output_limits, prepared.lengths, self.config.max_positions)
        return deduplicated(self.search(prepared, search, limits, threads or default_threads()), search)

    def search(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of a search without problems; `limits` [B] are maximum output lengths in tokens with EOS."""
        # Binding the options takes as long as a short step of the search, so the last search is kept.
        last = self._last
        if last is None or last[0] is not search:
            self._last = last = search, self._bound(search)
        outcomes = last[1](prepared.ids, prepared.lengths, limits, threads)
        return [hypotheses(outcome, self.order) for outcome in outcomes]

    def _bound(self, search: StepwiseSearch) -> BoundSearch:
        order = self.order
        first, *others = self._copies[search.precision]
        options = beam_options(search, order, coupling(order, search, self.ngram))
        rules = slot_rules(search, order)
        if search.strategy == "beam":
            return first.beam_call(options=options, rules=rules, others=others)
        joint = joint_step(order, search, self.ngram)
        return first.greedy_call(options=options, rules=rules, others=others, joint=joint or INDEPENDENT_SLOTS)


def hypotheses(outcome: Outcome, order: GenerationOrder) -> list[Hypothesis]:
    """Return the hypotheses of a sentence with their tokens from left to right."""
    statistics = {"margin": outcome.margin}
    return [
        Hypothesis(natural_order(order, tokens), score, outcome.steps, dict(statistics)) for score, tokens in outcome.hypotheses
    ]


def natural_order(order: GenerationOrder, written: Sequence[int]) -> list[int]:
    """Return the written tokens of one output from left to right."""
    if order.arrangement == "l2r":
        return list(written)
    natural = [0] * len(written)
    for position, token in zip(_positions(order, len(written)), written, strict=True):
        natural[position] = token
    return natural


_positions = lru_cache(maxsize=1024)(natural_positions)


def deduplicated(found: list[list[Hypothesis]], search: StepwiseSearch) -> list[list[Hypothesis]]:
    """Remove repetitions from the hypotheses of each sentence if the search deduplicates.

    If hypotheses of a beam become equal, the first is kept; samples may be equal.
    """
    if not search.deduplicate:
        return found
    return [_without_repetitions(ranked, distinct=search.strategy != "sample") for ranked in found]


def _without_repetitions(ranked: list[Hypothesis], *, distinct: bool) -> list[Hypothesis]:
    clean = []
    for hypothesis in ranked:
        ids = deduplicate(hypothesis.ids)
        clean.append(hypothesis if len(ids) == len(hypothesis.ids) else replace(hypothesis, ids=ids))
    if not distinct:
        return clean
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in clean:
        first.setdefault(tuple(hypothesis.ids), hypothesis)
    return list(first.values())


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig) -> NativeDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    config = cast(StepwiseConfig, network_of(directory, description, StepwiseConfig))
    sizes = sizes_of(directory, description)
    networks = [read_network(directory / folder, config, sizes) for folder in network_folders(description)]
    ngram = load_ngram(directory, description, sizes)
    lexicon = load_lexicon(directory, description, sizes)
    precision = cast(StepwiseSearch, search).precision
    try:
        return NativeDecoder(config, networks, ngram, lexicon, precision="float32" if precision == "float16" else precision)
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error


MAX_NGRAM = 4
"""Tokens of the longest repetition that is removed."""


def deduplicate(ids: Sequence[int], max_ngram: int = MAX_NGRAM) -> list[int]:
    """Remove the second copy of any two equal adjacent n-grams of up to `max_ngram` tokens, longer ones first.

    A removal may bring equal n-grams together, so it is repeated until none are left. Intended repetitions are removed too.
    """
    kept = list(ids)
    width = max_ngram
    while width:
        size = len(kept)
        kept = _sweep(kept, width)
        width = max_ngram if len(kept) < size and width < max_ngram else width - 1
    return kept


def _sweep(ids: list[int], width: int) -> list[int]:
    """Remove second copies of n-grams of `width` tokens."""
    if not any(map(eq, ids, ids[width:])):  # most outputs
        return ids
    kept: list[int] = []
    for token in ids:
        kept.append(token)
        if len(kept) >= 2 * width and kept[-width:] == kept[-2 * width : -width]:
            del kept[-width:]
    return kept
