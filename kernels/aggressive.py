"""Draft and verify (Xia et al. 2022), native, on a CPU: greedy decoding of a Transformer, several tokens a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from kernels.beam import BeamOptions
from kernels.lexicon import Lexicon
from kernels.lexicon import native_arguments as arguments_of
from kernels.transformer import Precision, TransformerShape, WritingRules, expected_arrays, native_arguments, native_precision

if TYPE_CHECKING:
    from fewstep_native import F32, I64

__all__ = ["AggressiveTransformer", "DraftOptions", "Drafted", "Drafter", "Drafts", "Seconds"]


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """A block decoder, which reads the tokens so far with empty slots behind them and fills those at once; or, with `features`, one
    that writes token after token."""

    arrays: Mapping[str, F32]
    """As those of `kernels.Transformer`; `slot_codes` are codes of the tokens' own places (there is no start symbol)."""
    shape: TransformerShape
    shares_encoder: bool
    """It reads what the verifier's encoder says, once encoded; its own encoder is not used."""
    shares_words: bool = False
    """Its target words are the verifier's, whose copy ranks what it writes."""
    lexicon: Lexicon | None = None
    """Of words none of which is banned, the first being EOS: what drafts are chosen among where `DraftOptions.words` and `links`
    say how many. None: always among all words."""
    sight: Literal["all", "prefix"] = "all"
    """Tokens of the prefix see the whole sequence, or what stands before them; empty slots see everything."""
    codes_in_layers: bool = False
    """Codes are added again to the input of every layer but the first."""
    last_token: bool = False
    """Empty slots also carry the last token of the prefix, if there is one."""
    mask: int = 4
    """The word that empty slots carry, unless they carry a soft copy."""
    copy_queries: F32 | None = None
    """[T,D] W P_t: an empty slot t carries sum_s softmax_s(W P_t . (e_s + p_s) / sqrt(D)) e_s over the source's embedded words e
    and position codes p, instead of `mask`."""
    features: F32 | None = None
    """[D,D] W of a decoder that writes token after token (EAGLE, Li et al. 2024): slot t carries the token of slot t - 1 and W s,
    s being the verifier's state that wrote it, or where it was drafted the drafter's own. It has no empty slots."""


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """What is proposed, and what of it is kept."""

    proposals: Literal["network", "lookup", "nothing"] = "network"
    """Blocks of the drafter; what follows the last n-gram in a hint or earlier in the output; or nothing, which is greedy
    decoding."""
    verify: bool = True
    """False: the drafter alone writes, block after block, until one holds EOS."""
    width: int = 5
    """Tokens of a block at most (k)."""
    adaptive: bool = False
    """The next block is two tokens wider after one that was kept whole, and one narrower otherwise; between 1 and k."""
    words: int = 0
    """The drafter chooses among so many of its common words at most; 0: among all words."""
    links: int = 0
    """And, above 0, among so many that each word of the source is linked to."""
    confidence: float = 0.0
    """A drafter that writes token after token ends a block with the token that makes its probability fall below this, by its own
    reckoning among `words`."""
    precision: Literal["fp32", "int8"] = "fp32"
    """What the drafter multiplies in: floats; or weights and values of 8 bits, which ask for a quarter of the memory."""
    ngram: int = 3
    """Longest n-gram that is looked up."""
    ranks: int = 1
    """beta: a drafted token is kept if its log-probability is at least that of the verifier's beta-th best (equation 6)."""
    gap: float = 0.0
    """tau: and at most this far below the best, in nats (equation 7)."""
    strict_end: bool = True
    """A drafted EOS is kept only if it is the verifier's best."""
    worthwhile: float = 0.0
    """Tokens that a sentence's blocks must yield on average, after three, for its drafting to go on; else it is written
    greedily."""
    bos: int = 1


class Drafted(NamedTuple):
    """What was found for a sentence."""

    score: float
    tokens: list[int]
    """Without EOS."""
    steps: int
    """Passes of the verifier; of the drafter where it writes alone."""
    margin: float
    """Smallest gap, in nats, between the best and the second word of a slot."""
    drafted: int
    """Drafted tokens that were verified (EOS counts)."""
    accepted: int
    """Drafted tokens that were kept."""
    fell_back: bool
    """Drafting did not pay: the rest was written token by token."""
    tried: list[int]
    """[k] by place in a block: how often all drafts before it were kept."""
    kept: list[int]
    """[k] and how often then the draft there was kept too."""


class Seconds(NamedTuple):
    """Where the time went, summed over threads."""

    encoder: float
    """The verifier's, with what decoders read of it, and the words that drafts are chosen among."""
    drafter_encoder: float
    """The drafter's own."""
    drafter: float
    verifier: float
    rest: float
    """Acceptance and bookkeeping."""


class Drafts(NamedTuple):
    """Outcomes of a batch."""

    outcomes: list[Drafted]
    seconds: Seconds


class AggressiveTransformer:
    """A verifier and a drafter whose weights were copied and laid out once; it may be used from several threads at a time.

    The tokens of a sentence are the same to the last bit alone, in any batch, and with any number of threads; with `ranks` 1 they,
    their score and their margin are those that `kernels.Transformer.greedy` finds with the verifier, whatever is drafted.
    """

    def __init__(
        self,
        arrays: Mapping[str, F32],
        *,
        shape: TransformerShape,
        precision: Precision = "fp32",
        drafter: Drafter | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """`arrays`, `shape`, `precision` and `lexicon` of the verifier as `kernels.Transformer` takes them. Raises ValueError that
        names what does not fit."""
        import numpy as np

        from kernels.native import fewstep_native

        self.shape = shape
        wanted, numbers = _checked("verifier", arrays, shape)
        drafted: dict[str, F32] = {}
        sizes: dict[str, int] = {}
        queries: F32 = np.zeros(0, dtype=np.float32)
        features: F32 = np.zeros(0, dtype=np.float32)
        if drafter is not None:
            drafted, sizes = _checked("drafter", drafter.arrays, drafter.shape)
            if drafter.shares_encoder and drafter.shape.width != shape.width:
                raise ValueError(
                    f"drafter: expected the verifier's width {shape.width} to share its encoder, got {drafter.shape.width}"
                )
            if sizes["target_vocabulary"] != numbers["target_vocabulary"]:
                raise ValueError(
                    f"drafter: expected the verifier's {numbers['target_vocabulary']} words, got {sizes['target_vocabulary']}"
                )
            if drafter.copy_queries is not None:
                queries = np.ascontiguousarray(drafter.copy_queries, dtype=np.float32)
                if queries.shape != (sizes["slots"], drafter.shape.width):
                    raise ValueError(f"copy_queries: expected [{sizes['slots']},{drafter.shape.width}], got {list(queries.shape)}")
            if drafter.features is not None:
                features = np.ascontiguousarray(drafter.features, dtype=np.float32)
                if features.shape != 2 * (shape.width,) or drafter.shape.width != shape.width:
                    raise ValueError(
                        f"features: expected [{shape.width},{shape.width}] for a drafter as wide as its verifier ({shape.width}), "
                        f"got {list(features.shape)} and {drafter.shape.width}"
                    )
        self._native = fewstep_native.make_aggressive(
            wanted,
            numbers,
            drafted,
            sizes,
            shares_encoder=drafter is not None and drafter.shares_encoder,
            shares_words=drafter is not None and drafter.shares_words,
            sight="all" if drafter is None else drafter.sight,
            codes_in_layers=drafter is not None and drafter.codes_in_layers,
            last_token=drafter is not None and drafter.last_token,
            mask=-1 if drafter is not None and drafter.copy_queries is not None else 4 if drafter is None else drafter.mask,
            copy_queries=queries.reshape(-1),
            features=features.reshape(-1),
            **arguments_of(None if drafter is None else drafter.lexicon),
            **{f"verifier_{name}": part for name, part in arguments_of(lexicon).items()},
            precision=native_precision(precision),
        )

    def __call__(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: WritingRules,
        drafts: DraftOptions,
        hints: Sequence[Sequence[int]] = (),
        threads: int = 1,
    ) -> Drafts:
        """One hypothesis for each of `sources` [B,S] int64, of which the first `lengths` [B] ids count; at most `limits` [B] tokens
        with EOS. `hints` (lookup only): ids of each sentence that an n-gram is looked up in. Of `options` only the length penalty
        and EOS are read. Raises ValueError for what does not fit, as `kernels.Transformer.greedy` does.
        """
        outcomes, seconds = self._native.run(
            sources,
            lengths,
            limits,
            [list(hint) for hint in hints],
            proposals=drafts.proposals,
            verify=drafts.verify,
            width=drafts.width,
            adaptive=drafts.adaptive,
            draft_shortlist_tokens=drafts.words,
            draft_shortlist_links=drafts.links,
            confidence=drafts.confidence,
            int8=drafts.precision == "int8",
            ngram=drafts.ngram,
            top_k=drafts.ranks,
            max_logprob_gap=drafts.gap,
            require_top1_eos=drafts.strict_end,
            min_tokens_per_pass=drafts.worthwhile,
            alpha=options.length_penalty,
            gnmt=options.gnmt,
            shortlist_tokens=rules.shortlist_words,
            shortlist_links=rules.shortlist_links,
            banned=rules.banned,
            bos=drafts.bos,
            eos=options.eos,
            min_tokens=rules.min_tokens,
            threads=threads,
        )
        return Drafts([Drafted(*outcome) for outcome in outcomes], Seconds(*seconds))


def _checked(what: str, arrays: Mapping[str, F32], shape: TransformerShape) -> tuple[dict[str, F32], dict[str, int]]:
    """The arrays that are needed, contiguous, and the numbers of the shape. Raises ValueError."""
    try:
        given = native_arguments(arrays, expected_arrays(shape, "source_embedding" in arrays), shape)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    return given.pop("arrays"), {name: int(number) for name, number in given.items()}
