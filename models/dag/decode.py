"""Decoding with a loaded or a living network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from models.bundle.weights import make_model, read_json
from models.common.inference import at_work, score_pairs
from models.common.linear import pack
from models.common.ngram import language_model
from models.common.search import SystemParts, check_search
from models.common.shortlist import listed_for, load_lexicon
from models.common.sources import Sources, gather
from models.dag.config import DagSearch
from models.dag.engines.native import NativeGraphs
from models.dag.graph import decoding_factor, graph_lengths
from models.dag.loss import log_probability
from models.dag.model import DagModel, empty_vertices
from models.dag.search import Graph, finished, follows, greedy, search_graph, words_needed
from models.dag.vertices import Words, best_words
from models.family import Hypothesis, Sizes

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class _Vertices(NamedTuple):
    """What the network makes of a batch of sources."""

    states: Tensor
    """[B,L,D]"""
    lengths: Tensor
    """[B]"""
    transitions: Tensor
    """[B,L,L]"""
    words: Callable[[Tensor, Tensor], Words]
    """The best words, on the CPU, from states [B,P,D] of the vertices of graphs or paths of lengths [B]."""


class DagDecoder:
    """A network at work, in evaluation mode and float32."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None = None, lexicon: Lexicon | None = None) -> None:
        """`ngram`: a `kernels` scorer over target ids, for searches that give it a weight; `lexicon`: what lists of words are made
        of, for searches that have one."""
        self.model, self.ngram, self.lexicon = model, ngram, lexicon

    @property
    def parts(self) -> SystemParts:
        """The parts of the system beside its network."""
        return SystemParts(ngram=self.ngram is not None, tables=self.lexicon is not None)

    def prepare(self, sources: Sequence[Sequence[int]], search: DagSearch | None = None) -> Sources:
        """Sources without EOS as one batch. Raises ValueError for one that is longer than the network's `max_positions`."""
        return gather(sources, self._longest)

    def decode(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        """For each source its hypotheses, best first. A graph that would be larger than `max_vertices` has as many.

        Raises ValueError for a search with problems (`DagSearch.problems`) and for a precision that the machine does not support.
        """
        check_search(search, self.model.config, self.parts)
        if not prepared.rows:
            return []
        return self._search(prepared, search)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """See `models.family.Decoder.score`: summed over all paths of the graph that `decode` would search."""
        return score_pairs(self.model, log_probability, sources, targets, self._longest)

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """The graphs of sources, with as many words of each vertex as the search needs. Raises ValueError for a precision that is
        not to be had."""
        with at_work(self.model) as device:
            states, lengths, transitions, words = self._vertices(*prepared.tensors(device), search)
            return Graph(transitions.cpu(), words(states, lengths), lengths.cpu())

    def _search(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        if search.strategy == "greedy":
            return [finished(ranked, search) for ranked in self._greedy(prepared, search)]
        graph = self.graph(prepared, search)
        with torch.inference_mode():
            return search_graph(graph, search, prepared.rows, self.ngram)

    def _greedy(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        """Words are ranked on paths alone: a vertex in `graph_factor`, or so."""
        with at_work(self.model) as device:
            states, lengths, transitions, words = self._vertices(*prepared.tensors(device), search)

            def words_on(path: Tensor) -> Words:
                path = path.to(device)
                rows = torch.arange(len(path), device=device)[:, None]
                return words(states[rows, path.clamp(min=0)], (path >= 0).sum(1))

            return greedy(transitions.cpu(), lengths.cpu(), words_on)

    def _vertices(self, source: Tensor, source_lengths: Tensor, search: DagSearch) -> _Vertices:
        if search.precision != "float32":
            raise ValueError(
                "precision: expected float32 for sampling, and for a network that is not decoded natively on a CPU, "
                f"got {search.precision}"
            )
        config = self.model.config
        read = self.model.read(source, source_lengths)
        target = torch.zeros_like(source_lengths) if read.lengths is None else read.lengths.argmax(1).clamp(min=2)
        lengths = graph_lengths(config, source_lengths, target, decoding_factor(config)).clamp(max=config.max_vertices)
        states = self.model.states(empty_vertices(lengths, int(lengths.max())), lengths, read)
        table = self.model.target_embedding
        listed = listed_for(search.shortlist, self.lexicon, source, source_lengths, table.num_embeddings)

        def words(states: Tensor, lengths: Tensor) -> Words:
            found = best_words(states, lengths, table, words_needed(search), allow_unknown=search.allow_unknown, listed=listed)
            return Words(found.scores.cpu(), found.ids.cpu())

        return _Vertices(states, lengths, self.model.transitions(states, lengths), words)

    @property
    def _longest(self) -> int:
        """Longest sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1


class NativeDecoder(DagDecoder):
    """A finished network on the CPU: its graphs are made in `kernels.DagNetwork`, where greedy search and lookahead run, too.
    What samples and scores goes through torch, and what a search says."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None = None, lexicon: Lexicon | None = None) -> None:
        """A network whose weights do not change any more."""
        super().__init__(model, ngram, lexicon)
        pack(model)
        self._native = NativeGraphs(model, lexicon)

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """As `DagDecoder.graph`."""
        if search.strategy == "sample" or search.engine == "torch":
            return super().graph(prepared, search)
        return self._native.graph(prepared.ids, prepared.lengths, search)

    def _search(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        if not follows(search) or search.engine == "torch":
            return super()._search(prepared, search)
        return [finished(ranked, search) for ranked in self._native.follow(prepared.ids, prepared.lengths, search)]


def load(directory: Path, device: str) -> DagDecoder:
    """The decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    description = read_json(directory / "system.json", "a system")
    model = make_model(directory, description, device)
    assert isinstance(model, DagModel)
    lexicon = load_lexicon(directory, description, Sizes(**description["sizes"]))
    return (NativeDecoder if device == "cpu" else DagDecoder)(model, language_model(directory), lexicon)
