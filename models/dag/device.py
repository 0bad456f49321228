"""Searches for one path of a graph, as programs of fixed shapes that never wait for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import decoding_factor
from fewstep.families.dag.search import follows
from fewstep.sources import Sources
from models.common.device_batch import Inputs, Size, buffers, inputs_for, size_for
from models.common.precision import Precisions
from models.common.replay import Programs, Replay
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.dag.following import follow_graphs, viterbi_graphs
from models.dag.graph_size import graph_lengths
from models.dag.model import DagModel
from models.dag.search import Followed
from models.dag.viterbi import BestPaths, length_powers

if TYPE_CHECKING:
    from fewstep import Lexicon

SMALLEST = 2
"""The vertices of a graph that fills up a batch."""


class _Program:
    """A search of graphs of one size."""

    def __init__(self, model: DagModel, search: DagSearch, size: Size) -> None:
        device = next(model.parameters()).device
        self._model, self._search, self._size = model, search, size
        self.inputs = buffers(size, model.sizes.target, device, shortlists=search.shortlist is not None)
        self.found: Followed | BestPaths | None = None
        self._powers = None if follows(search) else length_powers(size.slots, search.length_penalty, device)
        self._replay = Replay(self.search, device, lambda: None)

    def search(self) -> None:
        """Search the graphs of the sources in the buffers."""
        source, lengths, vertices, excluded = self.inputs
        allowed = None if excluded is None else ~excluded[:, 0]
        given = self._model, self._search, self._model.read(source, lengths), vertices, self._size.slots, allowed
        self.found = follow_graphs(*given) if self._powers is None else viterbi_graphs(*given, self._powers)

    def run(self, inputs: Inputs, sentences: int) -> Followed | BestPaths:
        """Return the paths of the first `sentences` of a batch, on the CPU."""
        self.inputs.fill(inputs)
        self._replay()
        assert self.found is not None
        return type(self.found)(*(part[:sentences].cpu() for part in self.found))


class DeviceSearch:
    """Greedy, lookahead and Viterbi search of a network's graphs on its device."""

    def __init__(self, models: Precisions[DagModel], lexicon: Lexicon | None) -> None:
        self._models, self._lexicon = models, lexicon
        self._programs: Programs[tuple[DagSearch, Size], _Program] = Programs(self._program)

    def supports(self, search: DagSearch, config: DagConfig) -> bool:
        """Return whether a search has a program.

        The host must know the sizes of graphs, so they cannot be predicted ones. Best paths of graphs with a band are searched on
        the host, which keeps to the band; the program reads all pairs of vertices.
        """
        dense = config.max_transition_length is None
        found = follows(search) or (dense and search.strategy in ("viterbi", "joint-viterbi"))
        return found and config.graph_size != "predicted"

    def decode(self, prepared: Sources, search: DagSearch) -> Followed | BestPaths:
        """Return the paths of a batch of sources, on the CPU."""
        model = self._models[search.precision]
        config, (source, lengths) = model.config, source_tensors(prepared, "cpu")
        vertices = known_sizes(config, search, lengths)
        size = size_for(prepared, int(vertices.max()), max_source=config.max_positions, max_slots=config.max_vertices)
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, lengths, model.sizes.target)
        inputs = inputs_for(prepared, vertices.numpy(), SMALLEST, allowed, size, model.target_embedding.weight.device)
        return self._programs.call((search, size), lambda program: program.run(inputs, len(prepared.ids)))

    def _program(self, key: tuple[DagSearch, Size]) -> _Program:
        search, size = key
        return _Program(self._models[search.precision], search, size)


def known_sizes(config: DagConfig, search: DagSearch, source_lengths: Tensor) -> Tensor:
    """Return the numbers of vertices [B] for `source_lengths` [B] with EOS, where they do not depend on a predicted length."""
    target = torch.zeros_like(source_lengths)
    return graph_lengths(config, source_lengths, target, decoding_factor(config, search)).clamp(max=config.max_vertices)
