"""Sequence-to-lattice translation (Deng and Rush 2021), all of it native, on a CPU: encoder, candidates, scores, exact search.

The scorer is a Transformer decoder of which each row sees one word: the row (p, y) has the word y at position p, attends to itself
and to the source, and predicts slot p. With K candidates in each of N slots all N K rows go through the network in one pass, and
only the K x K pairs of neighbours get scores.

    start[k] = log P(X_0[k] | BOS)      edges[p,i,j] = log P(X_{p+1}[j] | X_p[i])      exits[p,i] = log P(EOS | X_p[i])

`kernels.reference.lattice_decoding` is the slow twin, and writes the network out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kernels.transformer import Precision, TransformerShape, expected_arrays, native_arguments, native_precision

if TYPE_CHECKING:
    from fewstep_native import F32, I64

    from kernels.candidates import Candidates, CandidateTables

__all__ = ["LatticeOptions", "LatticeOutcome", "LatticeScores", "LatticeSeconds", "LatticeTransformer"]


@dataclass(frozen=True, kw_only=True)
class LatticeOptions:
    """How a lattice is made and scored."""

    candidates: int = 64
    """K, most candidates of a slot."""
    length_window: int = 3
    """Words that an output may be shorter or longer than the tables predict."""
    least_prior: float = 0.0
    """Source positions less probable than this are not looked up for a slot; 0 is exact."""
    normaliser: Literal["full", "union", "local", "selfnorm"] = "full"
    """What a row's probabilities add up to 1 over: the vocabulary; EOS and the candidates of all slots; EOS and the candidates of
    the slot, also of the one behind the last; or nothing: logits as they are."""
    count_weight: float = 0.0
    """Of log P(candidate) by the tables, added to each score that enters the candidate."""
    word_bonus: float = 0.0
    """Added for each word."""
    prune: float = math.inf
    """Candidates of a slot p whose z + log P, the logit of the row (p, BOS) and the probability by the tables, is less than the
    best one's by more than this are left out of the lattice (by unigrams, as in the first round of cascaded decoding, Deng and
    Rush 2020)."""
    bos: int = 1
    """The word before the first slot."""
    eos: int = 2
    """Ends sources and outputs."""


class LatticeOutcome(NamedTuple):
    """A translation."""

    words: list[int]
    """Without EOS."""
    score: float
    """Of the path, EOS with it; minus infinity, and no words, where the candidates allow no path; 0 for an empty source"""

    @property
    def found(self) -> bool:
        """False where no path is possible."""
        return self.score > float("-inf")


class LatticeScores(NamedTuple):
    """What `kernels.lattice_viterbi`, `lattice_n_best` and `lattice_max_marginals` take; float32."""

    start: F32
    """[B,K]"""
    edges: F32
    """[B,N-1,K,K]"""
    exits: F32
    """[B,N,K]"""


class LatticeSeconds(NamedTuple):
    """Time spent on the parts of a decode, that of all threads together."""

    encoding: float
    lookup: float
    scoring: float
    search: float


class LatticeTransformer:
    """A network whose weights were copied and laid out once; it may be used from several threads at a time.

    A sentence's outcome is the same to the last bit alone, in any batch, and with any number of threads.
    """

    def __init__(self, arrays: Mapping[str, F32], *, shape: TransformerShape, precision: Precision = "fp32") -> None:
        """`arrays` are those of `kernels.Transformer`, with at least one decoder layer, and with

            slot_codes [T,D]    codes of the positions 0 to T - 1 of outputs: a row is sqrt(D) target_embedding[y] + slot_codes[p]

        so that lattices of up to T - 1 slots can be scored. BOS is a word of `target_embedding`, which also ranks the outputs,
        without a bias. Self-attention reads no queries and keys: a row that sees itself alone has one.

        `precision` is that of products with weights, words of a slot and places of a source among them; sums over the candidates of
        all slots or the whole vocabulary stay in fp32. Raises ValueError for another, and that names all arrays that are missing
        or misshapen.
        """
        from kernels.native import fewstep_native

        self.shape = shape
        if shape.decoder_layers < 1:
            raise ValueError(f"shape: expected at least one decoder layer, got {shape.decoder_layers}")
        wanted = expected_arrays(shape, "source_embedding" in arrays)
        self._native = fewstep_native.make_lattice_network(
            **native_arguments(arrays, wanted, shape), precision=native_precision(precision)
        )

    def decode(
        self, sources: I64, lengths: I64, tables: CandidateTables, *, options: LatticeOptions = LatticeOptions(), threads: int = 1
    ) -> list[LatticeOutcome]:
        """The best path of each of `sources` [B,S] int64, of which the first `lengths` [B] ids count, EOS the last of them.

        Candidates are those of the words without EOS, in the window of lengths that `tables` predict, as far as there are codes for
        its slots. Where a slot within the shortest length has none, outputs may end before it. One sentence is parted among the
        threads too. Raises ValueError for shapes that do not fit, unknown ids, sources without EOS, tables of vocabularies of other
        sizes, and for sources longer than there are codes for.
        """
        return self.timed_decode(sources, lengths, tables, options=options, threads=threads)[0]

    def timed_decode(
        self, sources: I64, lengths: I64, tables: CandidateTables, *, options: LatticeOptions = LatticeOptions(), threads: int = 1
    ) -> tuple[list[LatticeOutcome], LatticeSeconds]:
        """`decode`, and what its parts took."""
        found, seconds = self._native.decode(
            sources,
            lengths,
            tables.native,
            candidates=options.candidates,
            window=options.length_window,
            min_prior=options.least_prior,
            **_rules(options),
            threads=threads,
        )
        return [LatticeOutcome(*outcome) for outcome in found], LatticeSeconds(*seconds)

    def decode_candidates(
        self,
        sources: I64,
        lengths: I64,
        candidates: Candidates,
        min_lengths: I64,
        max_lengths: I64,
        *,
        options: LatticeOptions = LatticeOptions(),
        threads: int = 1,
    ) -> list[LatticeOutcome]:
        """`decode` with candidates from elsewhere (best first in each slot, -1 behind them, none twice) and windows [B] of words,
        at most the slots there are, or both 0. Of `options`, what concerns the look-up is not read.

        With `local` one slot more than the longest output has words is read for what EOS competes with behind the last word;
        where there is none, or it has no candidates, EOS stands alone and costs nothing there.
        """
        given = (sources, lengths, candidates.token_ids, candidates.log_probs, min_lengths, max_lengths)
        found, _ = self._native.decode_candidates(*given, **_rules(options), threads=threads)
        return [LatticeOutcome(*outcome) for outcome in found]

    def score(
        self,
        sources: I64,
        lengths: I64,
        candidates: Candidates,
        *,
        options: LatticeOptions = LatticeOptions(),
        threads: int = 1,
    ) -> LatticeScores:
        """The scores of the slots `candidates.num_slots` of each sentence, those of all exits; minus infinity where nothing is, and
        for candidates that are left out.

        Arguments and errors as in `decode_candidates`, which searches the same scores.
        """
        import numpy as np

        sentences, slots, count = candidates.token_ids.shape
        shapes = (sentences, count), (sentences, max(slots - 1, 0), count, count), (sentences, slots, count)
        found = LatticeScores(*(np.empty(shape, np.float32) for shape in shapes))
        least = np.minimum(candidates.num_slots, 1)
        given = (sources, lengths, candidates.token_ids, candidates.log_probs, least, candidates.num_slots)
        self._native.score(*given, *found, **_rules(options), threads=threads)
        return found


def _rules(options: LatticeOptions) -> dict[str, Any]:
    return {
        "normaliser": options.normaliser,
        "count_weight": options.count_weight,
        "token_bonus": options.word_bonus,
        "candidate_threshold": options.prune,
        "bos": options.bos,
        "eos": options.eos,
    }
