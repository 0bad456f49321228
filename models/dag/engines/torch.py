"""Graphs of vertices in torch, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.search import finished, tokens_needed
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.dag.graph_size import decoding_factor, graph_lengths
from models.dag.model import DagModel, empty_vertices
from models.dag.search import Graph, greedy, search_graph
from models.dag.vertices import TopTokens, top_k_tokens

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class _Vertices(NamedTuple):
    """The output of the network for a batch of sources."""

    states: Tensor
    """The states of the vertices, [B,L,D]."""
    lengths: Tensor
    """The numbers of vertices, [B]."""
    transitions: Tensor
    """The log-probabilities of transitions, [B,L,L]."""
    top_tokens: Callable[[Tensor, Tensor], TopTokens]
    """A function that maps states [B,P,D] of the vertices of graphs or paths of lengths [B] to their best tokens, on the CPU."""


class TorchEngine:
    """A network in evaluation mode and float32."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None) -> None:
        self._model, self._ngram, self._lexicon = model, ngram, lexicon

    def problems(self, search: DagSearch, network: DagConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        if search.precision == "float32":
            return []
        return [Problem(("precision",), "float32 in torch, which samples and decodes unfinished networks", search.precision)]

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        if search.strategy == "greedy":
            return [finished(ranked, search) for ranked in self._greedy(prepared, search)]
        graph = self.graph(prepared, search)
        with torch.inference_mode():
            return search_graph(graph, search, prepared.rows, self._ngram)

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """Return the graphs of sources, with as many tokens per vertex as the search needs."""
        with inference_mode(self._model) as device:
            states, lengths, transitions, top_tokens = self._vertices(*source_tensors(prepared, device), search)
            return Graph(transitions.cpu(), top_tokens(states, lengths), lengths.cpu())

    def _greedy(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        """Run greedy search. It ranks tokens only at the vertices of paths, about one vertex in `graph_factor`."""
        with inference_mode(self._model) as device:
            states, lengths, transitions, top_tokens = self._vertices(*source_tensors(prepared, device), search)

            def tokens_on(path: Tensor) -> TopTokens:
                path = path.to(device)
                rows = torch.arange(len(path), device=device)[:, None]
                return top_tokens(states[rows, path.clamp(min=0)], (path >= 0).sum(1))

            return greedy(transitions.cpu(), lengths.cpu(), tokens_on)

    def _vertices(self, source: Tensor, source_lengths: Tensor, search: DagSearch) -> _Vertices:
        config = self._model.config
        read = self._model.read(source, source_lengths)
        target = torch.zeros_like(source_lengths) if read.lengths is None else read.lengths.argmax(1).clamp(min=2)
        lengths = graph_lengths(config, source_lengths, target, decoding_factor(config)).clamp(max=config.max_vertices)
        states = self._model.states(empty_vertices(lengths, int(lengths.max())), lengths, read)
        table = self._model.target_embedding
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, source_lengths, table.num_embeddings)
        count, allow_unknown = tokens_needed(search), search.allow_unknown

        def top_tokens(states: Tensor, lengths: Tensor) -> TopTokens:
            found = top_k_tokens(states, lengths, table, count, allow_unknown=allow_unknown, allowed=allowed)
            return TopTokens(found.scores.cpu(), found.ids.cpu())

        return _Vertices(states, lengths, self._model.transitions(states, lengths), top_tokens)
