"""Sizes, block and searches of the `aggressive` family (Xia et al. 2022, generalized aggressive decoding)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, cast

from fewstep.config.bounds import Ge, Le, Lt
from fewstep.config.network import TYPICAL_LENGTH, NetworkConfig
from fewstep.config.options import OutputLimits, Precision, Sampling, Shortlist
from fewstep.config.problems import Problem
from fewstep.config.search import LimitedSearch, SystemParts, Workload

BLOCK_OPTIONS = (
    "draft_width_range",
    "prefix_attention",
    "soft_copy",
    "feed_last_token",
    "layer_positions",
    "prefixes",
    "glancing_ratio",
    "glancing_ratio_end",
    "glancing_updates",
)
"""The options that apply only to drafters with empty slots."""


@dataclass(frozen=True, kw_only=True)
class AggressiveConfig(NetworkConfig):
    """A drafter: a Transformer whose decoder reads the tokens so far with empty slots behind them, and fills all slots at once, or
    a layer on top of the verifier that writes token after token."""

    drafting: Literal["parallel", "autoregressive"] = "parallel"
    """The way in which the slots of a block are filled: all at once (`parallel`, as in the paper), or one after the other
    (`autoregressive`; EAGLE, Li et al. 2024), by one layer that reads the previous token and the state from which the verifier
    predicted it, or the layer's own state where that token was drafted. An autoregressive drafter has the verifier's sizes,
    `encoder` is shared, and the options of empty slots do not apply."""
    draft_width: Annotated[int, Ge(1)] = 8
    """Number of tokens in a block (k), in training and, unless a search states another, in decoding."""
    draft_width_range: tuple[int, int] | None = None
    """Lowest and highest width of blocks in training, which draws the width of each sentence uniformly between them: an adaptive
    width needs a drafter that was trained with all of these. Empty: always `draft_width`."""
    encoder: Literal["separate", "shared"] = "separate"
    """The drafter's own encoder, or the verifier's, which is not trained further, runs once for both, and shares its table of
    embeddings."""
    copied_weights: Literal["all", "encoder"] = "all"
    """Weights of the verifier or the teacher that training starts from, unless `initial_weights` is random: those of the encoder
    and of the embeddings, as in the paper, since a causal decoder computes something else than a parallel one (`encoder`); or
    those of the decoder as well (`all`). An autoregressive drafter starts from the verifier's last layer in any case."""
    prefix_attention: Literal["all", "causal"] = "all"
    """Slots that tokens of the prefix attend to: all, empty ones included (the paper's), or those before them, so that their states
    can be cached."""
    soft_copy: bool = True
    """Whether the input of an empty slot is a mixture of source tokens, by attention from its position, or the mask token alone."""
    feed_last_token: bool = False
    """Whether the input of an empty slot also contains the last token of the prefix. Shallow drafters are better with it."""
    layer_positions: bool = True
    """Whether position codes are added again before every layer of the decoder."""
    prefixes: Annotated[int, Ge(1)] = 1
    """Number of prefixes of each target in an update of training, each with its block; the source is encoded once for all. With a
    shared encoder, more prefixes teach a drafter more in the same time."""
    glancing_ratio: Annotated[float, Ge(0), Le(1)] = 0.5
    """Share of the number of slots that are still wrong whose tokens are shown in training, at the first update; 0: none."""
    glancing_ratio_end: Annotated[float, Ge(0), Le(1)] = 0.3
    """The share from update `glancing_updates` on; it changes linearly until then."""
    glancing_updates: Annotated[int, Ge(1)] = 300000
    """Number of updates over which the share changes."""

    @property
    def widths(self) -> tuple[int, int]:
        """The narrowest and the widest block in training."""
        return self.draft_width_range or (self.draft_width, self.draft_width)

    @property
    def training_rows(self) -> float:
        """The slots of half a target and of a block for each prefix, relative to a target of typical length, with one more pass
        forward for glancing."""
        if self.drafting == "autoregressive":
            return 1.0
        rows = self.prefixes * (0.5 + sum(self.widths) / 2 / TYPICAL_LENGTH)
        return rows * 4 / 3 if self.glancing_ratio else rows

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        low, high = self.widths
        if not 1 <= low <= high < self.max_positions or self.draft_width >= self.max_positions:
            expected = f"two widths from 1 to less than max_positions ({self.max_positions}), the lower one first"
            yield Problem(("draft_width_range",), expected, f"[{low}, {high}]")
        if self.drafting == "autoregressive":
            yield from self._autoregressive_problems()

    def _autoregressive_problems(self) -> Iterator[Problem]:
        if self.encoder != "shared":
            yield Problem(("encoder",), "shared with drafting: autoregressive", self.encoder)
        defaults = {field.name: field.default for field in fields(AggressiveConfig)}
        for key in BLOCK_OPTIONS:
            if getattr(self, key) != defaults[key]:
                expected = f"{defaults[key]} (it does not apply to drafting: autoregressive)"
                yield Problem((key,), expected, getattr(self, key))


@dataclass(frozen=True, kw_only=True)
class AggressiveSearch(LimitedSearch):
    """The way in which drafts become an output (sections 3.2 and 3.3)."""

    strategy: Literal["gad", "gad++", "draft", "greedy", "sample"] = "gad"
    """Drafts are verified so that the output is the verifier's greedy one; drafts are verified less strictly; the drafter writes
    alone; the verifier writes alone; or tokens are sampled from the verifier, and drafts are accepted at the rate that preserves
    its distribution."""
    n_best: Annotated[int, Ge(1), Le(1)] = 1
    """Number of hypotheses returned for each sentence."""
    drafter: Literal["network", "lookup", "system"] = "network"
    """Source of drafts: the trained network; the continuation of the last n-gram in the source (with a joint vocabulary) or in the
    output so far; or its continuation in the output of the system's `drafter_system`."""
    mode: Literal["exact", "fast"] = "exact"
    """The shape of the verifier's passes in torch. `exact` pads every pass to the same number of queries, in float32, so that
    greedy and drafted passes round in the same way; `fast` pads as little as possible. On a CPU both modes are exact."""
    draft_width: Annotated[int, Ge(1)] | None = None
    """Number of tokens drafted at a time (k). Empty: the width in training."""
    adaptive: bool = False
    """Draft two more tokens after a block that was accepted in full, one fewer otherwise, between 1 and `draft_width`."""
    draft_shortlist: Shortlist | None = None
    """A lexical shortlist that the drafter chooses from: the most frequent tokens of its training text, and those that its
    candidate tables link to the source tokens. Empty: all tokens."""
    draft_precision: Precision = "float32"
    """Arithmetic of the drafter's products with weights on a CPU: float32 or int8, which reads a quarter of the memory. Verified
    outputs do not change. Torch drafts in float32 alone."""
    verifier_precision: Precision = "float32"
    """Arithmetic of the verifier's products with weights on a CPU: float32, bfloat16 or int8. The output of `gad` is that of the
    verifier's greedy search in the same precision. Sampling, and systems that torch decodes, support float32 alone."""
    confidence: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability of a block, by the drafter's estimate, below which the block ends (autoregressive drafters only); the token that
    lowers it below this value is the last one. 0: blocks are `draft_width` long."""
    ngram: Annotated[int, Ge(1)] = 3
    """Longest n-gram that is looked up (`drafter: lookup` and `system` only)."""
    top_k: Annotated[int, Ge(1)] = 3
    """A drafted token is accepted if it is among this number of best tokens of the verifier (beta; gad++ only)."""
    max_logprob_gap: Annotated[float, Ge(0)] = 1.0
    """Largest distance of an accepted token from the verifier's best token, in nats (tau; gad++ only)."""
    require_top1_eos: bool = True
    """Accept a drafted EOS only if it is the verifier's best token (gad++ only). The paper's code accepts others as well."""
    min_tokens_per_pass: Annotated[float, Ge(0)] = 1.5
    """Mean number of tokens per pass of the verifier, over a sentence, below which drafting stops after three blocks: the rest of
    the sentence is written greedily. 0: always draft."""
    sampling: Sampling = field(default_factory=Sampling)
    """Options of the strategy `sample`."""
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    """Bounds on the length of an output, and on the tokens in it."""
    shortlist: Shortlist | None = None
    """A lexical shortlist that the verifier chooses from: the output of `gad` is that of the verifier's greedy search with the same
    shortlist. Both parts are counted, by word alignment, in the drafter's training text. Empty: all tokens."""

    @property
    def looks_up(self) -> bool:
        """Whether drafts are copied from a text instead of being written by the network."""
        return self.strategy in ("gad", "gad++", "sample") and self.drafter != "network"

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens."""
        return self.shortlist is not None or (self.draft_shortlist is not None and self.draft_shortlist.links > 0)

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        hypotheses = "sample" if self.strategy == "sample" else "one"
        return Workload(hypotheses, "auto", self.verifier_precision, self.shortlist)

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        if self.drafter == "system" and parts.drafter is False:
            yield Problem(("drafter",), "network or lookup for a system without a `drafter_system`", self.drafter)
        if self.confidence and network is not None and cast(AggressiveConfig, network).drafting == "parallel":
            yield Problem(("confidence",), "0 for a drafter that fills blocks at once", self.confidence)
        if self.strategy == "gad++" and parts.target_size is not None and self.top_k > parts.target_size:
            yield Problem(("top_k",), f"at most the vocabulary's {parts.target_size}", self.top_k)
        yield from self.shortlist_problems(parts)
        if self.draft_shortlist is not None and self.draft_shortlist.tokens is None:
            expected = "a number, since no recall is measured for drafts"
            yield Problem(("draft_shortlist", "tokens"), expected, "none")
        if self.draft_shortlist is not None and self.draft_shortlist.links and parts.tables is False:
            links = self.draft_shortlist.links
            yield Problem(("draft_shortlist", "links"), "0 for a system without candidate tables", links)
        yield from self._precision_problems()

    def _precision_problems(self) -> Iterator[Problem]:
        if self.draft_precision not in ("float32", "int8"):
            yield Problem(("draft_precision",), "float32 or int8", self.draft_precision)
        elif self.draft_precision != "float32" and (self.looks_up or self.strategy in ("greedy", "sample")):
            yield Problem(("draft_precision",), "float32 where no network drafts in native code", self.draft_precision)
        if self.verifier_precision == "float16":
            yield Problem(("verifier_precision",), "float32, bfloat16 or int8", self.verifier_precision)
        elif self.verifier_precision != "float32" and self.strategy in ("draft", "sample"):
            expected = "float32 where nothing is verified" if self.strategy == "draft" else "float32 for sampling"
            yield Problem(("verifier_precision",), expected, self.verifier_precision)


NETWORK, SEARCH = AggressiveConfig, AggressiveSearch
