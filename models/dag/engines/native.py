"""Decoding on a CPU without torch: a finished network as arrays for `kernels.DagNetwork`."""

from __future__ import annotations

from functools import lru_cache

import torch

from fewstep import DagNetwork, DagRules, Lexicon
from models.common.native import arrays_of, kernel_precision, shape_of, shortlist_sizes
from models.common.options import Precision
from models.dag.config import DagConfig, DagSearch
from models.dag.graph import LENGTHS, decoding_factor, graph_lengths
from models.dag.model import DagModel
from models.dag.search import Graph, words_needed
from models.dag.vertices import Words, banned
from models.family import BOS, EOS, MASK, Hypothesis
from models.training.batch import Ints


class NativeGraphs:
    """Graphs of copies of a network that does not change any more, one for each precision that is asked for. It counts torch's
    threads as its own."""

    def __init__(self, model: DagModel, lexicon: Lexicon | None = None) -> None:
        """A network on the CPU in float32, and what lists of words are made of."""
        self._model, self._lexicon = model, lexicon
        self._networks: dict[Precision, DagNetwork] = {"float32": graph_network(model, lexicon=lexicon)}
        self._predicted, self._sizes = model.config.graph_size == "predicted", sizes(model.config)

    def follow(self, source: Ints, lengths: Ints, search: DagSearch) -> list[list[Hypothesis]]:
        """Greedy search and lookahead that bans no repetition; sources [B,S]."""
        paths = self._network(search).follow(
            source,
            lengths,
            self._vertices(lengths),
            word_weight=search.token_weight if search.strategy == "lookahead" else 0.0,
            rules=_rules(search),
            threads=torch.get_num_threads(),
        )
        return [[Hypothesis(path.ids, path.score, 1)] for path in paths]

    def graph(self, source: Ints, lengths: Ints, search: DagSearch) -> Graph:
        """What the other searches need."""
        found = self._network(search).scores(
            source,
            lengths,
            self._vertices(lengths),
            words=words_needed(search),
            rules=_rules(search),
            threads=torch.get_num_threads(),
        )
        transitions, scores, ids, vertices = (torch.from_numpy(part) for part in found)
        return Graph(transitions, Words(scores, ids), vertices)

    def _vertices(self, lengths: Ints) -> Ints:
        """By sentence, or by the target's length where the network predicts it."""
        return self._sizes if self._predicted else self._sizes[lengths]

    def _network(self, search: DagSearch) -> DagNetwork:
        """That of the search's precision; raises ValueError where there can be none."""
        if search.precision not in self._networks:
            self._networks[search.precision] = graph_network(self._model, search.precision, self._lexicon)
        return self._networks[search.precision]


def sizes(config: DagConfig) -> Ints:
    """Vertices by the length of the source with EOS, or, where the network predicts it, of the target."""
    lengths = torch.arange(LENGTHS if config.graph_size == "predicted" else config.max_positions + 1)
    vertices = graph_lengths(config, lengths, lengths.clamp(min=2), decoding_factor(config))
    found: Ints = vertices.clamp(max=config.max_vertices).numpy()
    return found


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
def graph_network(model: DagModel, precision: Precision = "float32", lexicon: Lexicon | None = None) -> DagNetwork:
    """The kernel's copy of a network. Codes of positions become tables, and what links read of them is worked out beforehand.
    Raises ValueError for a precision that this build lacks."""
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
    return DagNetwork(arrays, shape=shape_of(config, "gelu"), precision=kernel_precision(precision), lexicon=lexicon)
