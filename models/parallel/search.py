"""Decoding of the parallel family in torch, on any device, in buffers of fixed shapes.

The network fills slots (one pass or Mask-Predict) or ranks the tokens of CTC's slots; `fewstep.families.parallel.search` chooses
among lengths and searches alignments on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewstep.config.problems import Problem
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import (
    FilledSlots,
    RankedSlots,
    Rescore,
    choose_lengths,
    passes,
    search_alignments,
    tokens_needed,
)
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BLANK
from models.common.buffers import Inputs, Size, empty_inputs, inputs_for, round_slots, size_for
from models.common.inference import Precisions, inference_mode, source_tensors
from models.common.replay import Replay, RunnerCache
from models.common.shortlist import shortlist_mask
from models.parallel.filling import Filled, Ranking, fill
from models.parallel.lengths import length_candidates, upsampled
from models.parallel.model import ParallelModel, Source

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer

FILLING_SLOTS = 1
"""The slots of a sentence that fills up a batch."""


class Read(NamedTuple):
    """Encoded sources, with K lengths for each."""

    source: Source
    lengths: Tensor
    """The lengths [B,K] in slots, the most probable one first."""
    distinct: Tensor
    """True at the distinct lengths [B,K]."""
    margins: Tensor
    """The gap [B] between the log-probabilities of the two most probable lengths."""


class FillingRunner:
    """Filled slots of batches of one size. The targets are all B x K pairs of a sentence and one of its lengths.

    The host waits once, for the predicted lengths, which decide the number of slots.
    """

    def __init__(self, model: ParallelModel, search: ParallelSearch, size: Size) -> None:
        self._model = model
        self._search = search
        self._device = model.target_embedding.weight.device
        self.inputs = empty_inputs(size, model.sizes.target, self._device, shortlists=search.shortlist is not None)
        self.found: Read | None = None
        self.filled: dict[int, Filled] = {}
        """The targets by their number of slots."""
        self._reading = Replay(self.read, self._device, lambda: None)
        self._filling: dict[int, Replay] = {}

    def read(self) -> None:
        """Encode the sources in the buffers and choose lengths."""
        read = self._model.read(self.inputs.source, self.inputs.lengths)
        assert read.lengths is not None
        search = self._search
        found = length_candidates(
            self._model.config, read.lengths, self.inputs.lengths, search.length_candidates, search.length_choice
        )
        best = read.lengths.topk(2).values
        self.found = Read(read, *found, best[:, 0] - best[:, 1])

    def fill(self, slots: int) -> None:
        """Fill targets of up to `slots` slots."""
        assert self.found is not None
        source, lengths = self.found.source, self.found.lengths
        count, per_sentence = lengths.shape
        sentences = torch.arange(count, device=lengths.device).repeat_interleave(per_sentence)
        selected = source if per_sentence == 1 else source.select(sentences)
        ranking = _ranking(self._model, self._search, self.inputs)
        self.filled[slots] = fill(self._model, selected, lengths.flatten(), sentences, ranking, slots, passes(self._search))

    def run(self, inputs: Inputs, sentences: int) -> FilledSlots:
        """Return the filled targets of the first `sentences` of a batch."""
        self.inputs.fill(inputs)
        self._reading()
        assert self.found is not None
        _, *chosen = self.found
        lengths, distinct, margins = (part[:sentences].cpu() for part in chosen)
        slots = round_slots(int(lengths.max()), self._model.config.max_slots, self._device)
        if slots not in self._filling:
            self._filling[slots] = Replay(lambda: self.fill(slots), self._device, lambda: None)
        self._filling[slots]()
        ids, log_probs, of_targets = (part[: lengths.numel()].cpu() for part in self.filled[slots])
        of_sentences = distinct.nonzero()[:, 0]
        kept = distinct.flatten()
        least = torch.minimum(of_targets[kept], margins[of_sentences])
        arrays = (of_sentences, lengths[distinct], ids[kept], log_probs[kept], least)
        return FilledSlots(*(part.numpy() for part in arrays))


class RankingRunner:
    """Ranked tokens of CTC's slots, whose number follows from the source, for batches of one size."""

    def __init__(self, model: ParallelModel, search: ParallelSearch, size: Size) -> None:
        device = model.target_embedding.weight.device
        self._model = model
        self._search = search
        self._size = size
        self.inputs = empty_inputs(size, model.sizes.target, device, shortlists=search.shortlist is not None)
        self.found: tuple[Tensor, ...] | None = None
        self._replay = Replay(self.rank, device, lambda: None)

    def rank(self) -> None:
        """Rank the tokens of all slots of the sources in the buffers."""
        slots = self.inputs.slots
        shape = (self._size.sentences, self._size.slots)
        read = self._model.read(self.inputs.source, self.inputs.lengths)
        states = self._model.states(self._model.inputs(read, slots, shape[1]), slots, read)
        ranking = _ranking(self._model, self._search, self.inputs)
        sentences = torch.arange(shape[0], device=slots.device).repeat_interleave(shape[1])
        ranked = ranking.top(states.flatten(0, 1), sentences, tokens_needed(self._search), without=BLANK)
        self.found = tuple(part.view(*shape, *part.shape[1:]) for part in ranked)

    def run(self, inputs: Inputs, sentences: int, slots: int) -> list[Tensor]:
        """Return scores, ids and blanks of the first `sentences` of a batch and of the first `slots`, on the CPU."""
        self.inputs.fill(inputs)
        self._replay()
        assert self.found is not None
        return [part[:sentences, :slots].cpu() for part in self.found]


def _ranking(model: ParallelModel, search: ParallelSearch, inputs: Inputs) -> Ranking:
    allowed = None if inputs.excluded is None else ~inputs.excluded[:, 0]
    return Ranking(model, allowed, allow_unknown=search.allow_unknown)


class TorchDecoder:
    """A network in evaluation mode."""

    def __init__(self, model: ParallelModel, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models = Precisions(model, frozen=frozen)
        self._ngram = ngram
        self._lexicon = lexicon
        device = model.target_embedding.weight.device
        self._filling: RunnerCache[tuple[ParallelSearch, Size], FillingRunner] = RunnerCache(
            lambda key: FillingRunner(self._models[key[0].precision], *key), device
        )
        self._rankings: RunnerCache[tuple[ParallelSearch, Size], RankingRunner] = RunnerCache(
            lambda key: RankingRunner(self._models[key[0].precision], *key), device
        )

    def unsupported(self, search: ParallelSearch) -> Iterator[Problem]:
        """Yield a problem for a precision that torch does not have on this device."""
        return self._models.problems(search.precision)

    def search(
        self, prepared: Sources, search: ParallelSearch, threads: int, rescore: Rescore | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. `rescore` chooses among lengths (None: the network's own scores)."""
        if self._models[search.precision].config.uses_ctc:
            return search_alignments(self.ranked(prepared, search), search, prepared.rows, self._ngram, threads)
        return choose_lengths(self.filled(prepared, search), search, len(prepared.rows), passes(search), rescore)

    def filled(self, prepared: Sources, search: ParallelSearch) -> FilledSlots:
        """Return the filled slots of all lengths that a search asks for."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            # The number of slots follows from the sources.
            size = size_for(prepared, 1, device, max_source=model.config.max_positions, max_slots=1)
            unknown = np.ones(len(prepared.ids), dtype=np.int64)
            inputs = inputs_for(prepared, unknown, FILLING_SLOTS, self._allowed(model, prepared, search), size, device)
            return self._filling.call((search, size), lambda runner: runner.run(inputs, len(prepared.ids)))

    def ranked(self, prepared: Sources, search: ParallelSearch) -> RankedSlots:
        """Return the ranked slots of a CTC network, with as many tokens as a search reads."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            lengths = upsampled(model.config, source_tensors(prepared, "cpu")[1])
            max_length = int(lengths.max())
            size = size_for(prepared, max_length, device, max_source=model.config.max_positions, max_slots=model.config.max_slots)
            allowed = self._allowed(model, prepared, search)
            inputs = inputs_for(prepared, lengths.numpy(), FILLING_SLOTS, allowed, size, device)
            parts = self._rankings.call((search, size), lambda runner: runner.run(inputs, len(prepared.ids), max_length))
            scores, ids, blanks = (part.numpy() for part in parts)
            return RankedSlots(scores, ids, blanks, lengths.numpy())

    def _allowed(self, model: ParallelModel, prepared: Sources, search: ParallelSearch) -> Tensor | None:
        """Return the shortlists [B,V] of a batch; None: all tokens."""
        return shortlist_mask(search.shortlist, self._lexicon, *source_tensors(prepared, "cpu"), model.sizes.target)
