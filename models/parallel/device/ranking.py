"""The ranking of CTC's slots as a program of fixed shapes that never waits for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import RankedSlots, tokens_needed
from fewstep.sources import Sources
from fewstep.vocabulary import BLANK
from models.common.device_batch import Inputs, Size, buffers, inputs_for, size_for
from models.common.precision import Precisions
from models.common.replay import Programs, Replay
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.parallel.lengths import upsampled
from models.parallel.model import ParallelModel
from models.parallel.ranking import Ranking

if TYPE_CHECKING:
    from fewstep import Lexicon

SMALLEST = 1
"""The slots of a sentence that fills up a batch."""


class Program:
    """The ranking of slots of one size."""

    def __init__(self, model: ParallelModel, search: ParallelSearch, size: Size) -> None:
        device = model.target_embedding.weight.device
        self._model, self._search, self._size = model, search, size
        self.inputs = buffers(size, model.sizes.target, device, shortlists=search.shortlist is not None)
        self.found: tuple[Tensor, ...] | None = None
        self._replay = Replay(self.rank, device, lambda: None)

    def rank(self) -> None:
        """Rank the tokens of all slots of the sources in the buffers."""
        source, lengths, slots, excluded = self.inputs
        allowed = None if excluded is None else ~excluded[:, 0]
        read, shape = self._model.read(source, lengths), (len(source), self._size.slots)
        states = self._model.states(self._model.inputs(read, slots, shape[1]), slots, read)
        ranking = Ranking(self._model, allowed, allow_unknown=self._search.allow_unknown)
        sentences = torch.arange(shape[0], device=source.device).repeat_interleave(shape[1])
        ranked = ranking.top(states.flatten(0, 1), sentences, tokens_needed(self._search), without=BLANK)
        self.found = tuple(part.view(*shape, *part.shape[1:]) for part in ranked)

    def run(self, inputs: Inputs, sentences: int, slots: int) -> list[Tensor]:
        """Return scores, ids and blanks of the first `sentences` of a batch and of the first `slots`, on the CPU."""
        self.inputs.fill(inputs)
        self._replay()
        assert self.found is not None
        return [part[:sentences, :slots].cpu() for part in self.found]


class DeviceRanking:
    """The ranking of the slots of a network's CTC on its device."""

    def __init__(self, models: Precisions[ParallelModel], lexicon: Lexicon | None) -> None:
        self._models, self._lexicon = models, lexicon
        self._programs: Programs[tuple[ParallelSearch, Size], Program] = Programs(self._program)

    def ranked(self, prepared: Sources, search: ParallelSearch) -> RankedSlots:
        """Return the ranked slots of a batch of sources, on the CPU."""
        model = self._models[search.precision]
        config, (source, source_lengths) = model.config, source_tensors(prepared, "cpu")
        lengths = upsampled(config, source_lengths)
        max_length = int(lengths.max())
        size = size_for(prepared, max_length, max_source=config.max_positions, max_slots=config.max_slots)
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, source_lengths, model.sizes.target)
        inputs = inputs_for(prepared, lengths.numpy(), SMALLEST, allowed, size, model.target_embedding.weight.device)
        parts = self._programs.call((search, size), lambda program: program.run(inputs, len(prepared.ids), max_length))
        scores, ids, blanks = (part.numpy() for part in parts)
        return RankedSlots(scores, ids, blanks, lengths.numpy())

    def _program(self, key: tuple[ParallelSearch, Size]) -> Program:
        search, size = key
        return Program(self._models[search.precision], search, size)
