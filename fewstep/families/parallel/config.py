"""Sizes, objective and searches of the `parallel` family: one-shot decoders (Gu et al. 2018), glancing (Qian et al. 2021), CTC
(Libovicky and Helcl 2018) and Mask-Predict (Ghazvininejad et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, cast

from fewstep.config.bounds import MAX_WEIGHT, Ge, Le
from fewstep.config.network import NetworkConfig
from fewstep.config.options import (
    MAX_CELLS,
    MAX_EXPONENT,
    MAX_HYPOTHESES,
    NucleusSampling,
    Precision,
    Shortlist,
    engine_precision,
)
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, Workload
from fewstep.vocabulary import BLANK, EOS, RESERVED, UNK

SlotInput = Literal["mask", "uniform", "soft", "repeat", "gaussian"]

LENGTH_CLASSES = 256
"""The number of classes of the length predictor."""
MAX_PREFIXES, MAX_CANDIDATES = 4096, 1024
"""Most prefixes, and most candidates, of a slot."""

INPUTS: dict[str, tuple[SlotInput, ...]] = {
    "nat": ("uniform", "mask", "soft"),
    "glat": ("uniform", "mask", "soft"),
    "ctc": ("repeat", "gaussian"),
    "ctc-glat": ("repeat", "gaussian"),
    "ctc-ngram": ("repeat", "gaussian"),
    "cmlm": ("mask",),
}
"""The inputs that slots may have with each objective, the default first."""


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(NetworkConfig):
    """A Transformer whose decoder writes all slots of a target at once; every slot attends to all slots."""

    objective: Literal["nat", "glat", "ctc", "ctc-glat", "ctc-ngram", "cmlm"] = "ctc-glat"
    """Objective: one token for each slot of the target (`nat`), some slots of which are shown their token in training (`glat`); all
    alignments of the target with more slots than tokens (`ctc`), some of which are shown the best one (`ctc-glat`); the bigrams
    that these alignments are expected to share with the target (`ctc-ngram`, for networks that another CTC objective has trained);
    or the hidden tokens of a partly hidden target (`cmlm`), which Mask-Predict needs."""
    slot_input: SlotInput | None = None
    """Input of an empty slot: the mask token; the embedding of the source token at the same relative position (`uniform`); a
    mixture of source embeddings around that position (`soft`; Wei et al. 2019); with CTC the embedding of slot / `upsampling`
    (`repeat`), or a mixture around that position (`gaussian`; Gu and Kong 2021). Empty: `uniform`, with CTC `repeat`, and the mask
    token with `cmlm`, which has no other."""
    copy_temperature: Annotated[float, Ge(0.001), Le(1000)] = 0.3
    """Temperature of the mixtures of source embeddings; the lower, the fewer source tokens are in a mixture."""
    upsampling: Annotated[float, Ge(1), Le(8)] = 2.0
    """Number of slots for each source token, EOS included (CTC only)."""
    length_prediction: Literal["difference", "absolute"] = "difference"
    """Quantity that the network predicts of the target's length (all objectives but CTC): its difference to the source's, from -128
    to 127, or the length itself, up to 255."""
    length_loss_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.1
    """Weight of the length's cross-entropy in the loss, where lengths are predicted."""
    glancing_ratio: Annotated[float, Ge(0), Le(1)] = 0.5
    """Share of the number of slots that are still wrong whose tokens are shown in training with glancing, at the first update."""
    glancing_ratio_end: Annotated[float, Ge(0), Le(1)] = 0.3
    """The share from update `glancing_updates` on; it changes linearly until then."""
    glancing_updates: Annotated[int, Ge(1)] = 20000
    """Updates over which the share changes."""
    glancing_count: Literal["floor", "poisson", "bernoulli"] = "floor"
    """Number of slots that are shown: the share of the wrong ones, rounded down; a Poisson number with this mean; or each slot
    independently, with this mean."""
    glancing_same_dropout: bool = True
    """Whether the pass that finds wrong slots drops the same units as the pass that trains."""

    activation: Literal["relu", "gelu", "swish"] = "gelu"
    """Activation of the feed-forward blocks."""

    @property
    def uses_ctc(self) -> bool:
        """Whether a target may have several alignments with the slots."""
        return self.objective in ("ctc", "ctc-glat", "ctc-ngram")

    @property
    def glances(self) -> bool:
        """Whether slots are shown their tokens in training."""
        return self.objective in ("glat", "ctc-glat")

    @property
    def input(self) -> SlotInput:
        """The input of an empty slot."""
        return self.slot_input or INPUTS[self.objective][0]

    @property
    def training_rows(self) -> float:
        """Slots for each token, with one more pass forward for glancing."""
        slots = self.upsampling if self.uses_ctc else 1.0
        return slots * 4 / 3 if self.glances else slots

    @property
    def max_slots(self) -> int:
        """The largest number of slots."""
        return math.ceil(self.upsampling * self.max_positions - SLOT_TOLERANCE) if self.uses_ctc else self.max_positions

    @property
    def min_slots(self) -> int:
        """The smallest number of slots that are decoded; Mask-Predict writes at least one token and EOS."""
        return 2 if self.objective == "cmlm" else 1

    @property
    def length_offset(self) -> int:
        """The class of a target that is as long as its source."""
        return LENGTH_CLASSES // 2 if self.length_prediction == "difference" else 0

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        allowed = INPUTS[self.objective]
        if self.input not in allowed:
            yield Problem(("slot_input",), f"{' or '.join(allowed)} with objective {self.objective}", self.input, allowed)


SLOT_TOLERANCE = 1e-6
"""The distance below which a product of lengths and `upsampling` is an integer."""


@dataclass(frozen=True, kw_only=True)
class ParallelSearch(SearchConfig):
    """The number of slots, the number of passes, and the choice of tokens."""

    strategy: Literal["greedy", "mask-predict", "prefix-beam", "sample"] = "greedy"
    """The most probable token of each slot, in one pass; the same, with the least certain tokens hidden and predicted again in
    further passes (networks of objective `cmlm`); beam search over texts, which adds up alignments (CTC); or alignments whose slots
    are drawn (CTC)."""
    n_best: Annotated[int, Ge(1), Le(MAX_HYPOTHESES)] = 1
    """Number of hypotheses returned for each sentence."""
    iterations: Annotated[int, Ge(1), Le(256)] = 10
    """Number of passes (mask-predict only)."""
    length_candidates: Annotated[int, Ge(1), Le(LENGTH_CLASSES)] = 1
    """Number of target lengths that are decoded for each sentence, of which one is chosen by `rescoring` (not with CTC)."""
    length_choice: Literal["probable", "around"] = "probable"
    """These lengths: the most probable ones, or those around the most probable one."""
    rescoring: Literal["self", "system"] = "self"
    """Score that chooses among lengths: the mean log-probability of the tokens, or that of the text by the system named
    `rescorer` (noisy parallel decoding, Gu et al. 2018)."""
    beam_size: Annotated[int, Ge(1), Le(MAX_PREFIXES)] = 20
    """Number of prefixes that are kept at each slot (prefix-beam only)."""
    candidates: Annotated[int, Ge(1), Le(MAX_CANDIDATES)] = 20
    """Number of best tokens of each slot that extend a prefix (prefix-beam), or that it is drawn from beside the blank (sample)."""
    sampling: NucleusSampling = field(default_factory=NucleusSampling)
    """Options of the strategy `sample`."""
    ngram_weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 0.0
    """Weight of the n-gram model's natural log-probability (prefix-beam only)."""
    token_bonus: Annotated[float, Ge(-MAX_WEIGHT), Le(MAX_WEIGHT)] = 0.0
    """Per-token bonus that offsets the bias of summed log-probabilities towards short outputs (prefix-beam only)."""
    length_penalty: Annotated[float, Ge(0), Le(MAX_EXPONENT)] = 0.0
    """Exponent of the length, with EOS, that final scores are divided by (prefix-beam only)."""
    allow_unknown: bool = False
    """Whether an output may contain the unknown token."""
    shortlist: Shortlist | None = None
    """A lexical shortlist that tokens are chosen from. Empty: all tokens."""
    deduplicate: bool = False
    """Write a token that comes twice in a row once. CTC has a rule of its own."""
    engine: Literal["auto", "torch"] = "auto"
    """Engine that decodes: native code on a CPU and torch elsewhere (`auto`), or torch."""
    precision: Precision = "float32"
    """Arithmetic of products with weights. On a CPU bfloat16 applies to layers, which is faster with AVX512-BF16 and slower
    without; int8 applies to the ranking of tokens as well. Torch, which decodes on a GPU, has float32, and on a GPU float16 and
    bfloat16."""

    @classmethod
    def for_network(cls, network: NetworkConfig) -> Self:
        """Return the search that the network is validated with."""
        return cls(strategy="mask-predict") if cast(ParallelConfig, network).objective == "cmlm" else cls()

    @property
    def penalises_length(self) -> bool:
        """Whether `length_penalty` changes the result."""
        return self.strategy == "prefix-beam"

    @property
    def needs_ngram(self) -> bool:
        """Whether the search reads an n-gram model."""
        return self.ngram_weight > 0

    @property
    def needs_tables(self) -> bool:
        """Whether the search reads links between tokens."""
        return self.shortlist is not None

    @property
    def workload(self) -> Workload:
        """The options that decide with which baseline a timing is compared."""
        hypotheses = {"prefix-beam": "beam", "sample": "sample"}.get(self.strategy, "one")
        return Workload(hypotheses, self.engine, self.precision, self.shortlist)

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, with the network (None: not known) or with the system's parts."""
        yield from self._own_problems()
        if network is not None:
            yield from self._network_problems(cast(ParallelConfig, network))
        if self.ngram_weight and self.strategy == "prefix-beam" and parts.ngram is False:
            yield Problem(("ngram_weight",), "0 for a system without an n-gram model (`ngram: {}`)", self.ngram_weight)
        if self.rescoring == "system" and parts.rescorer is False:
            yield Problem(("rescoring",), "self for a system without a `rescorer`", self.rescoring)
        yield from self.shortlist_problems(parts)

    def _own_problems(self) -> Iterator[Problem]:
        if self.strategy == "prefix-beam":
            if self.n_best > self.beam_size:
                yield Problem(("n_best",), f"at most {self.beam_size}, the size of the beam", self.n_best)
        elif self.strategy != "sample" and self.n_best > self.length_candidates:
            yield Problem(("n_best",), f"at most {self.length_candidates}, the number of length_candidates", self.n_best)
        for key in ("ngram_weight", "token_bonus", "length_penalty"):
            if getattr(self, key) and self.strategy != "prefix-beam":
                yield Problem((key,), f"0 with {self.strategy}", getattr(self, key))
        yield from engine_precision(self.engine, self.precision)

    def _network_problems(self, network: ParallelConfig) -> Iterator[Problem]:
        if self.strategy == "mask-predict" and network.objective != "cmlm":
            yield Problem(("strategy",), f"a strategy other than mask-predict with objective {network.objective}", self.strategy)
        if self.strategy in ("prefix-beam", "sample") and not network.uses_ctc:
            expected = f"a strategy other than {self.strategy} with objective {network.objective}"
            yield Problem(("strategy",), expected, self.strategy)
        if not network.uses_ctc:
            return
        cells = max(network.max_slots * self.beam_size, 8 * self.beam_size * self.candidates)  # prefixes, and those of a slot
        if self.strategy == "prefix-beam" and cells > MAX_CELLS:
            most = MAX_CELLS // max(network.max_slots, 8 * self.candidates)
            expected = f"at most {most} with {self.candidates} candidates of {network.max_slots} slots"
            yield Problem(("beam_size",), expected, self.beam_size)
        if self.length_candidates > 1:
            yield Problem(("length_candidates",), "1 with CTC, which predicts no length", self.length_candidates)
        if self.rescoring == "system":
            yield Problem(("rescoring",), "self with CTC", self.rescoring)
        if self.deduplicate:
            yield Problem(("deduplicate",), "false with CTC, which separates equal tokens by blanks", self.deduplicate)


NETWORK, SEARCH = ParallelConfig, ParallelSearch


def separator(config: ParallelConfig) -> int:
    """Return the reserved token that slots may write and outputs do not contain: EOS, or BLANK with CTC."""
    return BLANK if config.uses_ctc else EOS


def impossible(config: ParallelConfig) -> list[int]:
    """Return the reserved tokens that slots never write: their probability is 0, in training and in decoding."""
    return [token for token in range(len(RESERVED)) if token not in (UNK, separator(config))]
