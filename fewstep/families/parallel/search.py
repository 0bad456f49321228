"""Hypotheses from the slots that a network has filled or ranked.

Legend: B batch, N targets of a batch (several lengths for a sentence), T slots, C tokens of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.families.parallel.config import ParallelSearch
from fewstep.search.ctc_beam import CtcBeamOptions, ctc_beam
from fewstep.sources import Ints
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BLANK, EOS

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer

Floats = npt.NDArray[np.float32]
Rescore = Callable[[list[int], list[list[int]]], list[float]]
"""A function of the sentences and the ids of texts, without EOS, that returns the log-probability of each text."""


class FilledSlots(NamedTuple):
    """Targets with one token for each slot, EOS included. The first target of each sentence has its most probable length."""

    sentences: Ints
    """The sentence of each target [N], ascending."""
    lengths: Ints
    """The numbers of slots [N]."""
    ids: Ints
    """The tokens [N,T]."""
    log_probs: Floats
    """The log-probabilities of the tokens [N,T]."""
    margins: Floats | None = None
    """The smallest gap [N] between a choice and the next best one, in nats. None: not measured."""


class RankedSlots(NamedTuple):
    """The best tokens of each slot of a CTC network, the blank not among them."""

    scores: Floats
    """The log-probabilities of tokens [B,T,C], best first; minus infinity where there are fewer tokens."""
    ids: Ints
    """The tokens [B,T,C]."""
    blanks: Floats
    """The log-probabilities of the blank [B,T]."""
    lengths: Ints
    """The numbers of slots [B]."""


def tokens_needed(search: ParallelSearch) -> int:
    """Return the number of tokens per slot that a search of alignments reads."""
    return search.candidates if search.strategy in ("prefix-beam", "sample") else 1


def passes(search: ParallelSearch) -> int:
    """Return the number of decoder calls of a search."""
    return search.iterations if search.strategy == "mask-predict" else 1


def choose_lengths(
    filled: FilledSlots, search: ParallelSearch, sentences: int, steps: int, rescore: Rescore | None = None
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each of `sentences`, best first: distinct texts, at most `n_best`.

    A target scores the mean log-probability of its tokens or, with `rescore`, log P(text) / tokens of the text with EOS (Gu et al.
    2018). Ties are won by the length nearest to the most probable one, then by the shorter one. EOS is no part of a text, wherever
    it stands.
    """
    texts = [_text(row[:size], search) for row, size in zip(filled.ids.tolist(), filled.lengths.tolist(), strict=True)]
    if rescore is None:
        rows = zip(filled.log_probs.tolist(), filled.lengths.tolist(), strict=True)
        scores = [sum(row[:size]) / size for row, size in rows]  # an array's sum would depend on the padding
    else:
        log_probs = rescore(filled.sentences.tolist(), texts)
        scores = [score / (len(text) + 1) for score, text in zip(log_probs, texts, strict=True)]
    found: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    for sentence, targets in groupby(range(len(texts)), key=lambda row: int(filled.sentences[row])):
        found[sentence] = _ranked(list(targets), filled, texts, scores, search.n_best, steps)
    return found


def _text(row: Sequence[int], search: ParallelSearch) -> list[int]:
    """Return the tokens of a target without EOS and, if the search deduplicates, without repeated tokens."""
    kept = [token for token in row if token != EOS]
    return [token for token, _ in groupby(kept)] if search.deduplicate else kept


def _ranked(
    rows: Sequence[int], filled: FilledSlots, texts: list[list[int]], scores: list[float], n_best: int, steps: int
) -> list[Hypothesis]:
    """Return the hypotheses of one sentence, whose targets are `rows`."""
    predicted = int(filled.lengths[rows[0]])

    def rank(row: int) -> tuple[float, int, int]:
        return -scores[row], abs(int(filled.lengths[row]) - predicted), int(filled.lengths[row])

    ordered = sorted(rows, key=rank)
    distinct = {tuple(texts[row]): row for row in reversed(ordered)}
    best = [row for row in ordered if distinct[tuple(texts[row])] == row]
    statistics: dict[str, Any] = {}
    if filled.margins is not None:
        gaps = [scores[one] - scores[other] for one, other in pairwise(best)]
        statistics["margin"] = min(float(min(filled.margins[list(rows)])), *gaps[:n_best], float("inf"))
    return [Hypothesis(texts[row], scores[row], steps, dict(statistics)) for row in best[:n_best]]


def search_alignments(
    slots: RankedSlots,
    search: ParallelSearch,
    sources: Sequence[Sequence[int]],
    ngram: NgramScorer | None = None,
    threads: int = 1,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each of `sources`, best first: of the best alignment, of drawn ones, or by prefix beam search."""
    if search.strategy == "greedy":
        return [[hypothesis] for hypothesis in _best_alignments(slots)]
    if search.strategy == "sample":
        return [_drawn(slots, row, source, search) for row, source in enumerate(sources)]
    options = CtcBeamOptions(
        beam_size=search.beam_size,
        ngram_weight=search.ngram_weight,
        token_bonus=search.token_bonus,
        length_penalty=search.length_penalty,
        n_best=search.n_best,
        threads=threads,
    )
    found = ctc_beam(*slots, options=options, ngram=ngram if search.ngram_weight else None)
    return [[Hypothesis(one.ids, one.score, 1) for one in ranked] for ranked in found]


def _best_alignments(slots: RankedSlots) -> list[Hypothesis]:
    """Return the texts of the best alignments, which score the alignment's log-probability; a blank wins ties."""
    tokens, best = slots.ids[..., 0], slots.scores[..., 0]
    written = np.where(slots.blanks >= best, BLANK, tokens)
    rows = zip(written.tolist(), np.maximum(slots.blanks, best).tolist(), slots.lengths.tolist(), strict=True)
    return [Hypothesis(collapse(row[:size]), float(sum(scores[:size])), 1) for row, scores, size in rows]


def _drawn(slots: RankedSlots, row: int, source: Sequence[int], search: ParallelSearch) -> list[Hypothesis]:
    """Return the texts of `n_best` alignments of a sentence, whose slots are drawn independently: from the best symbols that have
    `top_p` together, by their probabilities to the power of 1 / temperature. They score the alignment's log-probability."""
    size = int(slots.lengths[row])
    options = search.sampling
    scores = np.concatenate((slots.blanks[row, :size, None], slots.scores[row, :size]), 1).astype(np.float64)
    symbols = np.concatenate((np.full((size, 1), BLANK), slots.ids[row, :size]), 1)
    order = np.argsort(-scores, axis=1, kind="stable")
    scores, symbols = np.take_along_axis(scores, order, 1), np.take_along_axis(symbols, order, 1)
    tempered = np.exp((scores - scores[:, :1]) / options.temperature)
    shares = tempered / tempered.sum(1, keepdims=True)
    before = shares.cumsum(1) - shares
    shares = np.where(before < options.top_p, shares, 0.0)
    limits = (shares / shares.sum(1, keepdims=True)).cumsum(1)
    found = []
    for number in range(search.n_best):
        draws = np.random.default_rng([options.seed, number, *source]).random(size)
        chosen = np.minimum((draws[:, None] >= limits).sum(1), (shares > 0).sum(1) - 1)
        places = np.arange(size), chosen
        found.append(Hypothesis(collapse(symbols[places].tolist()), float(scores[places].sum()), 1))
    return sorted(found, key=lambda one: -one.score)


def collapse(row: Sequence[int]) -> list[int]:
    """Return the text of an alignment: equal neighbours are merged, then blanks removed."""
    return [token for token, _ in groupby(row) if token != BLANK]
