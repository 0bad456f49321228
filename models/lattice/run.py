"""Decoding of the lattice family in torch, on any device.

Candidates are looked up on the host, a batch ahead. On a GPU lattices of few candidates are scored in buffers of fixed shapes, and
the best path through the scores is a launch of `kernels.gpu.lattice`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from fewstep.candidates import CandidateTables
from fewstep.config.problems import Problem
from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots, look_up
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.lattice.paths import CPU_ROWS, Paths, decode_slots
from fewstep.families.lattice.paths import Lattice as Arrays
from fewstep.sources import Ints, Sources, padded
from fewstep.translation import Hypothesis
from kernels import lattice_viterbi
from models.common import buffers
from models.common.buffers import Size, empty_inputs, inputs_for, round_up, size_for
from models.common.inference import inference_mode
from models.common.replay import Replay, RunnerCache
from models.lattice.cascade import cascade
from models.lattice.model import LatticeModel
from models.lattice.scoring import GPU_ROWS, LatticeScores, score_memories, slot_tensors
from models.lattice.tables import BigramTables, Scorers

SLOT_BLOCK = 8
"""The multiple to which numbers of slots are rounded up."""
MAX_ROWS = 2**14
"""The largest number of candidates that are scored in buffers of fixed shapes: more keep a GPU busy for longer than a host takes to
launch their kernels, and rounding would cost more than it saves."""


class Shape(NamedTuple):
    """The sizes of a batch of lattices; `size.slots` are those that are scored."""

    size: Size
    candidates: int


class LatticeRunner:
    """The scoring of lattices of one size."""

    def __init__(self, model: LatticeModel, tables: BigramTables, search: LatticeSearch, shape: Shape) -> None:
        device = model.target_embedding.weight.device
        self._model = model
        self._tables = tables
        self._search = search
        self._slots = shape.size.slots
        self.inputs = empty_inputs(shape.size, 0, device, shortlists=False)
        self.slots = slot_tensors(_padded(None, search, shape), device)
        self.scores: LatticeScores | None = None
        self._replay = Replay(self.score, device, lambda: None)

    def score(self) -> None:
        """Score the lattices in the buffers."""
        memories = self._model.encode(self.inputs.source, self.inputs.lengths)
        self.scores = score_memories(self._model, memories, self.slots, self._search, self._tables, self._slots)

    def run(self, sources: Sources, slots: Slots, shape: Shape) -> LatticeScores:
        """Return the lattices of a batch, which are valid until the next one."""
        self.inputs.fill(inputs_for(sources, slots.max_lengths, 0, None, shape.size, self.inputs.source.device))
        for buffer, part in zip(self.slots, _padded(slots, self._search, shape), strict=True):
            buffer.copy_(torch.from_numpy(part))
        self._replay()
        assert self.scores is not None
        sentences = len(slots.max_lengths)
        size = int(slots.max_lengths.max())
        start, edges, exits = (part[:sentences] for part in self.scores)
        return LatticeScores(start, edges[:, : size - 1], exits[:, :size])


class TorchLattice(NamedTuple):
    """A batch of lattices as tensors. A GPU searches single paths itself; everything else is searched on the CPU."""

    scores: LatticeScores

    @property
    def has_margins(self) -> bool:
        """Whether the lattices are on the CPU, where a second path costs little."""
        return self.scores.exits.device.type == "cpu"

    def paths(self, min_lengths: Ints, max_lengths: Ints, count: int, threads: int) -> Paths:
        """Return the best `count` paths of `min_lengths` [B] to `max_lengths` [B] tokens."""
        if count > 1 or self.has_margins:
            return self.arrays().paths(min_lengths, max_lengths, count, threads)
        window = (torch.from_numpy(part).to(self.scores.exits.device) for part in (min_lengths, max_lengths))
        return Paths(*(part[:, None].cpu().numpy() for part in lattice_viterbi(*self.scores, *window)))

    def arrays(self) -> Arrays:
        """Return the scores as arrays; on the CPU they share the memory of the tensors."""
        return Arrays(*(part.cpu().numpy() for part in self.scores))


class TorchDecoder:
    """A network in evaluation mode, with the tables of its candidates."""

    def __init__(self, model: LatticeModel, tables: CandidateTables | None, bigrams: BigramTables | None) -> None:
        """Hold a network. `bigrams` are tables of weights that do not change any more; None computes from the weights each time."""
        self._scorers = Scorers(model, bigrams)
        self._tables = tables
        self._runners: RunnerCache[tuple[LatticeSearch, Shape], LatticeRunner] = RunnerCache(
            self._runner, model.target_embedding.weight.device
        )

    def unsupported(self, search: LatticeSearch) -> Iterator[Problem]:
        """Yield a problem for a precision that torch does not have on this device."""
        return self._scorers.problems(search.precision)

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return True: `search` needs a batch whose candidates were looked up."""
        return True

    def search(self, prepared: LatticeSources, search: LatticeSearch, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        model, _ = self._scorers[search.precision]
        on_cpu = model.target_embedding.weight.device.type == "cpu"

        def score(ids: Ints, lengths: Ints, slots: Slots) -> tuple[Slots, TorchLattice]:
            if search.strategy == "cascade":
                return self.cascade(ids, lengths, slots, search)
            return slots, self.lattice(ids, lengths, slots, search, threads)

        return decode_slots(score, prepared, search, max_rows=CPU_ROWS if on_cpu else GPU_ROWS, threads=threads)

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch, threads: int) -> TorchLattice:
        """Return the lattices of sources [B,S] with EOS, which are valid until the next call. Torch has its own number of
        threads."""
        model, bigrams = self._scorers[search.precision]
        with inference_mode(model) as device:
            if self.has_fixed_shape(search, slots, device):
                return TorchLattice(self._fixed(ids, lengths, slots, search, device))
            memories = model.encode(*(torch.from_numpy(part).to(device) for part in (ids, lengths)))
            return TorchLattice(score_memories(model, memories, slot_tensors(slots, device), search, bigrams))

    def cascade(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> tuple[Slots, TorchLattice]:
        """Return the slots of sources [B,S] with EOS with the candidates that the network proposes, and their lattices."""
        model, _ = self._scorers[search.precision]
        with inference_mode(model) as device:
            memories = model.encode(*(torch.from_numpy(part).to(device) for part in (ids, lengths)))
            filled, scores = cascade(model, memories, slot_tensors(slots, device), search)
            return slots._replace(token_ids=filled.token_ids.cpu().numpy()), TorchLattice(scores)

    def has_fixed_shape(self, search: LatticeSearch, slots: Slots, device: torch.device) -> bool:
        """Return whether lattices are scored in buffers of fixed shapes: the shapes of pruned ones and of the normaliser `union`
        depend on values, and weights that change have no tables."""
        _, tables = self._scorers[search.precision]
        fixed = search.normalizer != "union" and search.candidate_threshold is None and tables is not None
        return fixed and buffers.captures(device) and slots.token_ids.size <= MAX_ROWS

    def _fixed(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch, device: torch.device) -> LatticeScores:
        sources = Sources((), ids, lengths)
        max_length = int(slots.max_lengths.max())
        positions = self._scorers[search.precision][0].config.max_positions
        size = size_for(sources, max_length, device, max_source=positions, max_slots=max_length)
        rounded = min(round_up(max_length, SLOT_BLOCK), positions - 1)
        shape = Shape(size._replace(slots=rounded), slots.token_ids.shape[2])
        return self._runners.call((search, shape), lambda runner: runner.run(sources, slots, shape))

    def _runner(self, key: tuple[LatticeSearch, Shape]) -> LatticeRunner:
        search, shape = key
        model, tables = self._scorers[search.precision]
        assert tables is not None
        return LatticeRunner(model, tables, search, shape)

    def timed(
        self, source: Sequence[int], search: LatticeSearch, threads: int, clock: Callable[[], float] = time.perf_counter
    ) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part; a GPU is synchronised after each."""
        assert self._tables is not None
        model, bigrams = self._scorers[search.precision]
        with inference_mode(model) as device:
            moments = [clock()]
            ids, lengths = padded([source])
            slots = look_up(self._tables, ids, lengths - 1, search, model.config.max_positions - 1, threads)
            moments.append(clock())
            tensors = slot_tensors(slots, device)
            memories = model.encode(*(torch.from_numpy(part).to(device) for part in (ids, lengths)))
            moments.append(_synchronised(device, clock))
            lattice = TorchLattice(score_memories(model, memories, tensors, search, bigrams))
            moments.append(_synchronised(device, clock))
            tokens = int(lattice.paths(slots.min_lengths, slots.max_lengths, 1, threads).lengths[0, 0])
            moments.append(clock())
        return SentenceTimes(tokens, *(1000 * (end - start) for start, end in pairwise(moments)))


def _synchronised(device: torch.device, clock: Callable[[], float]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock()


def _padded(slots: Slots | None, search: LatticeSearch, shape: Shape) -> Slots:
    """Return the slots of a batch, with slots and sentences without candidates up to a shape."""
    sentences = shape.size.sentences
    # A lattice normalised over the next slot reads one slot behind the last that is scored.
    size = shape.size.slots + (1 if search.normalizer == "local" else 0)
    ids = np.full((sentences, size, shape.candidates), -1, dtype=np.int64)
    log_probs = np.zeros(ids.shape, dtype=np.float32)
    lengths = np.zeros((2, sentences), dtype=np.int64)
    if slots is not None:
        rows, count, _ = slots.token_ids.shape
        ids[:rows, :count] = slots.token_ids
        log_probs[:rows, :count] = slots.log_probs
        lengths[:, :rows] = slots.min_lengths, slots.max_lengths
    return Slots(ids, log_probs, *lengths)
