"""Graphs of vertices in native code on a CPU: a finished network as arrays for `fewstep.DagNetwork`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from fewstep import DagNetwork, DagRules, Lexicon
from fewstep.config.options import Precision, shortlist_sizes
from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.networks.copies import native_precision
from fewstep.sources import Ints, Sources
from fewstep.system.networks import shape_of
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BOS, EOS, MASK
from models.common.native import arrays_of
from models.dag.graph_size import LENGTHS, decoding_factor, graph_lengths
from models.dag.model import DagModel
from models.dag.search import Graph, finished, follows, search_graph, tokens_needed
from models.dag.vertices import TopTokens, banned

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


class NativeEngine:
    """Copies of a finished network, one for each precision that was used. It uses as many threads as torch."""

    def __init__(self, model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None) -> None:
        """Copy a network on the CPU in float32."""
        self._model, self._ngram, self._lexicon = model, ngram, lexicon
        self._networks: dict[Precision, DagNetwork] = {"float32": dag_network(model, lexicon=lexicon)}
        self._predicted, self._sizes = model.config.graph_size == "predicted", vertex_counts(model.config)

    def problems(self, search: DagSearch, network: DagConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        if search.strategy == "sample":
            return [Problem(("strategy",), "a strategy other than sample in native code", search.strategy)]
        return []

    def decode(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a precision that native code does not support."""
        if follows(search):
            return [finished(ranked, search) for ranked in self._follow(prepared, search)]
        with torch.inference_mode():
            return search_graph(self.graph(prepared, search), search, prepared.rows, self._ngram)

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """Return the graphs of sources, with as many tokens per vertex as the search needs."""
        scores = self._network(search).scores(
            prepared.ids,
            prepared.lengths,
            self._vertices(prepared.lengths),
            tokens=tokens_needed(search),
            rules=_rules(search),
            threads=torch.get_num_threads(),
        )
        transitions, log_probs, ids, vertices = (torch.from_numpy(part) for part in scores)
        return Graph(transitions, TopTokens(log_probs, ids), vertices)

    def _follow(self, prepared: Sources, search: DagSearch) -> list[list[Hypothesis]]:
        """Run greedy search, or lookahead search without constraints on repetitions."""
        paths = self._network(search).follow(
            prepared.ids,
            prepared.lengths,
            self._vertices(prepared.lengths),
            token_weight=search.token_weight if search.strategy == "lookahead" else 0.0,
            rules=_rules(search),
            threads=torch.get_num_threads(),
        )
        return [[Hypothesis(path.ids, path.score, 1)] for path in paths]

    def _vertices(self, lengths: Ints) -> Ints:
        """Return the number of vertices of each sentence, or of each target length if the network predicts it."""
        return self._sizes if self._predicted else self._sizes[lengths]

    def _network(self, search: DagSearch) -> DagNetwork:
        if search.precision not in self._networks:
            self._networks[search.precision] = dag_network(self._model, search.precision, self._lexicon)
        return self._networks[search.precision]


def vertex_counts(config: DagConfig) -> Ints:
    """Return the number of vertices for each source length with EOS or, if the network predicts it, for each target length."""
    lengths = torch.arange(LENGTHS if config.graph_size == "predicted" else config.max_positions + 1)
    vertices = graph_lengths(config, lengths, lengths.clamp(min=2), decoding_factor(config))
    counts: Ints = vertices.clamp(max=config.max_vertices).numpy()
    return counts


@lru_cache
def _rules(search: DagSearch) -> DagRules:
    return DagRules(
        bos=BOS,
        eos=EOS,
        mask=MASK,
        banned=tuple(banned(allow_unknown=search.allow_unknown)),
        **shortlist_sizes(search.shortlist),
    )


@torch.no_grad()
def dag_network(model: DagModel, precision: Precision = "float32", lexicon: Lexicon | None = None) -> DagNetwork:
    """Return the native copy of a network. Position codes become tables, and their contribution to transitions is precomputed.

    Raises ValueError for a precision that native code does not support.
    """
    config, width = model.config, model.config.width
    vertices, links = torch.arange(config.max_vertices), model.links
    parts = links.queries, links.keys, links.gates
    codes = links.positions(vertices)
    arrays = arrays_of(model, config) | {
        "slot_codes": model.vertex_positions(vertices).numpy(),
        "links": torch.cat([part.weight[:, :width] for part in parts]).numpy(),
        "link_codes": torch.cat([codes @ part.weight[:, width:].t() + part.bias for part in parts], 1).numpy(),
    }
    if model.length is not None:
        arrays["lengths"] = model.length.weight.numpy()
    return DagNetwork(arrays, shape=shape_of(config, "gelu"), precision=native_precision(precision), lexicon=lexicon)
