"""Sizes, generation order and searches of the `stepwise` family (methods: Zhang et al. 2020; Imamura & Sumita 2020)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from models.common.limits import MOST, MOST_LINKS
from models.common.network import NetworkConfig
from models.stepwise.orders import ORDERS, Mask, Order, OrderName, SlotPositions, Start, Stop, Tail


@dataclass(frozen=True, kw_only=True)
class StepwiseConfig(NetworkConfig):
    """A Transformer encoder-decoder that writes its target step by step."""

    order: OrderName = "autoregressive"
    """Name of the order in which target tokens are written; the next eight keys change what it says."""
    directions: Annotated[int, Ge(1)] | None = None
    """Directions written side by side (h); empty: as the order says."""
    tokens_per_direction: Annotated[int, Ge(1)] | None = None
    """Tokens of each direction in a step (c); empty: as the order says."""
    step_size: Annotated[int, Ge(1)] | None = None
    """Tokens that one call of the decoder writes (z): h c, or 1; empty: as the order says."""
    mask: Mask | None = None
    """What a slot of the decoder sees: steps up to its own, slots up to its own, or its direction; empty: as the order says."""
    target_positions: SlotPositions | None = None
    """Position code of decoder slots; empty: as the order says."""
    tail: Tail | None = None
    """Are the slots that EOS leaves over in its step trained to write EOS (`fill`)? Empty: as the order says."""
    start: Start | None = None
    """What the slots of the first step carry; empty: as the order says."""
    stop: Stop | None = None
    """What ends an output: the first EOS in writing order, or EOS in either direction; empty: as the order says."""

    def generation(self) -> Order:
        """The order with what is changed of it. Raises ValueError that names what does not go together."""
        named = ORDERS[self.order]
        stated = {field.name: getattr(self, field.name, None) for field in fields(Order)}
        changes: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
        if named.step_size == named.directions * named.tokens_per_direction:
            changes = {"step_size": 0, **changes}
        return replace(named, **changes)


@dataclass(frozen=True, kw_only=True)
class StepwiseSearch:
    """A decoding strategy with its options."""

    strategy: Literal["greedy", "beam", "sample"] = "greedy"
    """Best token in each slot, beam search, or nucleus sampling."""
    beam_size: Annotated[int, Ge(1)] = 5
    """Hypotheses kept alive per sentence (beam only)."""
    selection: Literal["exact", "outer", "double-top-k"] = "exact"
    """How steps of several tokens are ranked (beam only): exactly, or by the approximations of Zhang et al. 2020 (`outer`) or of
    Imamura & Sumita 2020 (`double-top-k`, two tokens)."""
    length_penalty: Annotated[float, Ge(0)] = 1.0
    """Exponent alpha of the length normalisation (beam only); 0 ranks by plain log-probability."""
    length_penalty_form: Literal["power", "gnmt"] = "power"
    """score / tokens^alpha, or score / ((5 + tokens) / 6)^alpha (Wu et al. 2016); tokens count EOS."""
    prune: Annotated[float, Ge(0)] | None = None
    """Hypotheses whose log-probability is more than so many nats below the highest of their sentence are dropped: most steps then
    have fewer than `beam_size` (beam only; Freitag and Al-Onaizan 2017). Empty: none."""
    n_best: Annotated[int, Ge(1)] = 1
    """Hypotheses returned per sentence: at most `beam_size` with beam (with `prune` there may be fewer), any number of samples, one
    with greedy."""
    temperature: Annotated[float, Gt(0)] = 1.0
    """What logits are divided by before sampling (sample only)."""
    top_p: Annotated[float, Gt(0), Le(1)] = 0.9
    """Probability of the likeliest tokens that are sampled from (sample only); 1: all."""
    seed: Annotated[int, Ge(0)] = 1
    """Seed of sampling; a sentence's samples depend on it and on the sentence alone."""
    max_extra_tokens: Annotated[int, Ge(0)] = 50
    """Longest output in tokens, EOS included: source tokens with EOS plus this many."""
    min_tokens: Annotated[int, Ge(1)] = 1
    """Shortest output in tokens, without EOS."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Longest output in tokens, EOS included, whatever the source; empty: no other limit than the above."""
    allow_unknown: bool = False
    """May the output hold the unknown token?"""
    shortlist_words: Annotated[int, Ge(8), Le(MOST)] | None = None
    """Words are chosen, and their probabilities normalised, among so many common ones and those that words of the source are
    linked to (a lexical shortlist; Jean et al. 2015, section 3.3): a fraction of the vocabulary, which is quicker to rank. Both
    are counted, by word alignment, in what the system learns from. Empty: among all words."""
    shortlist_links: Annotated[int, Ge(0), Le(MOST_LINKS)] = 16
    """Words that each word of the source brings to the list, with one vocabulary for both sides itself first."""
    engine: Literal["auto", "torch", "ctranslate2"] = "auto"
    """What decodes: native code where the system is on a CPU, else torch; torch anywhere; or CTranslate2 (the extra `ctranslate2`),
    which knows autoregressive networks, greedy and beam search, and the power form of the length penalty."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """Of products with weights. Natively bfloat16 is that of layers, quicker where there are instructions for it (AVX512-BF16) and
    slower elsewhere, and int8 that of what ranks words, too; attention stays float32, and there is no float16. CTranslate2 knows
    all (a CPU may lack the halves); torch computes in float32 alone."""
    rescore: bool = True
    """Compute CTranslate2's scores anew, which takes one more pass: its own are those among the tokens that may be written, which
    another engine's are not."""
    ngram_weight: Annotated[float, Ge(0)] = 0.0
    """Weight of how much likelier, by the run's n-gram model (`ngram`), two words of a step are side by side than by themselves
    (greedy, which offers the four best words of each slot, and beam; orders that write neighbours in a step). 0: each slot for
    itself."""
    end_threshold: Annotated[float, Ge(0), Lt(1)] = 0.0
    """An output ends at the first slot of a step by which it has ended with at least this probability (greedy only). 0: where EOS
    is likelier than any token."""
    deduplicate: bool = False
    """Delete the second copy of equal n-grams side by side, of up to four tokens, from outputs; scores stay as they were."""

    @property
    def penalises_length(self) -> bool:
        """Does `length_penalty` change what is found?"""
        return self.strategy == "beam"

    @property
    def chooses_jointly(self) -> bool:
        """Do the slots of a step know of each other?"""
        return bool(self.ngram_weight or self.end_threshold)

    @property
    def name(self) -> str:
        """How this search is called in steps and tables."""
        name = f"beam{self.beam_size}" if self.strategy == "beam" else self.strategy
        if self.strategy == "sample" and self.temperature != 1:
            name = f"sample-t{self.temperature:g}"
        if self.engine != "auto":
            name = f"{name}-ct2-{self.precision}" if self.engine == "ctranslate2" else f"{name}-{self.engine}"
        elif self.precision != "float32":
            name = f"{name}-{self.precision}"
        if self.strategy == "beam" and self.prune is not None:
            name += f"-prune{self.prune:g}"
        if self.shortlist_words is not None:
            name += f"-list{self.shortlist_words}x{self.shortlist_links}"
        if self.ngram_weight:
            name += "-lm"
        if self.end_threshold:
            name += f"-end{self.end_threshold:g}"
        return f"{name}-dedup" if self.deduplicate else name


LEFTWARD = {"l2r": (False,), "r2l": (True,), "fold": (False, True)}
"""By arrangement and direction: do its tokens come in the output before those that it wrote earlier?"""


def misfit(order: Order, search: StepwiseSearch) -> tuple[str, str, float] | None:
    """What of a search does not go with an order: the field, what was expected, what was got."""
    if search.ngram_weight and (order.arrangement not in LEFTWARD or min(order.tokens_per_direction, order.step_size) == 1):
        return "ngram_weight", "0 for an order that writes no two neighbours in a step", search.ngram_weight
    if search.ngram_weight and search.strategy == "beam" and (search.selection != "exact" or order.stop != "first-eos"):
        return "ngram_weight", "0 unless selection is exact and the first EOS ends an output", search.ngram_weight
    if search.end_threshold and (order.step_size == 1 or order.stop != "first-eos"):
        return "end_threshold", "0 for an order that writes one token a step, or ends in either direction", search.end_threshold
    return None
