"""Greedy and beam search in CTranslate2, from ids to hypotheses of the stepwise family."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import banned
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, RESERVED
from models.stepwise.ctranslate2_model import MAP, convertible, ctranslate2, may_saturate, vocabulary_map, write_model
from models.stepwise.scores import penalty

if TYPE_CHECKING:
    from fewstep.config.options import Shortlist
    from fewstep.shortlist import Lexicon

log = logging.getLogger("fewstep")


class CTranslate2Engine:
    """Copies of a finished network, one for each precision and shortlist that was used."""

    def __init__(self, model: nn.Module, lexicon: Lexicon | None = None) -> None:
        self._model = model
        self._lexicon = lexicon
        self._searches: dict[tuple[str, Shortlist | None], CTranslate2Search] = {}

    def search(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises EngineError and ValueError as `CTranslate2Search` does."""
        key = search.precision, search.shortlist
        if key not in self._searches:
            device = next(self._model.parameters()).device.type
            short = search.shortlist
            mapped = (short, self._lexicon) if short and short.tokens and self._lexicon else None
            self._searches[key] = CTranslate2Search(self._model, precision=search.precision, device=device, shortlist=mapped)
        return self._searches[key](prepared.rows, search, limits.tolist(), threads)


class CTranslate2Search:
    """A copy of the current weights of an autoregressive network in CTranslate2.

    It differs from the other engines as follows. CTranslate2 ranks by probabilities normalised over the tokens that may be written,
    other engines over all tokens (the difference is nearly the same for all hypotheses of a length). It stops a batch at the
    largest of its limits; outputs that exceed their own limit are searched again with that limit. It reports neither margins nor
    the number of decoder calls of a beam (the tokens of the hypothesis are counted instead). With `rescore`, scores are recomputed
    over all tokens, so that equal hypotheses have equal scores in all engines. A shortlist becomes a vocabulary map, whose tokens
    are those of all sentences of a batch together.
    """

    def __init__(
        self, network: nn.Module, *, precision: str, device: str = "cpu", shortlist: tuple[Shortlist, Lexicon] | None = None
    ) -> None:
        """Copy the weights. Raises EngineError if CTranslate2 is not installed, ValueError for a network, precision or device
        that it does not support."""
        package = ctranslate2()
        supported = package.get_supported_compute_types(device)
        if precision not in supported:
            raise ValueError(f"precision: expected one of {', '.join(sorted(supported))} on this {device}, got {precision}")
        model = convertible(network)
        sizes = (model.sizes.source, model.sizes.target)
        self._pieces = [_pieces(size) for size in sizes]
        self._ids = {piece: id_ for id_, piece in enumerate(self._pieces[1])}
        self._package = package
        self._precision = precision
        self._device = device
        self._mapped = shortlist is not None
        if device == "cpu" and may_saturate(precision):
            warn_of_saturation()
        with TemporaryDirectory(prefix="fewstep-") as directory:
            source, target = self._pieces
            write_model(model, Path(directory), source_pieces=source, target_pieces=target)
            if shortlist is not None:
                text = vocabulary_map(*shortlist, source_pieces=source, target_pieces=target)
                (Path(directory) / MAP).write_text(text, encoding="utf-8")
            self._files = {path.name: path.read_bytes() for path in Path(directory).iterdir()}
        self._threads = 0
        self._translator: Any = None

    def __call__(
        self, sources: Sequence[Sequence[int]], search: StepwiseSearch, limits: Sequence[int], threads: int | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source (ids without EOS), best first; `limits` are maximum output lengths in tokens with
        EOS. Without `threads` as many are used as by torch.

        The search must be free of problems (`StepwiseSearch.problems`). An empty source, which CTranslate2 does not search, has one
        empty hypothesis.
        """
        self._load(threads or torch.get_num_threads())
        hypotheses = [[Hypothesis([], 0.0, 0)] for _ in sources]
        if real := [index for index, source in enumerate(sources) if source]:
            pieces = [[self._pieces[0][id_] for id_ in sources[index]] for index in real]
            found = self._within(pieces, search, [limits[index] for index in real])
            if search.rescore:
                found = self._rescored(pieces, found, search)
            for index, ranked in zip(real, found, strict=True):
                hypotheses[index] = [_hypothesis(tokens, score) for tokens, score in ranked]
        return hypotheses

    def _within(
        self, pieces: list[list[str]], search: StepwiseSearch, limits: Sequence[int]
    ) -> list[list[tuple[list[int], float]]]:
        """Search with a maximum output length for each source."""
        found = self._search(pieces, search, max(limits))
        over = [index for index, ranked in enumerate(found) if any(len(tokens) > limits[index] for tokens, _ in ranked)]
        for limit in sorted({limits[index] for index in over}):
            again = [index for index in over if limits[index] == limit]
            for index, ranked in zip(again, self._search([pieces[index] for index in again], search, limit), strict=True):
                found[index] = ranked
        return found

    def _search(self, pieces: list[list[str]], search: StepwiseSearch, limit: int) -> list[list[tuple[list[int], float]]]:
        """Return pairs of tokens (with EOS, if they end with it) and score for each source."""
        beam = search.strategy == "beam"
        results = self._translator.translate_batch(
            pieces,
            beam_size=search.beam_size if beam else 1,
            num_hypotheses=search.n_best if beam else 1,
            length_penalty=search.length_penalty,
            max_decoding_length=limit,
            min_decoding_length=search.output_limits.min_tokens,
            no_repeat_ngram_size=search.no_repeat_ngram,
            max_input_length=0,
            suppress_sequences=[[RESERVED[token]] for token in banned(search)],
            return_scores=beam or not search.rescore,
            return_end_token=True,
            use_vmap=self._mapped,
        )
        return [
            [
                ([self._ids[piece] for piece in tokens], score)
                for tokens, score in zip(one.hypotheses, one.scores or [0.0] * len(one.hypotheses), strict=True)
            ]
            for one in results
        ]

    def _rescored(
        self, pieces: list[list[str]], found: list[list[tuple[list[int], float]]], search: StepwiseSearch
    ) -> list[list[tuple[list[int], float]]]:
        """Rank the hypotheses again by log p / tokens^alpha, with p over all tokens."""
        sources = [source for source, ranked in zip(pieces, found, strict=True) for _ in ranked]
        outputs = [tokens for ranked in found for tokens, _ in ranked]
        texts = [[self._pieces[1][id_] for id_ in _without_end(tokens)] for tokens in outputs]
        results = self._translator.score_batch(sources, texts, max_input_length=0)
        # An output that the limit cut has no EOS that counts.
        sums = [sum(result.log_probs[: len(tokens)]) for tokens, result in zip(outputs, results, strict=True)]
        penalties = penalty(search, torch.tensor([len(tokens) for tokens in outputs])).tolist()
        scores = iter([total / by for total, by in zip(sums, penalties, strict=True)])
        return [sorted(((tokens, next(scores)) for tokens, _ in ranked), key=lambda pair: -pair[1]) for ranked in found]

    def _load(self, threads: int) -> None:
        """Create the translator, again if the number of threads has changed."""
        if self._translator is None or self._threads != threads:
            self._threads = threads
            self._translator = self._package.Translator(
                "fewstep", self._device, compute_type=self._precision, inter_threads=1, intra_threads=threads, files=self._files
            )


@cache
def warn_of_saturation() -> None:
    """Warn once that results may be less exact than in other engines."""
    log.warning(
        "engine ctranslate2: 8-bit products of oneDNN may overflow on this processor, which lacks VNNI; CT2_USE_MKL=1 in the "
        "environment computes them exactly and takes many times as long (docs/guide/benchmark.md#ctranslate2)"
    )


def _pieces(size: int) -> list[str]:
    """Return names of ids, because CTranslate2's interface takes strings. Reserved ids keep their names of the vocabulary."""
    return [RESERVED[id_] if id_ < len(RESERVED) else str(id_) for id_ in range(size)]


def _without_end(tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens and tokens[-1] == EOS else tokens


def _hypothesis(tokens: list[int], score: float) -> Hypothesis:
    return Hypothesis(_without_end(tokens), score, len(tokens))
