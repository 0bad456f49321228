"""Draft and verify (Xia et al. 2022), native, on a CPU: greedy decoding of a Transformer with several tokens per pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fewstep.native import fewstep_native
from fewstep.networks.arrays import Precision, TransformerShape, expected_arrays, native_arguments
from fewstep.networks.transformer import SlotRules
from fewstep.search.beam import BeamOptions
from fewstep.shortlist import Lexicon
from fewstep.shortlist import native_arguments as lexicon_arguments
from fewstep.vocabulary import MASK

if TYPE_CHECKING:
    from fewstep_native import F32, I64


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """A drafting network: a block decoder, which reads the tokens so far followed by empty slots and fills these at once, or, with
    `sight` "causal", a decoder that writes token after token."""

    arrays: Mapping[str, F32]
    """Arrays as for `fewstep.Transformer`; `slot_codes` are the position codes of the tokens themselves (no start symbol)."""
    shape: TransformerShape
    shares_encoder: bool
    """Read the output of the verifier's encoder instead of running a separate encoder."""
    shares_words: bool = False
    """Use the verifier's target embedding for the logits; both must be equal."""
    lexicon: Lexicon | None = None
    """Tokens, none of them banned and the first one EOS, among which drafts are chosen, limited by `DraftOptions.shortlist_tokens`
    and `shortlist_links`; None: always among all tokens."""
    sight: Literal["all", "prefix", "causal"] = "all"
    """The tokens to which tokens of the prefix attend: the whole sequence, or the tokens before them; empty slots attend to
    everything. `causal`: there are no empty slots; slot t carries the token of slot t - 1 and attends to the slots up to itself, as
    in a draft model (Leviathan et al. 2023) or, with `features`, in EAGLE (Li et al. 2024)."""
    codes_in_layers: bool = False
    """Add the position codes again to the input of every layer but the first."""
    last_token: bool = False
    """Add the last token of the prefix, if there is one, to the input of empty slots."""
    mask: int = MASK
    """Input token of empty slots, unless they carry a soft copy."""
    copy_queries: F32 | None = None
    """[T,D] W P_t: the input of an empty slot t is sum_s softmax_s(W P_t . (e_s + p_s) / sqrt(D)) e_s over the source embeddings e
    and position codes p, instead of `mask`."""
    features: F32 | None = None
    """[D,D] W of a decoder with `sight` "causal": slot t carries the token of slot t - 1 and W s, where s is the state that this
    token was predicted from, the verifier's or, for a drafted token, the drafter's own."""
    heads: F32 | None = None
    """[k D,D] W of k heads on the verifier (Medusa, Cai et al. 2024): head i drafts the i-th token of a block from h + SiLU(W_i h +
    b_i), where h is the verifier's state that the last token was predicted from. The drafter's own layers are not read."""
    heads_bias: F32 | None = None
    """[k D] b of the heads."""


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """The proposal and acceptance of drafts."""

    proposals: Literal["network", "lookup", "jacobi", "nothing"] = "network"
    """Source of drafts: the drafter; the continuation of the last n-gram in a hint or earlier in the output; the verifier's own
    tokens in the slots that its last pass rejected (Jacobi decoding, Santilli et al. 2023); or no source, which gives greedy
    decoding."""
    verify: bool = True
    """Verify the drafts. If False, the drafter writes alone, block after block, until a block holds EOS."""
    width: int = 5
    """Maximum tokens of a block (k)."""
    adaptive: bool = False
    """Make the next block two tokens wider after a block that was accepted as a whole and one narrower otherwise, from 1 to k."""
    tree_nodes: int = 0
    """Draft trees of this number of tokens, the paths of highest probability (SpecInfer, Miao et al. 2024; with a drafter that
    writes token after token EAGLE-2, Li et al. 2024); 0: chains. Only with `top_k` 1 and without `adaptive`."""
    tree_branches: int = 4
    """Number of best tokens after each node that a tree chooses from, and of nodes of each depth that a drafter which writes token
    after token expands."""
    shortlist_tokens: int = 0
    """Draft among at most this many of the drafter's frequent tokens; 0: among all tokens."""
    shortlist_links: int = 0
    """With a shortlist, also among this many translations of each source token."""
    confidence: float = 0.0
    """A drafter that writes token after token ends a block with the token at which the block's probability, as estimated by the
    drafter among the shortlist, falls below this."""
    precision: Literal["float32", "int8"] = "float32"
    """Precision of the drafter's products: float32, or int8 weights and activations, which need a quarter of the bandwidth."""
    ngram: int = 3
    """Maximum order of the n-gram that is looked up."""
    top_k: int = 1
    """The rank beta: a drafted token is accepted only if its log-probability is at least that of the verifier's beta-th best token
    (equation 6)."""
    max_logprob_gap: float = 0.0
    """The tolerance tau, in nats: a drafted token is accepted only if its log-probability is at most tau below that of the
    verifier's best token (equation 7)."""
    require_top1_eos: bool = True
    """Accept a drafted EOS only if it is the verifier's best token."""
    min_tokens_per_pass: float = 0.0
    """Mean tokens per block that a sentence must gain, checked after three blocks; with fewer, the rest is decoded greedily."""
    bos: int = 1


class DraftOutcome(NamedTuple):
    """The result for one sentence."""

    score: float
    tokens: list[int]
    """The tokens of the output, without EOS."""
    steps: int
    """Passes of the verifier, or of a drafter that writes alone."""
    margin: float
    """The smallest gap, in nats, between the best and the second token of a slot."""
    drafted: int
    """Number of drafted tokens that were verified, EOS included."""
    accepted: int
    """Number of drafted tokens that were accepted."""
    fell_back: bool
    """True if drafting gained too little and the rest was decoded greedily."""
    proposed_at: list[int]
    """[k] number of drafts at each position of a block whose predecessors in the block were all accepted."""
    accepted_at: list[int]
    """[k] number of the drafts of `proposed_at` that were accepted."""


class Seconds(NamedTuple):
    """Seconds spent in each part, summed over threads."""

    encoder: float
    """The verifier's encoder, the projection of its output for both decoders, and the shortlists of drafts."""
    drafter_encoder: float
    """The drafter's own encoder."""
    drafter: float
    verifier: float
    rest: float
    """Acceptance and bookkeeping."""


class Drafts(NamedTuple):
    """The results of a batch."""

    outcomes: list[DraftOutcome]
    seconds: Seconds


class AggressiveTransformer:
    """A verifier and a drafter whose weights were copied and packed once; several threads may use them at the same time.

    The tokens of a sentence are identical alone, in any batch, and with any number of threads. With `top_k` 1, tokens, score and
    margin equal those of `fewstep.Transformer.greedy` with the verifier bit for bit, whatever is drafted.
    """

    def __init__(
        self,
        arrays: Mapping[str, F32],
        *,
        shape: TransformerShape,
        precision: Precision = "float32",
        drafter: Drafter | None = None,
        lexicon: Lexicon | None = None,
        beside: AggressiveTransformer | None = None,
    ) -> None:
        """Build the pair; `arrays`, `shape`, `precision` and `lexicon` describe the verifier as for `fewstep.Transformer`.

        `beside` is a pair with another drafter and an equal verifier, which both then share.

        Raises ValueError that names the arrays and sizes that do not fit.
        """
        self.shape = shape
        wanted, sizes = _checked("verifier", arrays, shape)
        drafter_arrays, drafter_sizes = ({}, {}) if drafter is None else _checked("drafter", drafter.arrays, drafter.shape)
        if drafter is not None:
            _check_pair(drafter, drafter_sizes, shape, sizes)
        mask = MASK if drafter is None else drafter.mask
        if drafter is not None and drafter.copy_queries is not None:
            mask = -1
        shared: dict[str, Any] = {} if beside is None else {"beside": beside._native}
        self._native: fewstep_native.AggressiveTransformer = fewstep_native.make_aggressive(
            wanted,
            sizes,
            drafter_arrays,
            drafter_sizes,
            shares_encoder=drafter is not None and drafter.shares_encoder,
            shares_words=drafter is not None and drafter.shares_words,
            sight="all" if drafter is None else drafter.sight,
            codes_in_layers=drafter is not None and drafter.codes_in_layers,
            last_token=drafter is not None and drafter.last_token,
            mask=mask,
            copy_queries=_flat(None if drafter is None else drafter.copy_queries),
            features=_flat(None if drafter is None else drafter.features),
            heads=_flat(None if drafter is None else drafter.heads),
            heads_bias=_flat(None if drafter is None else drafter.heads_bias),
            **lexicon_arguments(None if drafter is None else drafter.lexicon),
            **{f"verifier_{name}": part for name, part in lexicon_arguments(lexicon).items()},
            precision=precision,
            **shared,
        )

    def __call__(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: SlotRules,
        drafts: DraftOptions,
        hints: Sequence[Sequence[int]] = (),
        threads: int = 1,
    ) -> Drafts:
        """Return one hypothesis per source.

        `sources` [B,S] int64 are padded to the right of their `lengths` [B]; `limits` [B] are maximum output lengths in tokens with
        EOS. `hints` (for the proposals "lookup") are ids in which the n-grams of each sentence are looked up. Of `options` only the
        length penalty and EOS are read. Raises ValueError as `fewstep.Transformer.greedy` does.
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
            tree_nodes=drafts.tree_nodes,
            tree_branches=drafts.tree_branches,
            draft_shortlist_tokens=drafts.shortlist_tokens,
            draft_shortlist_links=drafts.shortlist_links,
            confidence=drafts.confidence,
            int8=drafts.precision == "int8",
            ngram=drafts.ngram,
            top_k=drafts.top_k,
            max_logprob_gap=drafts.max_logprob_gap,
            require_top1_eos=drafts.require_top1_eos,
            min_tokens_per_pass=drafts.min_tokens_per_pass,
            alpha=options.length_penalty,
            gnmt=options.gnmt,
            shortlist_tokens=rules.shortlist_tokens,
            shortlist_links=rules.shortlist_links,
            banned=rules.banned,
            bos=drafts.bos,
            eos=options.eos,
            min_tokens=rules.min_tokens,
            threads=threads,
        )
        return Drafts([DraftOutcome(*outcome) for outcome in outcomes], Seconds(*seconds))


def _flat(matrix: F32 | None) -> F32:
    import numpy as np

    return np.zeros(0, dtype=np.float32) if matrix is None else np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1)


def _checked(network: str, arrays: Mapping[str, F32], shape: TransformerShape) -> tuple[dict[str, F32], dict[str, int]]:
    """Return the arrays of a network, contiguous, and its sizes. Raises ValueError that names the network."""
    try:
        given = native_arguments(arrays, expected_arrays(shape, "source_embedding" in arrays), shape)
    except ValueError as error:
        raise ValueError(f"{network}: {error}") from error
    return given["arrays"], given["shape"]


def _check_pair(drafter: Drafter, sizes: Mapping[str, int], shape: TransformerShape, verifier: Mapping[str, int]) -> None:
    """Raise ValueError if the drafter does not fit a verifier of `shape` and these sizes."""
    width = drafter.shape.width
    if drafter.shares_encoder and width != shape.width:
        raise ValueError(f"drafter: expected the verifier's width {shape.width} to share its encoder, got {width}")
    if sizes["target_vocabulary"] != verifier["target_vocabulary"]:
        raise ValueError(
            f"drafter: expected the verifier's {verifier['target_vocabulary']} target tokens, got {sizes['target_vocabulary']}"
        )
    queries, features = drafter.copy_queries, drafter.features
    if queries is not None and queries.shape != (sizes["slots"], width):
        raise ValueError(f"copy_queries: expected [{sizes['slots']},{width}], got {list(queries.shape)}")
    if features is not None and (features.shape != 2 * (shape.width,) or width != shape.width):
        raise ValueError(
            f"features: expected [{shape.width},{shape.width}] for a drafter as wide as its verifier ({shape.width}), "
            f"got {list(features.shape)} and {width}"
        )
    heads, bias = drafter.heads, drafter.heads_bias
    if heads is not None and (bias is None or width != shape.width or heads.shape != (bias.size, width) or bias.size % width):
        got = f"{list(heads.shape)} and {None if bias is None else list(bias.shape)}"
        raise ValueError(f"heads: expected [k {shape.width},{shape.width}] and a bias of [k {shape.width}], got {got}")
