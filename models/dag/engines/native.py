"""Graphs of vertices in native code on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.decoder import NativeDecoder
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from models.common.native import native_arrays
from models.dag.model import DagModel
from models.dag.search import Graph
from models.dag.vertices import TopTokens

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon


class NativeEngine:
    """The runtime's decoder. Unless a call states the number of threads, it uses as many as torch."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder

    def problems(self, search: DagSearch, network: DagConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        return list(self.decoder.unsupported(search))

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a precision that native code does not support."""
        return self.decoder.search(prepared, search, threads or torch.get_num_threads())

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """Return the graphs of sources, with as many tokens per vertex as the search needs."""
        transitions, tokens, lengths = self.decoder.graph(prepared, search, torch.get_num_threads())
        scores, ids = (torch.from_numpy(part) for part in tokens)
        return Graph(torch.from_numpy(transitions), TopTokens(scores, ids), torch.from_numpy(lengths))


def native_decoder(model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None) -> NativeDecoder:
    """Return the runtime's decoder for a copy of a finished network on the CPU in float32."""
    return NativeDecoder(model.config, native_arrays(model), ngram, lexicon)
