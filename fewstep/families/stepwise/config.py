"""Sizes, generation order and searches of the `stepwise` family (Zhang et al. 2020; Imamura and Sumita 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self, cast

from fewstep.config.bounds import MAX_WEIGHT, Ge, Le, Lt
from fewstep.config.network import NetworkConfig
from fewstep.config.options import MAX_CELLS, MAX_EXPONENT, MAX_HYPOTHESES, NucleusSampling, OutputLimits, Precision, Shortlist
from fewstep.config.problems import Problem
from fewstep.config.search import LimitedSearch, SearchConfig, SystemParts, Workload
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder, Mask, OrderName, SlotPositions, Start, Stop, Tail

MAX_STEP = 256
"""Most tokens of a step."""
RIGHT_TO_LEFT = {"l2r": (False,), "r2l": (True,), "fold": (False, True)}
"""Switches by arrangement, one for each direction: whether its later tokens stand before its earlier ones in the output."""


@dataclass(frozen=True, kw_only=True)
class StepwiseConfig(NetworkConfig):
    """A Transformer encoder-decoder that writes its target step by step."""

    order: OrderName = "autoregressive"
    """Name of the order in which target tokens are written. The next eight keys change single properties of it."""
    directions: Annotated[int, Ge(1), Le(MAX_STEP)] | None = None
    """Number of directions that are written side by side (h). Empty: as in the order."""
    tokens_per_direction: Annotated[int, Ge(1), Le(MAX_STEP)] | None = None
    """Tokens of each direction in a step (c). Empty: as in the order."""
    step_size: Annotated[int, Ge(1), Le(MAX_STEP)] | None = None
    """Tokens that one call of the decoder writes (z): h c, or 1. Empty: as in the order."""
    mask: Mask | None = None
    """Slots that a decoder slot attends to: those of steps up to its own, all up to itself, or those of its direction. Empty: as
    in the order."""
    target_positions: SlotPositions | None = None
    """Position code of decoder slots. Empty: as in the order."""
    tail: Tail | None = None
    """Labels of the slots after EOS in its step: none, or EOS as well (`fill`). Empty: as in the order."""
    start: Start | None = None
    """Input of the slots of the first step. Empty: as in the order."""
    stop: Stop | None = None
    """Event that ends an output: the first EOS in writing order, or an EOS in either direction. Empty: as in the order."""

    tied_output: bool = True
    """Compute logits by the embeddings of target tokens, or by a table of their own, as the authors' scripts for WMT17 do. Torch
    alone decodes a network with its own table."""
    logits_bias: bool = False
    """Add a bias, which training does not change, to the logits. In an imported network it also excludes the tokens that are never
    written (minus infinity)."""
    embedding_norm: bool = False
    """Normalise the inputs of encoder and decoder, which are sums of embeddings and position codes, as BART does. Torch alone
    decodes such a network."""
    begin_vectors: bool = False
    """Put a learned vector in front of the inputs of the encoder and of those of the decoder: the begin tokens of BART. Beam search
    counts one token more in the length of an output. For an order that writes one token a step from left to right; torch alone
    decodes such a network."""

    @property
    def needs_torch(self) -> bool:
        """Whether native code and CTranslate2 lack a part of the network."""
        return self.embedding_norm or self.begin_vectors or not self.tied_output

    def generation(self) -> GenerationOrder:
        """Return the order with its changes. Raises ValueError that names the properties which are not valid together."""
        named = ORDERS[self.order]
        stated = {field.name: getattr(self, field.name, None) for field in fields(GenerationOrder)}
        changes: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
        if named.step_size == named.directions * named.tokens_per_direction:
            changes = {"step_size": 0, **changes}
        return replace(named, **changes)

    def valid_generation(self) -> GenerationOrder | None:
        """Return the order with its changes, or None if they are not a valid combination."""
        try:
            return self.generation()
        except ValueError:
            return None

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        try:
            self.generation()
        except ValueError as error:
            yield Problem(("order",), f"a valid combination of order settings ({error})", self.order)
            return
        order = self.generation()
        if self.begin_vectors and (order.arrangement, order.step_size) != ("l2r", 1):
            yield Problem(("begin_vectors",), "false unless one token a step is written from left to right", self.begin_vectors)
        if self.position_offset and order.target_positions != "absolute":
            yield Problem(("position_offset",), "0 unless target_positions is absolute", self.position_offset)


@dataclass(frozen=True, kw_only=True)
class StepwiseSearch(LimitedSearch):
    """A decoding strategy with its options."""

    strategy: Literal["greedy", "beam", "sample"] = "greedy"
    """Choice of the best token in each slot, beam search, or nucleus sampling."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence: 1 with greedy, at most `beam_size` with beam (fewer are possible with
    `beam_threshold`), any number of samples."""
    beam_size: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 5
    """Number of hypotheses kept alive for each sentence (beam only)."""
    selection: Literal["exact", "outer", "double-top-k"] = "exact"
    """Ranking of steps of several tokens (beam only): exact, or by the approximations of Zhang et al. 2020 (`outer`) or of Imamura
    and Sumita 2020 (`double-top-k`, at most two tokens). With `outer`, slots count instead of tokens in the length penalty, and an
    output may exceed its maximum length by a part of a step."""
    conventions: Literal["paper", "authors"] = "paper"
    """Rules of the selection `outer`: algorithm 1 of the paper, or the authors' program, which forbids EOS in the first step, keeps
    twice `beam_size` continuations of all hypotheses together, and stops by a bound of scores."""
    length_penalty: Annotated[float, Ge(0), Le(MAX_EXPONENT)] = 1.0
    """Exponent alpha of the length normalisation (beam only); 0 ranks by log-probability alone."""
    length_penalty_form: Literal["power", "gnmt"] = "power"
    """Length by which scores are divided: tokens^alpha (`power`), or ((5 + tokens) / 6)^alpha (`gnmt`; Wu et al. 2016). Tokens
    include EOS."""
    beam_threshold: Annotated[float, Ge(0), Le(MAX_WEIGHT)] | None = None
    """Hypotheses whose log-probability is more than this many nats below the highest of their sentence are dropped, so that most
    steps have fewer than `beam_size` (beam only; Freitag and Al-Onaizan 2017). Empty: no hypothesis is dropped."""
    sampling: NucleusSampling = field(default_factory=NucleusSampling)
    """Options of the strategy `sample`."""
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    """Bounds on the length of an output, and on the tokens in it."""
    shortlist: Shortlist | None = None
    """A lexical shortlist that tokens are chosen from. Empty: all tokens."""
    engine: Literal["auto", "torch", "ctranslate2"] = "auto"
    """Engine that decodes: native code on a CPU and torch elsewhere (`auto`), torch, or CTranslate2 (the extra `ctranslate2`). The
    latter supports autoregressive networks, greedy and beam search, and the power form of the length penalty."""
    precision: Precision = "float32"
    """Arithmetic of products with weights. In native code bfloat16 applies to layers, which is faster on CPUs with AVX512-BF16 and
    slower on others, and int8 applies to the ranking of tokens as well; attention stays in float32. CTranslate2 supports all four
    (a CPU may lack the 16-bit ones); native code has no float16. Torch has float32, and on a GPU the 16-bit ones."""
    rescore: bool = True
    """Recompute CTranslate2's scores in one more pass. Its own scores are normalised over the tokens that may be written, those of
    other engines over all tokens."""
    ngram_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight of the bigram coupling of a step: how much more likely, by the n-gram model of the run (`ngram`), two tokens of a step
    are side by side than apart. For greedy search, which considers the four best tokens of each slot, and beam search, in orders
    that write adjacent tokens in a step. 0: the slots are independent."""
    end_threshold: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability of having ended, summed over the slots of a step, at which an output ends (greedy only). 0: an output ends where
    EOS is more likely than every token."""
    no_repeat_ngram: Annotated[int, Ge(0), Le(64)] = 0
    """Size of the n-grams of tokens that may not occur twice in an output; 0: all may. In orders of several directions it holds
    within each of them. Scores do not change. Not for orders that write several tokens of a direction in a step, which are chosen
    without one another."""
    deduplicate: bool = False
    """Delete the second of two equal adjacent n-grams of up to four tokens from outputs; scores do not change."""

    @property
    def penalises_length(self) -> bool:
        """Whether `length_penalty` changes the result."""
        return self.strategy == "beam"

    @property
    def chooses_jointly(self) -> bool:
        """Whether the choice for one slot of a step depends on the other slots."""
        return bool(self.ngram_weight or self.end_threshold)

    @property
    def needs_ngram(self) -> bool:
        """Whether the search reads an n-gram model."""
        return self.ngram_weight > 0

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens."""
        return self.shortlist is not None

    @property
    def uses_ctranslate2(self) -> bool:
        """Whether CTranslate2 decodes."""
        return self.engine == "ctranslate2"

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        hypotheses = "one" if self.strategy == "greedy" else self.strategy
        return Workload(hypotheses, self.engine, self.precision, self.shortlist)

    def equally_wide(self, other: SearchConfig) -> bool:
        """Return whether a search of equal workload keeps as many hypotheses alive."""
        if not isinstance(other, StepwiseSearch) or self.strategy != "beam":
            return True
        return (self.beam_size, self.beam_threshold) == (other.beam_size, other.beam_threshold)

    def without_rescoring(self) -> Self:
        """Return the search without CTranslate2's pass for scores."""
        return replace(self, rescore=False)

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        order = None if network is None else cast(StepwiseConfig, network).valid_generation()
        if self.strategy == "beam" and self.n_best > self.beam_size:
            yield Problem(("n_best",), f"at most {self.beam_size}, the size of the beam", self.n_best)
        elif self.strategy not in ("beam", "sample") and self.n_best > 1:
            yield Problem(("n_best",), f"1 with {self.strategy}", self.n_best)
        yield from self._engine_problems(order, parts)
        if network is not None and cast(StepwiseConfig, network).needs_torch:
            yield from self._torch_problems()
        if self.conventions == "authors" and (self.strategy, self.selection) != ("beam", "outer"):
            yield Problem(("conventions",), "paper unless a beam has the selection outer", self.conventions)
        if order is not None and self.selection == "double-top-k" and order.step_size > 2:
            yield Problem(("selection",), f"exact or outer with {order.step_size} tokens a step", self.selection)
        yield from self.shortlist_problems(parts)
        if order is not None and self.strategy == "beam":
            yield from self._size_problems(order.step_size)
        yield from self._coupling_problems(order, parts)
        if self.no_repeat_ngram and order is not None and order.step_size > order.directions:
            expected = "0 for an order that writes several tokens of a direction in a step"
            yield Problem(("no_repeat_ngram",), expected, self.no_repeat_ngram)

    def _size_problems(self, step: int) -> Iterator[Problem]:
        """Yield the size of a beam for which a step of `step` tokens would take too much memory: coupling has a score for each pair
        of candidates of a slot, and the selection `outer` keeps all pairs of each hypothesis."""
        coupled = self.ngram_weight > 0
        pairs = self.selection == "outer" and step > 1
        factor = step if coupled else 1
        if (coupled or pairs) and self.beam_size**3 * factor > MAX_CELLS:
            most = int((MAX_CELLS / factor) ** (1 / 3))
            expected = f"at most {most} with {'an ngram_weight' if coupled else 'selection outer'} and {step} tokens a step"
            yield Problem(("beam_size",), expected, self.beam_size)

    def _engine_problems(self, order: GenerationOrder | None, parts: SystemParts) -> Iterator[Problem]:
        if self.uses_ctranslate2:
            yield from self._ctranslate2_problems(order, parts)
        elif self.precision == "float16" and self.engine == "auto":
            yield Problem(("precision",), "float32, bfloat16 or int8 unless engine is torch or ctranslate2", self.precision)
        elif self.precision == "int8" and self.engine == "torch":
            yield Problem(("precision",), "float32, float16 or bfloat16 with engine torch", self.precision)
        elif self.precision != "float32" and self.strategy == "sample":
            yield Problem(("precision",), "float32 for sampling", self.precision)

    def _torch_problems(self) -> Iterator[Problem]:
        """Yield the options that a network which torch alone decodes does not have."""
        cause = "for a network with embedding_norm or begin_vectors, or without tied_output, which torch alone decodes"
        if self.uses_ctranslate2:
            yield Problem(("engine",), f"auto or torch {cause}", self.engine)
        elif self.precision == "int8" and self.engine == "auto":
            yield Problem(("precision",), f"float32, float16 or bfloat16 {cause}", self.precision)

    def _ctranslate2_problems(self, order: GenerationOrder | None, parts: SystemParts) -> Iterator[Problem]:
        if parts.networks > 1:
            yield Problem(("engine",), "auto or torch for an ensemble", self.engine)
        if self.strategy == "sample":
            yield Problem(("engine",), "auto or torch for sampling", self.engine)
        if self.strategy == "beam" and self.length_penalty_form == "gnmt":
            yield Problem(("length_penalty_form",), "power with engine ctranslate2", self.length_penalty_form)
        if self.strategy == "beam" and self.beam_threshold is not None:
            yield Problem(("beam_threshold",), "empty with engine ctranslate2", self.beam_threshold)
        if order is not None and (order.arrangement, order.step_size) != ("l2r", 1):
            expected = "auto or torch for an order other than one token a step from left to right"
            yield Problem(("engine",), expected, self.engine)

    def _coupling_problems(self, order: GenerationOrder | None, parts: SystemParts) -> Iterator[Problem]:
        if self.end_threshold and self.strategy != "greedy":
            yield Problem(("end_threshold",), f"0 with {self.strategy}", self.end_threshold)
        elif self.end_threshold and order is not None and (order.step_size == 1 or order.stop != "first-eos"):
            expected = "0 for an order that writes one token a step, or that ends in either direction"
            yield Problem(("end_threshold",), expected, self.end_threshold)
        if not self.ngram_weight:
            return
        if self.strategy == "sample":
            yield Problem(("ngram_weight",), "0 with sample", self.ngram_weight)
        elif parts.ngram is False:
            yield Problem(("ngram_weight",), "0 for a system without an n-gram model (`ngram: {}`)", self.ngram_weight)
        elif order is not None and not _writes_adjacent_tokens(order):
            yield Problem(("ngram_weight",), "0 for an order that writes no two adjacent tokens in a step", self.ngram_weight)
        elif self.strategy == "beam" and (self.selection != "exact" or (order is not None and order.stop != "first-eos")):
            expected = "0 unless selection is exact and the first EOS ends an output"
            yield Problem(("ngram_weight",), expected, self.ngram_weight)


def _writes_adjacent_tokens(order: GenerationOrder) -> bool:
    """Whether two tokens of one direction are written in one step."""
    return order.arrangement in RIGHT_TO_LEFT and min(order.tokens_per_direction, order.step_size) > 1


NETWORK, SEARCH = StepwiseConfig, StepwiseSearch
