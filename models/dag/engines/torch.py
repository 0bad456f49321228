"""Graphs of vertices in torch, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import decoding_factor
from fewstep.families.dag.search import choose_graphs, finished, follows, tokens_needed
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.dag.device import DeviceSearch
from models.dag.following import follow_graphs
from models.dag.graph_size import graph_lengths
from models.dag.model import DagModel, Source, empty_vertices
from models.dag.search import Followed, Graph, search_graph
from models.dag.vertices import TopTokens, top_k_tokens

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class _Batch(NamedTuple):
    """Encoded sources and the sizes of their graphs."""

    read: Source
    lengths: Tensor
    """The numbers of vertices, [B]."""
    size: int
    """The largest number of vertices."""
    allowed: Tensor | None
    """The shortlists [B,V]; None: all tokens."""


class TorchEngine:
    """A network in evaluation mode."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models, self._ngram, self._lexicon = Precisions(model, frozen=frozen), ngram, lexicon
        self._device = DeviceSearch(self._models, lexicon)

    def problems(self, search: DagSearch, network: DagConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        return list(self._models.problems(search.precision))

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        candidates = range(search.length_candidates)
        return choose_graphs([self._decode(prepared, search, length_rank) for length_rank in candidates], search)

    def _decode(self, prepared: Sources, search: DagSearch, length_rank: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the graphs of the length with this rank among the predicted ones."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            if device.type != "cpu" and self._device.supports(search, model.config):
                return [finished(ranked, search) for ranked in self._device.decode(prepared, search).hypotheses()]
        if follows(search):
            return [finished(ranked, search) for ranked in self._followed(prepared, search, length_rank).hypotheses()]
        graph = self.graph(prepared, search, length_rank)
        with torch.inference_mode():
            return search_graph(graph, search, prepared.rows, self._ngram)

    def graph(self, prepared: Sources, search: DagSearch, length_rank: int = 0) -> Graph:
        """Return the graphs of sources on the CPU, with as many tokens per vertex as the search needs."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            batch = self._read(model, prepared, search, device, length_rank)
            states = model.states(empty_vertices(batch.lengths, batch.size), batch.lengths, batch.read)
            count, allow_unknown = tokens_needed(search), search.allow_unknown
            top = top_k_tokens(
                states, batch.lengths, model.target_embedding, count, allow_unknown=allow_unknown, allowed=batch.allowed
            )
            tokens = TopTokens(top.scores.cpu(), top.ids.cpu())
            return Graph(model.transitions(states, batch.lengths).cpu(), tokens, batch.lengths.cpu())

    def _followed(self, prepared: Sources, search: DagSearch, length_rank: int) -> Followed:
        model = self._models[search.precision]
        with inference_mode(model) as device:
            batch = self._read(model, prepared, search, device, length_rank)
            return follow_graphs(model, search, batch.read, batch.lengths, batch.size, batch.allowed)

    def _read(self, model: DagModel, prepared: Sources, search: DagSearch, device: torch.device, length_rank: int) -> _Batch:
        source, source_lengths = source_tensors(prepared, device)
        read = model.read(source, source_lengths)
        target = torch.zeros_like(source_lengths) if read.lengths is None else _length(read.lengths, length_rank).clamp(min=2)
        lengths = graph_lengths(model.config, source_lengths, target, decoding_factor(model.config, search))
        lengths = lengths.clamp(max=model.config.max_vertices)
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, source_lengths, model.sizes.target)
        return _Batch(read, lengths, int(lengths.max()), allowed)


def _length(logits: Tensor, rank: int) -> Tensor:
    """Return the target length [B] of this rank; the shortest of equal ones comes first."""
    return logits.sort(dim=1, descending=True, stable=True).indices[:, rank]
