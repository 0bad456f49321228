"""Sequence-to-lattice translation (Deng and Rush 2021), native, on a CPU: encoder, candidates, scores and exact search.

The scorer is a Transformer decoder in which each row sees one token: the row (p, y) has the token y at position p, attends to
itself and to the source, and predicts slot p. With K candidates in each of N slots, all N K rows pass through the network at once,
and only the K x K pairs of adjacent candidates are scored.

    start[k] = log P(X_0[k] | BOS)      edges[p,i,j] = log P(X_{p+1}[j] | X_p[i])      exits[p,i] = log P(EOS | X_p[i])

`kernels.reference.lattice_transformer` is the slow reference and spells the network out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fewstep.native import fewstep_native
from fewstep.networks.arrays import Precision, TransformerShape, expected_arrays, native_arguments

if TYPE_CHECKING:
    from fewstep_native import F32, I64

    from fewstep.candidates import Candidates, CandidateTables


@dataclass(frozen=True, kw_only=True)
class LatticeOptions:
    """The construction and scoring of lattices."""

    candidates: int = 64
    """Maximum number of candidates per slot (K)."""
    length_window: int = 3
    """Tokens by which an output may be shorter or longer than the tables predict."""
    min_prior: float = 0.0
    """Source positions with a lower probability are skipped when a slot is looked up; 0 is exact."""
    normaliser: Literal["full", "union", "local", "selfnorm"] = "full"
    """The set over which the probabilities of a row sum to 1: the vocabulary; EOS and the candidates of all slots; EOS and the
    candidates of the slot (and of the slot behind the last one). "selfnorm" takes logits as they are."""
    count_weight: float = 0.0
    """Weight of the tables' log P(candidate), added to each score that enters the candidate."""
    token_bonus: float = 0.0
    """Bonus per token, which offsets the bias towards short outputs."""
    candidate_threshold: float = math.inf
    """Candidates of a slot p are left out of the lattice if z + log P, the logit of the row (p, BOS) and the log-probability by the
    tables, is more than this below the best one (unigram pruning, the first round of cascaded decoding, Deng and Rush 2020)."""
    bos: int = 1
    """The token before the first slot."""
    eos: int = 2
    """The end of sources and outputs."""


class LatticeOutcome(NamedTuple):
    """The translation of one sentence."""

    ids: list[int]
    """The tokens of the translation, without EOS."""
    score: float
    """Score of the path, EOS included; minus infinity (and no ids) if the candidates allow no path; 0 for an empty source."""

    @property
    def found(self) -> bool:
        """False if no path is possible."""
        return self.score > float("-inf")


class LatticeScores(NamedTuple):
    """The scores that `kernels.lattice_viterbi`, `lattice_n_best` and `lattice_max_marginals` take; float32."""

    start: F32
    """[B,K] scores of the first tokens."""
    edges: F32
    """[B,N-1,K,K] scores of pairs of adjacent candidates."""
    exits: F32
    """[B,N,K] scores of EOS after each candidate."""


class LatticeSeconds(NamedTuple):
    """Seconds spent in the parts of a decode, summed over threads."""

    encoding: float
    lookup: float
    scoring: float
    search: float


class LatticeTransformer:
    """A network whose weights were copied and packed once; several threads may use it at the same time.

    The outcome of a sentence is bit-identical alone, in any batch, and with any number of threads.
    """

    def __init__(self, arrays: Mapping[str, F32], *, shape: TransformerShape, precision: Precision = "float32") -> None:
        """Build a network from `arrays` as for `fewstep.Transformer`, with at least one decoder layer, and with

            slot_codes [T,D]    codes of the output positions 0 to T - 1: a row is sqrt(D) target_embedding[y] + slot_codes[p]

        so that lattices of up to T - 1 slots can be scored. BOS is a row of `target_embedding`, which also computes the logits,
        without a bias. Queries and keys of self-attention are not read, because a row that sees only itself has weight 1.

        `precision` applies to products with weights, including the tokens of a slot and the positions of a source; sums over the
        candidates of all slots or the whole vocabulary stay in float32. Raises ValueError for an unknown precision, and for arrays
        that are missing or have another shape, all of which the message names.
        """
        self.shape = shape
        if shape.decoder_layers < 1:
            raise ValueError(f"shape: expected at least one decoder layer, got {shape.decoder_layers}")
        arguments = native_arguments(arrays, expected_arrays(shape, "source_embedding" in arrays), shape)
        self._native = fewstep_native.make_lattice_network(**arguments, precision=precision)

    def decode(
        self, sources: I64, lengths: I64, tables: CandidateTables, *, options: LatticeOptions = LatticeOptions(), threads: int = 1
    ) -> list[LatticeOutcome]:
        """Return the best path of each source.

        `sources` [B,S] int64 end in EOS and are padded to the right of their `lengths` [B]. Candidates come from `tables`, for the
        source tokens without EOS, within the predicted window of lengths and the available codes. If a slot within the minimum
        length has no candidates, outputs may end before it. Single sentences are split among threads too. Raises ValueError for
        shapes that do not fit, unknown ids, sources without EOS, tables of vocabularies of other sizes, and sources that are longer
        than there are codes for.
        """
        return self.timed_decode(sources, lengths, tables, options=options, threads=threads)[0]

    def timed_decode(
        self, sources: I64, lengths: I64, tables: CandidateTables, *, options: LatticeOptions = LatticeOptions(), threads: int = 1
    ) -> tuple[list[LatticeOutcome], LatticeSeconds]:
        """Return the results of `decode` and the seconds of its parts."""
        outcomes, seconds = self._native.decode(
            sources,
            lengths,
            tables.native,
            candidates=options.candidates,
            window=options.length_window,
            min_prior=options.min_prior,
            **_arguments(options),
            threads=threads,
        )
        return [LatticeOutcome(*outcome) for outcome in outcomes], LatticeSeconds(*seconds)

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
        """Return the best path through given candidates, which are distinct within a slot, best first, padded with -1.

        `min_lengths` and `max_lengths` [B] count tokens without EOS, at most the number of slots; both are 0 for an empty sentence.
        The options of the look-up are not read. With the normaliser "local", one slot behind the longest output is read for the
        candidates that compete with EOS there; if it does not exist or is empty, EOS has probability 1.
        """
        given = (sources, lengths, candidates.token_ids, candidates.log_probs, min_lengths, max_lengths)
        outcomes, _ = self._native.decode_candidates(*given, **_arguments(options), threads=threads)
        return [LatticeOutcome(*outcome) for outcome in outcomes]

    def score(
        self,
        sources: I64,
        lengths: I64,
        candidates: Candidates,
        *,
        options: LatticeOptions = LatticeOptions(),
        threads: int = 1,
    ) -> LatticeScores:
        """Return the scores of the slots `candidates.num_slots` of each sentence, with all exits; minus infinity in cells without
        candidates and for candidates that are left out.

        `decode_candidates` searches the same scores; see it for arguments and errors.
        """
        import numpy as np

        sentences, slots, count = candidates.token_ids.shape
        shapes = (sentences, count), (sentences, max(slots - 1, 0), count, count), (sentences, slots, count)
        scores = LatticeScores(*(np.empty(shape, np.float32) for shape in shapes))
        min_lengths = np.minimum(candidates.num_slots, 1)
        given = (sources, lengths, candidates.token_ids, candidates.log_probs, min_lengths, candidates.num_slots)
        self._native.score(*given, *scores, **_arguments(options), threads=threads)
        return scores


def _arguments(options: LatticeOptions) -> dict[str, Any]:
    return {
        "normaliser": options.normaliser,
        "count_weight": options.count_weight,
        "token_bonus": options.token_bonus,
        "candidate_threshold": options.candidate_threshold,
        "bos": options.bos,
        "eos": options.eos,
    }
