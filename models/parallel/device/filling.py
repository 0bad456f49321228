"""One-shot decoding and Mask-Predict as programs of fixed shapes: the host waits once, for the predicted lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import FilledSlots, passes
from fewstep.sources import Sources
from models.common.device_batch import Inputs, Size, buffers, inputs_for, rounded_slots, size_for
from models.common.precision import Precisions
from models.common.replay import Programs, Replay
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.parallel.filling import Filled, fill
from models.parallel.lengths import length_candidates
from models.parallel.model import ParallelModel, Source
from models.parallel.ranking import Ranking

if TYPE_CHECKING:
    from fewstep import Lexicon


class Read(NamedTuple):
    """Encoded sources, with K lengths for each."""

    source: Source
    lengths: Tensor
    """The lengths [B,K] in slots, the most probable one first."""
    distinct: Tensor
    """True at the distinct lengths [B,K]."""
    margins: Tensor
    """The gap [B] between the log-probabilities of the two most probable lengths."""


class Program:
    """A search of batches of one size. Its targets are all B x K pairs of a sentence and one of its lengths."""

    def __init__(self, model: ParallelModel, search: ParallelSearch, size: Size) -> None:
        self._model, self._search = model, search
        self._device = model.target_embedding.weight.device
        self.inputs = buffers(size, model.sizes.target, self._device, shortlists=search.shortlist is not None)
        self.found: Read | None = None
        self.filled: dict[int, Filled] = {}
        """The targets by their number of slots."""
        self._reading = Replay(self.read, self._device, lambda: None)
        self._filling: dict[int, Replay] = {}

    def read(self) -> None:
        """Encode the sources in the buffers and choose lengths."""
        source, source_lengths, *_ = self.inputs
        read, search = self._model.read(source, source_lengths), self._search
        assert read.lengths is not None
        found = length_candidates(self._model.config, read.lengths, source_lengths, search.length_candidates, search.length_choice)
        best = read.lengths.topk(2).values
        self.found = Read(read, *found, best[:, 0] - best[:, 1])

    def fill(self, slots: int) -> None:
        """Fill targets of up to `slots` slots."""
        assert self.found is not None
        excluded, (source, lengths, *_) = self.inputs.excluded, self.found
        count, per_sentence = lengths.shape
        sentences = torch.arange(count, device=lengths.device).repeat_interleave(per_sentence)
        ranking = Ranking(self._model, None if excluded is None else ~excluded[:, 0], allow_unknown=self._search.allow_unknown)
        selected = source if per_sentence == 1 else source.select(sentences)
        self.filled[slots] = fill(self._model, selected, lengths.flatten(), sentences, ranking, passes(self._search), slots)

    def run(self, inputs: Inputs, sentences: int) -> FilledSlots:
        """Return the filled targets of the first `sentences` of a batch."""
        self.inputs.fill(inputs)
        self._reading()
        assert self.found is not None
        _, *chosen = self.found
        lengths, distinct, margins = (part[:sentences].cpu() for part in chosen)
        slots = rounded_slots(int(lengths.max()), self._model.config.max_slots)
        if slots not in self._filling:
            self._filling[slots] = Replay(lambda: self.fill(slots), self._device, lambda: None)
        self._filling[slots]()
        targets = lengths.numel()
        ids, log_probs, of_targets = (part[:targets].cpu() for part in self.filled[slots])
        of_sentences, kept = distinct.nonzero()[:, 0], distinct.flatten()
        least = torch.minimum(of_targets[kept], margins[of_sentences])
        arrays = (of_sentences, lengths[distinct], ids[kept], log_probs[kept], least)
        return FilledSlots(*(part.numpy() for part in arrays))


class DeviceFilling:
    """One-shot decoding and Mask-Predict on the network's device."""

    def __init__(self, models: Precisions[ParallelModel], lexicon: Lexicon | None) -> None:
        self._models, self._lexicon = models, lexicon
        self._programs: Programs[tuple[ParallelSearch, Size], Program] = Programs(self._program)

    def filled(self, prepared: Sources, search: ParallelSearch) -> FilledSlots:
        """Return the filled slots of all lengths that a search asks for, on the CPU."""
        model = self._models[search.precision]
        config, (source, lengths) = model.config, source_tensors(prepared, "cpu")
        size = size_for(prepared, 1, max_source=config.max_positions, max_slots=1)  # the number of slots follows from the sources
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, lengths, model.sizes.target)
        device, nothing = model.target_embedding.weight.device, np.ones(len(prepared.ids), dtype=np.int64)
        inputs = inputs_for(prepared, nothing, 1, allowed, size, device)
        return self._programs.call((search, size), lambda program: program.run(inputs, len(prepared.ids)))

    def _program(self, key: tuple[ParallelSearch, Size]) -> Program:
        search, size = key
        return Program(self._models[search.precision], search, size)
