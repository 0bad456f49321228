"""The native decoder of the dag family: graphs of vertices and their searches on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fewstep.config.options import shortlist_sizes
from fewstep.config.problems import Problem, refuse
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.explanation import TOKENS, Explanation, of_graph
from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.families.dag.graph_size import vertex_counts
from fewstep.families.dag.search import Graph, TopTokens, choose_graphs, finished, follows, search_graph, tokens_needed
from fewstep.networks.arrays import Precision
from fewstep.networks.copies import Copies
from fewstep.networks.dag_network import DagNetwork, DagRules
from fewstep.sources import Ints, Sources, gather
from fewstep.system.format import BundleError
from fewstep.system.networks import network_of, read_network, shape_of, sizes_of
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.threads import default_threads
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BOS, EOS, MASK, RESERVED, UNK

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon
    from fewstep.system.networks import Arrays


class NativeDecoder:
    """Copies of a network. Several threads may use it at the same time."""

    memory_errors = (MemoryError,)

    def __init__(
        self,
        config: DagConfig,
        arrays: Arrays,
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        precision: Precision = "float32",
    ) -> None:
        """Copy a network, first in `precision`, with the arrays of `fewstep.DagNetwork` but for `links`, which is cut from the
        weights, and with `graph_lengths`, the number of vertices for each source length with EOS or, if the network predicts it,
        for each target length.

        `ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists. Raises ValueError
        for arrays that do not fit `config`, and for a network that torch alone decodes.
        """
        if config.needs_torch:
            raise ValueError(
                "expected a network that native code decodes, got one without tied_output; load it in a checkout with "
                "models.bundle.directory.load_system, which decodes it with torch"
            )
        self.config = config
        self.ngram = ngram
        self.lexicon = lexicon
        self.parts = SystemParts(ngram=ngram is not None, tables=lexicon is not None)
        self._sizes: Ints = _sizes(arrays, config)
        self._vocabulary_size = len(_array("target_embedding", arrays))
        given = {**arrays, "links": _links(arrays, config.width)}
        self._copies = Copies(lambda precision: self._copy(given, precision))
        # Made now, so that the first sentence does not wait for it.
        self._copies[precision]

    def _copy(self, arrays: Arrays, precision: Precision) -> DagNetwork:
        return DagNetwork(
            arrays,
            shape=shape_of(self.config),
            precision=precision,
            lexicon=self.lexicon,
            max_transition_length=self.config.max_transition_length,
        )

    def problems(self, search: DagSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system, or that native code does not support."""
        yield from search.problems(self.config, self.parts)
        if search.engine != "auto":
            yield Problem(("engine",), "auto in native code", search.engine)
        yield from self.unsupported(search)

    def unsupported(self, search: DagSearch) -> Iterator[Problem]:
        """Yield the strategy of a search if native code does not have it."""
        if search.strategy == "sample":
            yield Problem(("strategy",), "a strategy other than sample in native code", search.strategy)

    def prepare(self, sources: Sequence[Sequence[int]], search: Any = None, threads: int | None = None) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for a source that exceeds the network's `max_positions`."""
        return gather(sources, self.config.max_source_tokens)

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a search with `problems`."""
        check_search(search, self.config, self.parts)
        refuse(self.problems(search))
        return self.search(prepared, search, threads or default_threads()) if prepared.rows else []

    def search(self, prepared: Sources, search: DagSearch, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of a search without problems."""
        candidates = range(search.length_candidates)
        return choose_graphs([self._search(prepared, search, threads, length_rank) for length_rank in candidates], search)

    def _search(self, prepared: Sources, search: DagSearch, threads: int, length_rank: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the graphs of the length with this rank among the predicted ones."""
        if follows(search):
            return [finished(ranked, search) for ranked in self._follow(prepared, search, threads, length_rank)]
        return search_graph(self.graph(prepared, search, threads, length_rank=length_rank), search, self.ngram, threads)

    def graph(self, prepared: Sources, search: DagSearch, threads: int, tokens: int = 1, length_rank: int = 0) -> Graph:
        """Return the graphs of sources, with as many tokens per vertex as the search needs, and at least `tokens`.

        If the network predicts lengths, they are those of the length with `length_rank` among the predicted ones.
        """
        transitions, log_probs, ids, lengths = self._copies[search.precision].scores(
            *self._encoded(prepared),
            self._vertices(prepared.lengths, search),
            tokens=min(max(tokens, tokens_needed(search)), self._vocabulary_size),
            rules=_rules(search, length_rank),
            threads=threads,
        )
        return Graph(transitions, TopTokens(log_probs, ids), lengths)

    def explain(
        self, source: Sequence[int], search: DagSearch, piece: Callable[[int], str], threads: int | None = None
    ) -> Explanation:
        """Return the graph of a source (`fewstep.explanation.Explaining`)."""
        prepared = self.prepare([source])
        best = self.decode(prepared, search, threads)[0][0]
        graph = self.graph(prepared, search, threads or default_threads(), TOKENS)
        return of_graph(graph.transitions[0], graph.tokens.scores[0], graph.tokens.ids[0], best.ids, piece)

    def _follow(self, prepared: Sources, search: DagSearch, threads: int, length_rank: int) -> list[list[Hypothesis]]:
        """Run greedy search, or lookahead search without constraints on repetitions."""
        paths = self._copies[search.precision].follow(
            *self._encoded(prepared),
            self._vertices(prepared.lengths, search),
            token_weight=search.token_weight if search.strategy == "lookahead" else 0.0,
            rules=_rules(search, length_rank),
            threads=threads,
        )
        return [[Hypothesis(path.ids, path.score, 1)] for path in paths]

    def _encoded(self, prepared: Sources) -> tuple[Ints, Ints]:
        """Return the ids [B,S] and the lengths [B] of sources as they are encoded."""
        if not self.config.source_bos:
            return prepared.ids, prepared.lengths
        return np.pad(prepared.ids, ((0, 0), (1, 0)), constant_values=BOS), prepared.lengths + 1

    def _vertices(self, lengths: Ints, search: DagSearch) -> Ints:
        """Return the number of vertices of each sentence, or of each target length if the network predicts it."""
        sizes = self._sizes if search.graph_factor is None else vertex_counts(self.config, search.graph_factor)
        return sizes if self.config.graph_size == "predicted" else sizes[lengths]


def _array(name: str, arrays: Arrays) -> Any:
    if name not in arrays:
        raise ValueError(f"arrays: missing {name}")
    return arrays[name]


def _sizes(arrays: Arrays, config: DagConfig) -> Ints:
    """Return the numbers of vertices. Raises ValueError for numbers without position codes, and for too few of them."""
    sizes: Ints = _array("graph_lengths", arrays)
    codes = len(_array("slot_codes", arrays))
    fewest = 1 if config.graph_size == "predicted" else config.max_positions + 1
    if sizes.dtype != np.int64 or sizes.ndim != 1 or len(sizes) < fewest:
        raise ValueError(f"graph_lengths: expected at least {fewest} int64 numbers, got {sizes.dtype} {list(sizes.shape)}")
    if sizes.min() < 2 or sizes.max() > codes:
        raise ValueError(f"graph_lengths: expected 2 to {codes} vertices, got {sizes.min()} to {sizes.max()}")
    return sizes


def _links(arrays: Arrays, width: int) -> Any:
    """Return the projection of vertex states to the queries, keys and gates of transitions, without the part for positions."""
    return np.concatenate([_array(f"links.{part}.weight", arrays)[:, :width] for part in ("queries", "keys", "gates")])


@lru_cache
def _rules(search: DagSearch, length_rank: int) -> DagRules:
    return DagRules(
        bos=BOS,
        eos=EOS,
        mask=MASK,
        banned=tuple(banned(allow_unknown=search.allow_unknown)),
        length_rank=length_rank,
        **shortlist_sizes(search.shortlist),
    )


def banned(*, allow_unknown: bool) -> list[int]:
    """Return the tokens that no vertex between the ends emits."""
    return [token for token in range(len(RESERVED)) if token != UNK or not allow_unknown]


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig) -> NativeDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    config = cast(DagConfig, network_of(directory, description, DagConfig))
    sizes = sizes_of(directory, description)
    arrays = read_network(directory, config, sizes)
    ngram = load_ngram(directory, description, sizes)
    lexicon = load_lexicon(directory, description, sizes)
    precision = cast(DagSearch, search).precision
    try:
        return NativeDecoder(config, arrays, ngram, lexicon, precision="float32" if precision == "float16" else precision)
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error
