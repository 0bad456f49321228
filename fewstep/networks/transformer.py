"""The Transformer (Vaswani et al. 2017) that writes one or several tokens per step: greedy and beam search, native, on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fewstep.native import fewstep_native
from fewstep.networks.arrays import Precision, TransformerShape, expected_arrays, native_arguments
from fewstep.search.beam import BeamOptions, Outcome
from fewstep.search.coupling import INDEPENDENT_SLOTS, JointStep
from fewstep.shortlist import Lexicon
from fewstep.shortlist import native_arguments as lexicon_arguments

if TYPE_CHECKING:
    from fewstep_native import F32, I64


@dataclass(frozen=True, kw_only=True)
class SlotRules:
    """The attention mask of decoder slots and the tokens that they may hold."""

    mask: Literal["block", "causal", "same-direction"] = "block"
    """The slots that a slot attends to: all of its own and of earlier steps, those up to itself, or those of its direction."""
    directions: int = 1
    """Slots that are equal modulo this number belong to one direction."""
    banned: tuple[int, ...] = (0,)
    """Ids that are never written; the padding id must be among them."""
    min_tokens: int = 1
    """EOS is banned in slots before this one."""
    no_repeat_ngram: int = 0
    """Size of the n-grams of tokens in slots that are equal modulo `directions` that do not occur twice in an output; 0: all may. A
    step may have one slot of each direction."""
    shortlist_tokens: int = 0
    """Choose, and normalise, among this many frequent tokens of the network's lexicon; 0: among all tokens."""
    shortlist_links: int = 0
    """With a shortlist, also among this many translations of each source token."""


BoundSearch = Callable[["I64", "I64", "I64", int], list[Outcome]]
"""A search of sources [B,S], lengths [B], limits [B] and a number of threads, with one outcome per source."""


class Transformer:
    """A network whose weights were copied and packed once; several threads may use it at the same time.

    The outcome of a sentence is bit-identical alone, in any batch, and with any number of threads.
    """

    def __init__(
        self,
        arrays: Mapping[str, F32],
        *,
        shape: TransformerShape,
        precision: Precision = "float32",
        lexicon: Lexicon | None = None,
    ) -> None:
        """Build a network from `arrays`, float32, with matrices [outputs,inputs]. With D, F and the numbers of layers of `shape`:

            target_embedding [V,D]      target tokens; the same matrix computes the output logits
            source_embedding [U,D]      source tokens; if absent, `target_embedding` serves
            source_positions [P,D]      position codes of source tokens
            slot_codes [T,D]            position codes of decoder slots (those of the first step include the start vectors)
            logits_bias [V]             with `shape.logits_bias`; minus infinity for tokens that are never written

        Embeddings are scaled by sqrt(D) with `shape.scale_embeddings`, codes are not. Each of the following has a `.weight` and a
        `.bias` [outputs]:

            {encoder,decoder}.layers.I.attention.projection                 [3D,D]  queries, keys and values
            {encoder,decoder}.layers.I.attention.output                     [D,D]
            {encoder,decoder}.layers.I.feed_forward.widen                   [F,D]
            {encoder,decoder}.layers.I.feed_forward.narrow                  [D,F]
            {encoder,decoder}.layers.I.{attention,feed_forward}_residual.norm   [D]
            decoder.layers.I.cross_attention.queries                        [D,D]
            decoder.layers.I.cross_attention.projection                     [2D,D]  keys and values
            decoder.layers.I.cross_attention.output                         [D,D]
            decoder.layers.I.cross_attention_residual.norm                  [D]
            {encoder,decoder}.norm                                          [D]     with norm "pre"

        Other arrays are ignored. `precision` applies to products with weights: those of layers and, with int8, also the logits;
        attention stays in float32. `lexicon` provides shortlists of target tokens. Raises ValueError for an unknown precision, for
        a lexicon of another vocabulary, and for arrays that are missing or have another shape, all of which the message names.
        """
        self.shape = shape
        wanted = expected_arrays(shape, "source_embedding" in arrays)
        arguments = native_arguments(arrays, wanted, shape) | lexicon_arguments(lexicon)
        self._native = fewstep_native.make_transformer(**arguments, precision=precision)

    def greedy(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: SlotRules,
        threads: int = 1,
        others: Sequence[Transformer] = (),
        joint: JointStep = INDEPENDENT_SLOTS,
    ) -> list[Outcome]:
        """Decode with the most probable token in each slot: one hypothesis per source.

        `sources` [B,S] int64 are padded to the right of their `lengths` [B]; `limits` [B] are maximum output lengths in tokens with
        EOS. The score of a hypothesis covers the slots within its limit and, with the first EOS as its end, only those up to it.
        The options of beam search are not read. The margin is the smallest gap between the best and the second token of a scored
        slot, or infinite where `joint` chooses steps in another way. With `others`, networks over the same vocabulary with the same
        lexicon, the probability of a token is the mean over all networks. Raises ValueError for shapes that do not fit, unknown
        ids, an n-gram model of another vocabulary, a shortlist without a lexicon, and lengths and limits for which there are no
        codes (a limit rounded up to whole steps needs a code for each slot).
        """
        return self.greedy_call(options=options, rules=rules, others=others, joint=joint)(sources, lengths, limits, threads)

    def greedy_call(
        self,
        *,
        options: BeamOptions,
        rules: SlotRules,
        others: Sequence[Transformer] = (),
        joint: JointStep = INDEPENDENT_SLOTS,
    ) -> BoundSearch:
        """Return `greedy` with its keyword arguments bound, for repeated calls: converting them takes time."""
        search = partial(
            self._native.greedy,
            **_common(options, rules),
            others=[other._native for other in others],
            **joint.native(),
        )
        return partial(_outcomes, search)

    def beam_search(
        self,
        sources: I64,
        lengths: I64,
        limits: I64,
        *,
        options: BeamOptions,
        rules: SlotRules,
        threads: int = 1,
        others: Sequence[Transformer] = (),
    ) -> list[Outcome]:
        """Decode with the search of `fewstep.Beam`: at most `options.n_best` hypotheses per source. See `greedy` for arguments and
        errors."""
        return self.beam_call(options=options, rules=rules, others=others)(sources, lengths, limits, threads)

    def beam_call(self, *, options: BeamOptions, rules: SlotRules, others: Sequence[Transformer] = ()) -> BoundSearch:
        """Return `beam_search` with its keyword arguments bound, for repeated calls."""
        search = partial(
            self._native.beam_search,
            **_common(options, rules),
            beams=options.beam_size,
            selection="exact" if options.step_size == 1 else options.selection,
            n_best=options.n_best,
            num_candidates=options.num_candidates,
            separate_eos=options.separate_eos,
            beam_threshold=options.beam_threshold,
            others=[other._native for other in others],
            **options.coupling.native(),
        )
        return partial(_outcomes, search)


def _outcomes(search: Callable[..., Any], sources: I64, lengths: I64, limits: I64, threads: int) -> list[Outcome]:
    return [Outcome(*outcome) for outcome in search(sources, lengths, limits, threads=threads)]


def _common(options: BeamOptions, rules: SlotRules) -> dict[str, Any]:
    return {
        "step_size": options.step_size,
        "per_direction": options.per_direction,
        "eos": options.eos,
        "pad": options.pad,
        "alpha": options.length_penalty,
        "gnmt": options.gnmt,
        "mask": rules.mask,
        "directions": rules.directions,
        "banned": rules.banned,
        "min_tokens": rules.min_tokens,
        "no_repeat_ngram": rules.no_repeat_ngram,
        "shortlist_tokens": rules.shortlist_tokens,
        "shortlist_links": rules.shortlist_links,
    }
