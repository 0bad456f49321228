"""Decoding of the dag family in torch, on any device, in buffers of fixed shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import decoding_factor
from fewstep.families.dag.search import choose_graphs, finished, follows, tokens_needed
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from models.common import buffers
from models.common.buffers import Inputs, Size, empty_inputs, inputs_for, round_slots, size_for
from models.common.inference import Precisions, inference_mode, source_tensors
from models.common.replay import Replay, RunnerCache
from models.common.shortlist import shortlist_mask
from models.dag.model import DagModel, Source, empty_vertices, graph_lengths
from models.dag.search import FollowedPaths, GraphTensors, greedy, lookahead, search_on_host
from models.dag.vertices import VertexTokens, top_k_tokens
from models.dag.viterbi import BestPaths, best_paths, length_powers

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer

FILLING_VERTICES = 2
"""The vertices of a graph that fills up a batch."""

Found = FollowedPaths | BestPaths | GraphTensors


class Read(NamedTuple):
    """Encoded sources with the numbers of vertices [B] of their graphs."""

    source: Source
    vertices: Tensor


class GraphRunner:
    """Graphs of batches of one size: paths where the search follows or finds them on the device, otherwise the graphs.

    The host waits once, for the largest number of vertices, if the network predicts lengths.
    """

    def __init__(self, model: DagModel, search: DagSearch, size: Size, length_rank: int, whole: bool) -> None:
        """`length_rank` is the rank of the target length among the predicted ones; with `whole` the graphs are the result of any
        search."""
        self._model = model
        self._search = search
        self._length_rank = length_rank
        self._whole = whole
        self._device = model.target_embedding.weight.device
        self.inputs = empty_inputs(size, model.sizes.target, self._device, shortlists=search.shortlist is not None)
        self.read: Read | None = None
        self.found: dict[int, Found] = {}
        """The results by the number of vertices in the buffers."""
        self._powers: dict[int, Tensor] = {}
        self._reading = Replay(self.encode, self._device, lambda: None)
        self._searching: dict[int, Replay] = {}

    def encode(self) -> None:
        """Encode the sources in the buffers."""
        read = self._model.read(self.inputs.source, self.inputs.lengths)
        vertices = self.inputs.slots
        if read.lengths is not None:
            target = _length(read.lengths, self._length_rank).clamp(min=2)
            vertices = vertices_for(self._model.config, self._search, self.inputs.lengths, target)
        self.read = Read(read, vertices)

    def search(self, size: int) -> None:
        """Compute graphs of up to `size` vertices, and their paths if the search follows or finds them."""
        assert self.read is not None
        model = self._model
        search = self._search
        source, vertices = self.read
        states = model.states(empty_vertices(vertices, size), vertices, source)
        transitions = model.transitions(states, vertices)
        if search.strategy == "greedy" and not self._whole:
            # Tokens are ranked only at the vertices of paths, about one vertex in `graph_factor`.
            self.found[size] = greedy(transitions, vertices, lambda path: self._tokens_on(path, states))
            return
        graph = GraphTensors(transitions, self._top_tokens(states, vertices, tokens_needed(search)), vertices)
        if self._whole:
            self.found[size] = graph
        elif follows(search):
            self.found[size] = lookahead(graph, search.token_weight)
        elif finds_best_path(search, model.config, self._device):
            self.found[size] = best_paths(
                transitions, self._weighted(graph), graph.tokens.ids[..., 0], vertices, self._powers[size]
            )
        else:
            self.found[size] = graph

    def _tokens_on(self, path: Tensor, states: Tensor) -> VertexTokens:
        """Return the best tokens on paths [B,P], which are padded with -1."""
        rows = torch.arange(len(path), device=path.device)[:, None]
        return self._top_tokens(states[rows, path.clamp(min=0)], (path >= 0).sum(1), tokens_needed(self._search))

    def _top_tokens(self, states: Tensor, vertices: Tensor, count: int) -> VertexTokens:
        allowed = None if self.inputs.excluded is None else ~self.inputs.excluded[:, 0]
        allow_unknown = self._search.allow_unknown
        return top_k_tokens(states, vertices, self._model, count, allow_unknown=allow_unknown, allowed=allowed)

    def _weighted(self, graph: GraphTensors) -> Tensor:
        """Return the scores [B,L] of the best tokens in those of paths; 0 if these count transitions alone."""
        best = graph.tokens.scores[..., 0]
        if self._search.strategy == "viterbi":
            return torch.zeros_like(best)
        # Where no token is possible, a weight of 0 must not make the vertex possible.
        return torch.where(best.isfinite(), self._search.token_weight * best, -torch.inf)

    def run(self, inputs: Inputs, sentences: int, largest: int | None) -> Found:
        """Return the results of the first `sentences` of a batch, on the CPU. `largest` is the largest number of vertices; None if
        the network predicts it."""
        self.inputs.fill(inputs)
        self._reading()
        assert self.read is not None
        if largest is None:
            largest = int(self.read.vertices.max())
        size = round_slots(largest, self._model.config.max_vertices, self._device)
        if size not in self._searching:
            self._powers[size] = length_powers(size, self._search.length_penalty, self._device)
            self._searching[size] = Replay(lambda: self.search(size), self._device, lambda: None)
        self._searching[size]()
        return _on_host(self.found[size], sentences)


def finds_best_path(search: DagSearch, config: DagConfig, device: torch.device) -> bool:
    """Return whether the best path is searched on the device: by Viterbi search on a GPU.

    On a CPU, and for graphs with a band, the runtime's kernel does so, which keeps to the band; the tensors hold all pairs of
    vertices.
    """
    viterbi = search.strategy in ("viterbi", "joint-viterbi")
    return viterbi and config.max_transition_length is None and buffers.captures(device)


class TorchDecoder:
    """A network in evaluation mode."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models = Precisions(model, frozen=frozen)
        self._ngram = ngram
        self._lexicon = lexicon
        self._runners: RunnerCache[tuple[DagSearch, Size, int, bool], GraphRunner] = RunnerCache(
            lambda key: GraphRunner(self._models[key[0].precision], *key), model.target_embedding.weight.device
        )

    def unsupported(self, search: DagSearch) -> Iterator[Problem]:
        """Yield a problem for a precision that torch does not have on this device."""
        return self._models.problems(search.precision)

    def search(self, prepared: Sources, search: DagSearch, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        candidates = range(search.length_candidates)
        return choose_graphs([self._search(prepared, search, threads, length_rank) for length_rank in candidates], search)

    def _search(self, prepared: Sources, search: DagSearch, threads: int, length_rank: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the graphs of the length with this rank among the predicted ones."""
        found = self._found(prepared, search, length_rank)
        if isinstance(found, GraphTensors):
            with torch.inference_mode():
                return search_on_host(found, search, prepared.rows, self._ngram, threads)
        return [finished(ranked, search) for ranked in found.hypotheses()]

    def graph(self, prepared: Sources, search: DagSearch, threads: int) -> GraphTensors:
        """Return the graphs of sources on the CPU, with as many tokens per vertex as the search needs."""
        found = self._found(prepared, search, 0, whole=True)
        assert isinstance(found, GraphTensors)
        return found

    def _found(self, prepared: Sources, search: DagSearch, length_rank: int, *, whole: bool = False) -> Found:
        model = self._models[search.precision]
        config = model.config
        (source, lengths) = source_tensors(prepared, "cpu")
        with inference_mode(model) as device:
            known = vertices_for(config, search, lengths, torch.zeros_like(lengths))
            # The number of vertices is no part of the size: it may be predicted.
            size = size_for(prepared, 1, device, max_source=config.max_positions, max_slots=1)
            allowed = shortlist_mask(search.shortlist, self._lexicon, source, lengths, model.sizes.target)
            inputs = inputs_for(prepared, known.numpy(), FILLING_VERTICES, allowed, size, device)
            key = (search, size, length_rank, whole)
            largest = None if config.graph_size == "predicted" else int(known.max())
            return self._runners.call(key, lambda runner: runner.run(inputs, len(prepared.ids), largest))


def vertices_for(config: DagConfig, search: DagSearch, source_lengths: Tensor, target: Tensor) -> Tensor:
    """Return the numbers of vertices [B] for `source_lengths` [B] with EOS and predicted lengths `target` [B] with BOS and EOS,
    which networks without a predicted size ignore."""
    factor = decoding_factor(config, search)
    return graph_lengths(config, source_lengths, target, factor).clamp(max=config.max_vertices)


def _length(logits: Tensor, rank: int) -> Tensor:
    """Return the target length [B] of this rank; the shortest of equal ones comes first."""
    return logits.sort(dim=1, descending=True, stable=True).indices[:, rank]


def _on_host(found: Found, sentences: int) -> Found:
    """Return the results of the first `sentences`, on the CPU."""
    if isinstance(found, GraphTensors):
        tokens = VertexTokens(*(part[:sentences].cpu() for part in found.tokens))
        return GraphTensors(found.transitions[:sentences].cpu(), tokens, found.lengths[:sentences].cpu())
    return type(found)(*(part[:sentences].cpu() for part in found))
