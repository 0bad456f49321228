"""Prefix beam search over the slots of a CTC network (Graves 2012, section 7.5; with a language model Hannun et al. 2014).

A slot writes a token or a blank; a text is written by all sequences of slots that become it when equal neighbours are merged and
then blanks are removed. Letters: B sentences, T slots, C candidates. Logarithms are natural.

`kernels.reference.ctc` is the slow reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.native import fewstep_native
from fewstep.search.dag_beam import checked_array

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


@dataclass(frozen=True, kw_only=True)
class CtcBeamOptions:
    """Options of `ctc_beam`."""

    beam_size: int = 20
    """Prefixes kept at each slot, ranked by log P(Y) + gamma log P_ngram(Y) + beta |Y|; ties by the lower ids."""
    ngram_weight: float = 0.0
    """The weight gamma of the n-gram model, if one is given."""
    token_bonus: float = 0.0
    """The bonus beta for each token."""
    length_penalty: float = 0.0
    """The exponent alpha: the final score is divided by (|Y| + 1)^alpha."""
    n_best: int = 1
    """Outputs returned per sentence."""
    threads: int = 1
    """Sentences searched at the same time. The result does not depend on it."""


class CtcHypothesis(NamedTuple):
    """One output of a sentence."""

    ids: list[int]
    score: float
    """(log P(Y) + gamma log P_ngram(Y </s>) + beta |Y|) / (|Y| + 1)^alpha, where P(Y) sums the alignments that the beam kept."""


def ctc_beam(
    scores: Any, token_ids: Any, blanks: Any, lengths: Any, *, options: CtcBeamOptions, ngram: NgramScorer | None = None
) -> list[list[CtcHypothesis]]:
    """Return the n best outputs of each sentence, best first: at least one, and distinct.

    `scores` float32 and `token_ids` int64 [B,T,C] are the log-probabilities and ids of the tokens that each slot may write, the
    blank not among them; a score of minus infinity or NaN stands for no token. `blanks` float32 [B,T] are the log-probabilities of
    the blank, whatever its rank, and `lengths` int64 [B] the numbers of slots; cells beyond them are not read. `ngram` is a model
    over the same ids, which also scores `</s>`; it is read if its weight is not 0. With all tokens and a beam without limit P(Y) is
    exact. A sentence without slots, or where no text has a probability above 0, has one empty output.

    Raises TypeError and ValueError for arrays of other types and shapes and for options out of range, ValueError for negative token
    ids and for those that are not in the n-gram model's vocabulary.
    """
    model = ngram if ngram is not None and options.ngram_weight else None
    found = fewstep_native.ctc_beam(
        checked_array("scores", scores, "float32", "[B,T,C]"),
        checked_array("token_ids", token_ids, "int64", "[B,T,C]"),
        checked_array("blanks", blanks, "float32", "[B,T]"),
        checked_array("lengths", lengths, "int64", "[B]"),
        beam_size=options.beam_size,
        ngram_weight=options.ngram_weight,
        token_bonus=options.token_bonus,
        length_penalty=options.length_penalty,
        n_best=options.n_best,
        ngram=None if model is None else model.native,
        threads=options.threads,
    )
    return [[CtcHypothesis(*one) for one in ranked] or [CtcHypothesis([], float("-inf"))] for ranked in found]
