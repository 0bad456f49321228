"""Sizes, block and searches of the `aggressive` family (Xia et al. 2022, generalized aggressive decoding)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from models.common.limits import MOST, MOST_LINKS
from models.common.network import NetworkConfig


@dataclass(frozen=True, kw_only=True)
class AggressiveConfig(NetworkConfig):
    """A drafter: a Transformer whose decoder reads the tokens so far with empty slots behind them, and fills those at once; or a
    layer on top of the verifier that writes token after token."""

    drafting: Literal["parallel", "autoregressive"] = "parallel"
    """parallel: all slots of a block are filled at once (the paper's). autoregressive: one after the other, by one layer that
    reads, beside the token before, the state that the verifier wrote it from, or its own where that token was drafted (EAGLE, Li et
    al. 2024). All sizes are then the verifier's, `encoder` is shared, and what is said below of empty slots does not apply."""
    draft_width: Annotated[int, Ge(1)] = 8
    """Tokens of a block (k), in training and, unless a search says otherwise, in decoding."""
    draft_width_range: tuple[int, int] | None = None
    """Training draws the width of each sentence evenly from this range, lowest and highest: the drafter then knows all of these, as
    an adaptive width needs. Empty: always `draft_width`."""
    encoder: Literal["separate", "shared"] = "separate"
    """Its own encoder, or the verifier's, which stays as it is, is run once for both, and lends its table of words."""
    prefix: Literal["all", "prefix"] = "all"
    """What tokens of the prefix see: all, empty slots too (the paper's), or those before them, so that what was computed is
    kept."""
    soft_copy: bool = True
    """What an empty slot carries: words of the source mixed by attention from its position, or the mask token alone."""
    last_token: bool = False
    """Does an empty slot also carry the last token of the prefix? A shallow drafter writes better with it."""
    layer_positions: bool = True
    """Are position codes added again before every layer of the decoder?"""
    prefixes: Annotated[int, Ge(1)] = 1
    """Prefixes of each target in an update of training, each with its block; the source is read once for all. More teach a drafter
    with a shared encoder more in the same time."""
    glancing_ratio: Annotated[float, Ge(0), Le(1)] = 0.5
    """Of the number of slots that are still wrong, the share that is shown in training at first; 0: none."""
    glancing_ratio_end: Annotated[float, Ge(0), Le(1)] = 0.3
    """The share from update `glancing_updates` on; it changes evenly in between."""
    glancing_updates: Annotated[int, Ge(1)] = 300000
    """Updates over which the share changes."""

    @property
    def widths(self) -> tuple[int, int]:
        """The narrowest and the widest block of training."""
        return self.draft_width_range or (self.draft_width, self.draft_width)


@dataclass(frozen=True, kw_only=True)
class AggressiveSearch:
    """How drafts become an output (sections 3.2 and 3.3)."""

    strategy: Literal["gad", "gad++", "draft", "greedy", "sample"] = "gad"
    """Drafts verified so that the output is the verifier's greedy one; verified more loosely; the drafter alone; the verifier
    alone; or tokens sampled from the verifier, drafts being kept as often as keeps its distribution."""
    drafter: Literal["network", "lookup", "system"] = "network"
    """Who drafts: the trained network; what follows the last n-gram in the source (one vocabulary for both sides) or in the output
    so far; or what follows it in the output of the system's `drafter_system`."""
    mode: Literal["exact", "fast"] = "exact"
    """exact: float32, and queries of the verifier padded to a fixed width, so that greedy and drafted passes sum alike. fast: as
    few queries as there are, where a device has them. On a CPU both are exact."""
    draft_width: Annotated[int, Ge(1)] | None = None
    """Tokens drafted at a time (k); empty: as in training."""
    adaptive: bool = False
    """Draft two more after a block that was kept whole, one fewer otherwise, between 1 and `draft_width`?"""
    draft_words: Annotated[int, Ge(8), Le(MOST)] | None = None
    """The drafter chooses among EOS and so many words in all, those most frequent in its training text; empty: among all."""
    draft_links: Annotated[int, Ge(0), Le(MOST_LINKS)] = 0
    """And among so many words that each word of the source is linked to most often (with one vocabulary for both sides itself
    first), by candidate tables of what the drafter learns from (a lexical shortlist): with these a few hundred `draft_words` hold
    nearly all that is written. They are counted for drafters that have a search with links."""
    draft_precision: Literal["fp32", "int8"] = "fp32"
    """What the drafter multiplies in on a CPU: floats, or weights of 8 bits, read in a quarter of the time. Nothing that is
    verified changes; through torch it is always fp32."""
    verifier_precision: Literal["fp32", "bf16", "int8"] = "fp32"
    """What the verifier multiplies in on a CPU: the output of `gad` is the one that its greedy search finds in the same
    (`precision`). Sampling, and a system that is not decoded natively, know fp32 alone."""
    confidence: Annotated[float, Ge(0), Lt(1)] = 0.0
    """A block ends with the token that makes its probability, as the drafter reckons it, fall below this (autoregressive drafters
    only). 0: blocks are `draft_width` long."""
    ngram: Annotated[int, Ge(1)] = 3
    """Longest n-gram that is looked up (lookup and system only)."""
    ranks: Annotated[int, Ge(1)] = 3
    """A drafted token is kept that is among so many best of the verifier (beta; gad++ only)."""
    gap: Annotated[float, Ge(0)] = 1.0
    """And at most so far below its best, in nats (tau; gad++ only)."""
    strict_end: bool = True
    """Is a drafted end kept only if the verifier ranks it first (gad++ only)? The paper's code keeps others too."""
    worthwhile: Annotated[float, Ge(0)] = 1.5
    """Tokens that drafting must yield a pass, on average over a sentence, after three blocks; with fewer its rest is written
    greedily. 0: always draft."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """What the verifier's logits are divided by before sampling (sample only)."""
    seed: Annotated[int, Ge(0)] = 1
    """Seed of sampling; a sentence's sample depends on it and on the sentence alone."""
    n_best: Annotated[int, Ge(1), Le(1)] = 1
    """Hypotheses returned per sentence."""
    max_extra_tokens: Annotated[int, Ge(0)] = 50
    """Longest output in tokens, EOS included: source tokens with EOS plus this many."""
    min_tokens: Annotated[int, Ge(1)] = 1
    """Shortest output in tokens, without EOS."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Longest output in tokens, EOS included, whatever the source; empty: no other limit than the above."""
    allow_unknown: bool = False
    """May the output hold the unknown token?"""
    shortlist_words: Annotated[int, Ge(8), Le(MOST)] | None = None
    """The verifier chooses, and normalises, among so many common words and those that words of the source are linked to: the output
    of `gad` is the one that its greedy search finds with the same list. Both are counted, by word alignment, in what the drafter
    learns from. Empty: among all words."""
    shortlist_links: Annotated[int, Ge(0), Le(MOST_LINKS)] = 16
    """Words that each word of the source brings to the verifier's list, with one vocabulary for both sides itself first."""

    @property
    def looks_up(self) -> bool:
        """Are drafts copied from a text, rather than written by the network?"""
        return self.strategy in ("gad", "gad++", "sample") and self.drafter != "network"

    @property
    def name(self) -> str:
        """How this search is called in steps and tables."""
        name = f"gadpp{self.ranks}-{self.gap:g}" if self.strategy == "gad++" else self.strategy
        if self.looks_up:
            name += f"-{self.drafter}"
        if self.draft_width is not None and self.strategy != "greedy":
            name += f"-k{self.draft_width}"
        if self.draft_links:
            name += f"-links{self.draft_links}"
        if self.confidence:
            name += f"-c{self.confidence:g}"
        if self.adaptive:
            name += "-adaptive"
        if self.draft_precision != "fp32":
            name += f"-{self.draft_precision}"
        if self.verifier_precision != "fp32":
            name += f"-verifier-{self.verifier_precision}"
        return name if self.shortlist_words is None else f"{name}-list{self.shortlist_words}x{self.shortlist_links}"
