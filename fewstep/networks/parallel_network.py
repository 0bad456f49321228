"""Networks that write all slots of a target at once (Gu et al. 2018), native, on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fewstep.native import fewstep_native
from fewstep.networks.arrays import ANY_ROWS, Precision, TransformerShape, expected_arrays, native_arguments
from fewstep.shortlist import Lexicon
from fewstep.shortlist import native_arguments as lexicon_arguments

if TYPE_CHECKING:
    from fewstep_native import F32, I64


@dataclass(frozen=True, kw_only=True)
class ParallelSlots:
    """The slots of a network: their number, and their inputs while they are empty."""

    input: Literal["mask", "uniform", "soft", "repeat", "gaussian"]
    """The token `mask`, or a copy or a mixture of source embeddings (`models/parallel/model.py` has the formulas)."""
    mask: int
    """The input of hidden slots."""
    temperature: float = 0.3
    """Temperature of mixtures."""
    upsampling: float = 0.0
    """Slots per source token; 0: the network predicts the number of slots."""
    length_offset: int = 0
    """The predicted class of a target as long as its source; 0: classes are lengths."""
    min_slots: int = 1
    """Smallest number of slots that is decoded."""


@dataclass(frozen=True, kw_only=True)
class ParallelRules:
    """The tokens that slots may write."""

    separator: int
    """The token that outputs do not contain: EOS, or the blank of CTC."""
    banned: tuple[int, ...] = ()
    """Tokens that are not written."""
    shortlist_tokens: int = 0
    """Choose, and normalise, among this many frequent tokens of the network's lexicon; 0: among all tokens."""
    shortlist_links: int = 0
    """With a shortlist, also among this many translations of each source token."""


class FilledTargets(NamedTuple):
    """Targets with one token for each slot; see `fewstep.families.parallel.search.FilledSlots`."""

    sentences: I64
    lengths: I64
    ids: I64
    log_probs: F32


class RankedTargets(NamedTuple):
    """The best tokens of each slot; see `fewstep.families.parallel.search.RankedSlots`."""

    scores: F32
    ids: I64
    blanks: F32
    lengths: I64


class ParallelNetwork:
    """A network whose weights were copied and packed once; several threads may use it at the same time.

    The result of a sentence is bit-identical alone, in any batch, and with any number of threads. Sources [B,S] int64 are padded to
    the right of their `lengths` [B]. Raises ValueError for shapes, ids and lengths that do not fit.
    """

    def __init__(
        self,
        arrays: Mapping[str, F32],
        *,
        shape: TransformerShape,
        slots: ParallelSlots,
        impossible: tuple[int, ...],
        precision: Precision = "float32",
        lexicon: Lexicon | None = None,
    ) -> None:
        """Build a network from `arrays` as for `fewstep.Transformer`, where `slot_codes` are the position codes of slots. If
        `slots.upsampling` is 0, there is in addition

            lengths [C,D]           times the mean source state, logits of the target length

        The probability of `impossible` tokens is 0. `precision` bfloat16 rounds the operands of layer products, which are summed in
        float32; int8 multiplies all products with weights, the logits too, in 8 bits and sums them in integers; attention stays in
        float32. `lexicon` provides shortlists of target tokens. Raises ValueError for an unknown precision or input, for a lexicon
        of another vocabulary, and for arrays that are missing or have another shape, all of which the message names.
        """
        wanted = expected_arrays(shape, "source_embedding" in arrays)
        if not slots.upsampling:
            wanted |= {"lengths": (ANY_ROWS, shape.width)}
        arguments = native_arguments(arrays, wanted, shape) | lexicon_arguments(lexicon)
        self._native = fewstep_native.make_parallel_network(
            **arguments,
            **vars(slots),
            impossible=list(impossible),
            classes=0 if slots.upsampling else len(arrays["lengths"]),
            precision=precision,
        )

    def fill(
        self,
        sources: I64,
        lengths: I64,
        *,
        candidates: int,
        around: bool,
        iterations: int,
        rules: ParallelRules,
        threads: int = 1,
    ) -> FilledTargets:
        """Return targets of the `candidates` most probable lengths, or of those `around` the most probable one, with their most
        probable tokens after `iterations` passes of Mask-Predict (1: a single pass). The network predicts lengths."""
        sentences, sizes, ids, log_probs = self._native.fill(
            sources, lengths, candidates=candidates, around=around, iterations=iterations, **_arguments(rules), threads=threads
        )
        cells = len(sizes), int(sizes.max(initial=0))
        return FilledTargets(sentences, sizes, ids.reshape(cells), log_probs.reshape(cells))

    def rank(self, sources: I64, lengths: I64, *, tokens: int, rules: ParallelRules, threads: int = 1) -> RankedTargets:
        """Return the best `tokens` tokens of each slot, without the blank, and its score. The network upsamples its sources."""
        scores, ids, blanks, sizes = self._native.rank(sources, lengths, tokens=tokens, **_arguments(rules), threads=threads)
        cells = len(sizes), int(sizes.max(initial=0))
        return RankedTargets(scores.reshape(*cells, tokens), ids.reshape(*cells, tokens), blanks.reshape(cells), sizes)


def _arguments(rules: ParallelRules) -> dict[str, Any]:
    return {
        "separator": rules.separator,
        "banned": rules.banned,
        "shortlist_tokens": rules.shortlist_tokens,
        "shortlist_links": rules.shortlist_links,
    }
