"""Sizes, block and searches of the `aggressive` family (Xia et al. 2022, generalized aggressive decoding)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, Self, cast

from fewstep.config.bounds import MAX_TOKENS, MAX_WEIGHT, Ge, Le, Lt
from fewstep.config.network import TYPICAL_LENGTH, NetworkConfig
from fewstep.config.options import HALF_PRECISIONS, OutputLimits, Precision, Sampling, Shortlist, engine_precision
from fewstep.config.problems import Problem
from fewstep.config.search import LimitedSearch, SystemParts, Workload

MAX_WIDTH, MAX_NODES = 256, 512
"""Most tokens of a block, and of a draft tree: a pass of the verifier has a row for each."""
MAX_EXPANDED = 2048
"""Most nodes of a draft tree that a network expands: it has a row for each."""
BLOCK_OPTIONS = (
    "draft_width_range",
    "prefix_attention",
    "soft_copy",
    "copy_scale",
    "initialisation",
    "feed_last_token",
    "layer_positions",
    "logits_bias",
    "prefixes",
    "glancing_ratio",
    "glancing_ratio_end",
    "glancing_updates",
)
"""The options that apply only to drafters with empty slots."""
HEAD_OPTIONS = ("train_verifier", "head_loss_decay")
"""The options that apply only to heads."""


@dataclass(frozen=True, kw_only=True)
class AggressiveConfig(NetworkConfig):
    """A drafter: a Transformer whose decoder reads the tokens so far with empty slots behind them, and fills all slots at once; a
    layer on top of the verifier that writes token after token; or heads on top of the verifier, one for each of the next tokens."""

    drafting: Literal["parallel", "autoregressive", "medusa"] = "parallel"
    """The way in which the slots of a block are filled: all at once (`parallel`, as in the paper), or one after the other
    (`autoregressive`; EAGLE, Li et al. 2024), by one layer that reads the previous token and the state from which the verifier
    predicted it, or the layer's own state where that token was drafted; or all at once by `draft_width` heads that read the
    verifier's last state and cost no pass of their own (`medusa`; blockwise parallel decoding, Stern et al. 2018; Medusa, Cai et
    al. 2024). Autoregressive drafters and heads have the verifier's sizes, `encoder` is shared, and the options of empty slots do
    not apply."""
    draft_width: Annotated[int, Ge(1), Le(MAX_WIDTH)] = 8
    """Number of tokens in a block (k), in training and, unless a search states another, in decoding."""
    train_verifier: bool = False
    """Train the network under the heads as well (`drafting: medusa` only): drafts are accepted more often, and outputs are those
    of the trained network instead of the verifier's."""
    head_loss_decay: Annotated[float, Ge(0), Le(1)] = 0.8
    """Weight of the loss of head i + 1 relative to that of head i (`drafting: medusa` only)."""
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
    copy_scale: bool = True
    """Divide the scores of that attention by the square root of `width`. The authors' code does not."""
    initialisation: Literal["glorot", "normal"] = "glorot"
    """Random weights: embeddings with N(0, 1/width) and Glorot uniform matrices, or all of them with N(0, 0.02²) as in BERT and in
    the authors' code."""
    feed_last_token: bool = False
    """Whether the input of an empty slot also contains the last token of the prefix. Shallow drafters are better with it."""
    layer_positions: bool = True
    """Whether position codes are added again before every layer of the decoder."""
    logits_bias: bool = False
    """Add a bias to the logits, as networks of the authors' code have here: minus infinity for tokens that they do not know."""
    prefixes: Annotated[int, Ge(1), Le(256)] = 1
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
    def on_verifier(self) -> bool:
        """Whether the drafter is a part on top of the verifier's network."""
        return self.drafting != "parallel"

    @property
    def training_rows(self) -> float:
        """The slots of half a target and of a block for each prefix, relative to a target of typical length, with one more pass
        forward for glancing."""
        if self.on_verifier:
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
        if self.on_verifier and self.encoder != "shared":
            yield Problem(("encoder",), f"shared with drafting: {self.drafting}", self.encoder)
        unused = (*(BLOCK_OPTIONS if self.on_verifier else ()), *(HEAD_OPTIONS if self.drafting != "medusa" else ()))
        defaults = {field.name: field.default for field in fields(AggressiveConfig)}
        for key in unused:
            if getattr(self, key) != defaults[key]:
                expected = f"{defaults[key]} (it does not apply to drafting: {self.drafting})"
                yield Problem((key,), expected, getattr(self, key))


MIN_TOKENS_PER_PASS, HEADS_MIN_TOKENS_PER_PASS = 1.5, 1.2
"""Tokens a pass below which drafting stops unless a search states them: about the least that a pass with a draft costs, in greedy
steps. They follow from the drafter and are not measured while decoding, since outputs of `gad++` would depend on the machine."""


@dataclass(frozen=True, kw_only=True)
class AggressiveSearch(LimitedSearch):
    """The way in which drafts become an output (sections 3.2 and 3.3)."""

    strategy: Literal["gad", "gad++", "draft", "greedy", "sample"] = "gad"
    """Drafts are verified so that the output is the verifier's greedy one; drafts are verified less strictly; the drafter writes
    alone; the verifier writes alone; or tokens are sampled from the verifier, and drafts are accepted at the rate that preserves
    its distribution."""
    n_best: Annotated[int, Ge(1), Le(1)] = 1
    """Number of hypotheses returned for each sentence."""
    drafter: Literal["network", "draft_model", "lookup", "system", "jacobi"] = "network"
    """Source of drafts: the trained network; the system's `drafter_system` as a draft model (Leviathan et al. 2023; Chen et al.
    2023), an autoregressive network that drafts token after token; the continuation of the last n-gram in the source (with a
    joint vocabulary) or in the output so far (`lookup`), or in the output of the `drafter_system` (`system`); or the verifier's own
    tokens in the slots that its last pass rejected (`jacobi`; parallel Jacobi decoding, Santilli et al. 2023), a baseline without
    a drafter."""
    mode: Literal["exact", "fast"] = "exact"
    """The shape of the verifier's passes in torch. `exact` pads every pass to the same number of queries, so that greedy and
    drafted passes round in the same way; `fast` pads as little as possible. On a CPU both modes are exact."""
    draft_width: Annotated[int, Ge(1), Le(MAX_WIDTH)] | None = None
    """Number of tokens drafted at a time (k). Empty: the width in training."""
    adaptive: bool = False
    """Draft two more tokens after a block that was accepted in full, one fewer otherwise, between 1 and `draft_width`."""
    tree_nodes: Annotated[int, Ge(0), Le(MAX_NODES)] = 0
    """Number of tokens in a draft tree, which has several candidates for a position and is verified in one pass (SpecInfer, Miao et
    al. 2024): the paths of at most `draft_width` tokens with the highest products of the drafter's probabilities. With
    autoregressive drafters and draft models trees are those of EAGLE-2 (Li et al. 2024): of each depth the `tree_branches` most
    probable paths are expanded, and the `tree_nodes` most probable ones of all are kept. The output is that of `gad` with any
    drafts. Not for `lookup`, `system` and `jacobi`. 0: a chain of tokens."""
    tree_branches: Annotated[int, Ge(1), Le(MAX_NODES)] = 4
    """Number of best tokens after each node that a tree chooses from, and of nodes that are expanded at each depth by
    autoregressive drafters and draft models (`tree_nodes` only); more than the vocabulary has: all."""
    draft_shortlist: Shortlist | None = None
    """A lexical shortlist that the drafter chooses from: the most frequent tokens of its training text, and those that its
    candidate tables link to the source tokens. Empty: all tokens."""
    engine: Literal["auto", "torch"] = "auto"
    """Engine that decodes: native code on a CPU and torch elsewhere (`auto`), or torch."""
    draft_precision: Precision = "float32"
    """Arithmetic of the drafter's products with weights: float32 or, on a CPU, int8, which reads a quarter of the memory; with
    `engine: torch` on a GPU float16 or bfloat16. Verified outputs do not change."""
    verifier_precision: Precision = "float32"
    """Arithmetic of the verifier's products with weights: float32, bfloat16 or int8 on a CPU, and float32, float16 or bfloat16 in
    torch on a GPU. The output of `gad` is that of the verifier's greedy search in the same precision. Sampling supports float32
    alone."""
    confidence: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability of a block, by the drafter's estimate, below which the block ends (chains of autoregressive drafters and draft
    models only); the token that lowers it below this value is the last one. 0: blocks are `draft_width` long."""
    ngram: Annotated[int, Ge(1), Le(32)] = 3
    """Longest n-gram that is looked up (`drafter: lookup` and `system` only)."""
    top_k: Annotated[int, Ge(1), Le(MAX_TOKENS)] = 3
    """A drafted token is accepted if it is among this number of best tokens of the verifier (beta; gad++ only)."""
    max_logprob_gap: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 1.0
    """Largest distance of an accepted token from the verifier's best token, in nats (tau; gad++ only)."""
    require_top1_eos: bool = True
    """Accept a drafted EOS only if it is the verifier's best token (gad++ only). The paper's code accepts others as well."""
    min_tokens_per_pass: Annotated[float, Ge(0), Le(MAX_WEIGHT)] | None = None
    """Mean number of tokens per pass of the verifier, over a sentence without its first pass, below which drafting stops after
    three more blocks: the rest of the sentence is written greedily. 0: always draft, as in the paper. Empty: 1.2 for heads
    (`drafting: medusa`), which draft without a pass of their own, and 1.5 for other drafters."""
    sampling: Sampling = field(default_factory=Sampling)
    """Options of the strategy `sample`."""
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    """Bounds on the length of an output, and on the tokens in it."""
    shortlist: Shortlist | None = None
    """A lexical shortlist that the verifier chooses from: the output of `gad` is that of the verifier's greedy search with the same
    shortlist. Both parts are counted, by word alignment, in the drafter's training text. Empty: all tokens."""

    @classmethod
    def for_network(cls, network: NetworkConfig) -> Self:
        """Return the search that counts the tokens a pass of the verifier, with a draft in each pass."""
        return cls(mode="fast", min_tokens_per_pass=0.0)

    def with_fallback(self, network: AggressiveConfig) -> Self:
        """Return the search with the `min_tokens_per_pass` of this drafter, unless it states one."""
        if self.min_tokens_per_pass is not None:
            return self
        heads = self.drafts_by == "network" and network.drafting == "medusa"
        return replace(self, min_tokens_per_pass=HEADS_MIN_TOKENS_PER_PASS if heads else MIN_TOKENS_PER_PASS)

    @property
    def drafts_by(self) -> str:
        """The source of drafts: `drafter`, which counts only where drafts are verified."""
        return self.drafter if self.strategy in ("gad", "gad++", "sample") else "network"

    @property
    def looks_up(self) -> bool:
        """Whether drafts are copied from a text instead of being written by a network."""
        return self.drafts_by in ("lookup", "system")

    def drafts_by_token(self, network: AggressiveConfig) -> bool:
        """Return whether a network writes the tokens of a block one after the other, each from those before it."""
        return self.drafts_by == "draft_model" or (self.drafts_by == "network" and network.drafting == "autoregressive")

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens."""
        return self.shortlist is not None or (self.draft_shortlist is not None and self.draft_shortlist.links > 0)

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        hypotheses = "sample" if self.strategy == "sample" else "one"
        return Workload(hypotheses, self.engine, self.verifier_precision, self.shortlist)

    @property
    def precisions(self) -> dict[str, Precision]:
        """The precisions of products by their options."""
        return {"draft_precision": self.draft_precision, "verifier_precision": self.verifier_precision}

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        if self.drafter in ("system", "draft_model") and parts.drafter is False:
            yield Problem(("drafter",), "network, lookup or jacobi for a system without a `drafter_system`", self.drafter)
        elif self.drafter == "draft_model" and parts.draft_model is False:
            expected = (
                "system, as the `drafter_system` is not one network that native code decodes, with max_positions as here, which "
                "writes one token a step from left to right"
            )
            yield Problem(("drafter",), expected, self.drafter)
        if self.strategy == "sample" and self.drafter == "jacobi":
            expected = "another than jacobi for sampling, since its guesses depend on the random numbers that accept them"
            yield Problem(("drafter",), expected, self.drafter)
        if network is not None:
            yield from self._drafter_problems(cast(AggressiveConfig, network))
        yield from self._tree_problems()
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

    def _drafter_problems(self, network: AggressiveConfig) -> Iterator[Problem]:
        by_token = self.drafts_by_token(network)
        if self.confidence and not by_token:
            yield Problem(("confidence",), "0 for a drafter that fills blocks at once", self.confidence)
        if self.tree_nodes and by_token:
            yield from self._expansion_problems(self.draft_width or network.draft_width)
        if network.drafting != "medusa" or self.drafts_by != "network":
            return
        if self.strategy == "draft":
            yield Problem(
                ("strategy",), "a strategy that verifies for drafting: medusa, whose heads read the verifier", self.strategy
            )
        if self.draft_width is not None and self.draft_width > network.draft_width:
            yield Problem(("draft_width",), f"at most the drafter's {network.draft_width} heads", self.draft_width)

    def _expansion_problems(self, depth: int) -> Iterator[Problem]:
        """Yield the options that are not valid for trees of this depth whose nodes a network expands."""
        if self.confidence:
            yield Problem(("confidence",), "0 with tree_nodes", self.confidence)
        if self.tree_branches * depth > MAX_EXPANDED:
            expected = f"at most {MAX_EXPANDED // depth} with draft_width {depth}, since each depth expands as many nodes"
            yield Problem(("tree_branches",), expected, self.tree_branches)

    def _tree_problems(self) -> Iterator[Problem]:
        if not self.tree_nodes:
            return
        if self.strategy != "gad":
            yield Problem(("tree_nodes",), f"0 with the strategy {self.strategy}; trees are verified by gad", self.tree_nodes)
        if self.looks_up or self.drafts_by == "jacobi":
            yield Problem(("tree_nodes",), f"0 with drafter: {self.drafter}, which has one continuation", self.tree_nodes)
        if self.adaptive:
            yield Problem(("adaptive",), "false with tree_nodes", self.adaptive)

    def _precision_problems(self) -> Iterator[Problem]:
        drafting = ("float32", "int8") if self.engine == "auto" else ("float32", *HALF_PRECISIONS)
        yield from engine_precision(self.engine, self.verifier_precision, "verifier_precision")
        if self.draft_precision not in drafting:
            expected = f"{' or '.join(drafting)} with engine {self.engine}"
            yield Problem(("draft_precision",), expected, self.draft_precision)
        elif self.draft_precision != "float32" and (
            self.looks_up or self.drafts_by == "jacobi" or self.strategy in ("greedy", "sample")
        ):
            expected = "float32 for sampling, and where no network drafts"
            yield Problem(("draft_precision",), expected, self.draft_precision)
        if self.verifier_precision != "float32" and self.strategy in ("draft", "sample"):
            expected = "float32 where nothing is verified" if self.strategy == "draft" else "float32 for sampling"
            yield Problem(("verifier_precision",), expected, self.verifier_precision)


NETWORK, SEARCH = AggressiveConfig, AggressiveSearch
