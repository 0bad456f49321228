"""The scoring of lattices as a program of fixed shapes that never waits for the host.

Candidates are looked up on the host, a batch ahead; the best path through the scores is a launch of `kernels.gpu.lattice`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fewstep.families.lattice.batches import Slots
from fewstep.families.lattice.config import LatticeSearch
from fewstep.sources import Ints, Sources
from models.common.device_batch import Size, buffers, inputs_for, size_for
from models.common.replay import Programs, Replay
from models.lattice.batches import slot_tensors
from models.lattice.model import LatticeModel
from models.lattice.scoring import Lattice, score_memories
from models.lattice.tables import BigramTables, Scorers

SLOT_BLOCK = 8
"""The multiple to which numbers of slots are rounded up."""
MAX_ROWS = 2**14
"""The largest number of candidates with a program: more keep a GPU busy for longer than a host takes to launch their kernels, and
rounding would cost more than it saves."""


class Shape(NamedTuple):
    """The sizes of a batch of lattices; `size.slots` are those that are scored."""

    size: Size
    candidates: int


class Program:
    """The scoring of lattices of one size."""

    def __init__(self, model: LatticeModel, tables: BigramTables, search: LatticeSearch, shape: Shape) -> None:
        device = model.target_embedding.weight.device
        self._model, self._tables, self._search, self._slots = model, tables, search, shape.size.slots
        self.inputs = buffers(shape.size, 0, device, shortlists=False)
        self.slots = slot_tensors(_padded(None, search, shape), device)
        self.scores: Lattice | None = None
        self._replay = Replay(self.score, device, lambda: None)

    def score(self) -> None:
        """Score the lattices in the buffers."""
        memories = self._model.encode(self.inputs.source, self.inputs.lengths)
        self.scores = score_memories(self._model, memories, self.slots, self._search, self._tables, self._slots)

    def run(self, sources: Sources, slots: Slots, shape: Shape) -> Lattice:
        """Return the lattices of a batch, which are valid until the next one."""
        self.inputs.fill(inputs_for(sources, slots.max_lengths, 0, None, shape.size, self.inputs.source.device))
        for buffer, part in zip(self.slots, _padded(slots, self._search, shape), strict=True):
            buffer.copy_(torch.from_numpy(part))
        self._replay()
        assert self.scores is not None
        sentences, size = len(slots.max_lengths), int(slots.max_lengths.max())
        start, edges, exits = (part[:sentences] for part in self.scores)
        return Lattice(start, edges[:, : size - 1], exits[:, :size])


class DeviceScoring:
    """The scoring of a network's lattices on its device."""

    def __init__(self, scorers: Scorers) -> None:
        self._scorers = scorers
        self._programs: Programs[tuple[LatticeSearch, Shape], Program] = Programs(self._program)

    def supports(self, search: LatticeSearch, slots: Slots) -> bool:
        """Return whether lattices have a program: the shapes of pruned ones and of the normaliser `union` depend on values, and
        weights that change have no tables."""
        _, tables = self._scorers[search.precision]
        fixed = search.normalizer != "union" and search.candidate_threshold is None and tables is not None
        return fixed and slots.token_ids.size <= MAX_ROWS

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS, which are valid until the next call."""
        sources, max_length = Sources((), ids, lengths), int(slots.max_lengths.max())
        positions = self._scorers[search.precision][0].config.max_positions
        rounded = min(-(-max_length // SLOT_BLOCK) * SLOT_BLOCK, positions - 1)
        size = size_for(sources, max_length, max_source=positions, max_slots=max_length)
        shape = Shape(size._replace(slots=rounded), slots.token_ids.shape[2])
        return self._programs.call((search, shape), lambda program: program.run(sources, slots, shape))

    def _program(self, key: tuple[LatticeSearch, Shape]) -> Program:
        search, shape = key
        model, tables = self._scorers[search.precision]
        assert tables is not None
        return Program(model, tables, search, shape)


def _padded(slots: Slots | None, search: LatticeSearch, shape: Shape) -> Slots:
    """Return the slots of a batch, with slots and sentences without candidates up to a shape."""
    sentences, size = shape.size.sentences, shape.size.slots + (1 if search.normalizer == "local" else 0)
    ids = np.full((sentences, size, shape.candidates), -1, dtype=np.int64)
    log_probs = np.zeros(ids.shape, dtype=np.float32)
    lengths = np.zeros((2, sentences), dtype=np.int64)
    if slots is not None:
        rows, count, _ = slots.token_ids.shape
        ids[:rows, :count], log_probs[:rows, :count] = slots.token_ids, slots.log_probs
        lengths[:, :rows] = slots.min_lengths, slots.max_lengths
    return Slots(ids, log_probs, *lengths)
