"""The decoder of the dag family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.dag import decoder as runtime
from fewstep.families.dag.config import DagSearch
from fewstep.sources import Sources, gather
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.translation import Hypothesis
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of, native_arrays
from models.common.inference import MEMORY_ERRORS, score_pairs
from models.common.layers.linear import pack
from models.dag.loss import log_probability
from models.dag.model import DagModel
from models.dag.run import TorchDecoder
from models.dag.search import GraphTensors

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class DagDecoder:
    """A network with the engines that can decode with it."""

    memory_errors = MEMORY_ERRORS

    def __init__(
        self,
        model: DagModel,
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        frozen: bool = False,
        native: runtime.NativeDecoder | None = None,
    ) -> None:
        """Create the engines for a network.

        `ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists. `frozen` states that
        the weights do not change any more, so that engines may copy them. `native` is the runtime's decoder of the same network, if
        it was loaded.
        """
        self.model = model
        self.ngram = ngram
        self.lexicon = lexicon
        if frozen:
            pack(model)
        self.engines = engines_of(
            TorchDecoder(model, ngram, lexicon, frozen=frozen),
            model,
            model.config,
            lambda: native_decoder(model, ngram, lexicon),
            frozen=frozen,
            native=native,
        )

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its network."""
        return SystemParts(ngram=self.ngram is not None, tables=self.lexicon is not None)

    def problems(self, search: DagSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(self, sources: Sequence[Sequence[int]], search: DagSearch | None = None, threads: int | None = None) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for a source that exceeds the network's `max_positions`."""
        return gather(sources, self.model.config.max_source_tokens)

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Graphs have at most `max_vertices` vertices.

        Raises ValueError for a search that has problems (`DagSearch.problems`) or that no engine of this decoder can run.
        """
        check_search(search, self.model.config, self.system_parts)
        if not prepared.rows:
            return []
        return choose_engine(self.engines, search).search(prepared, search, threads or torch.get_num_threads())

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return log-probabilities over all paths of the graph that `decode` would search; see `ScoringDecoder.score`."""
        return score_pairs(self.model, log_probability, sources, targets, self._max_tokens)

    def graph(self, prepared: Sources, search: DagSearch) -> GraphTensors:
        """Return the graphs of sources, with as many tokens per vertex as the search needs. Raises ValueError as `decode` does."""
        found = choose_engine(self.engines, search).graph(prepared, search, torch.get_num_threads())
        return found if isinstance(found, GraphTensors) else GraphTensors.of(found)

    @property
    def _max_tokens(self) -> int:
        """The maximum length of sources and targets, in tokens without EOS."""
        return self.model.config.max_source_tokens


def native_decoder(model: DagModel, ngram: NgramScorer | None, lexicon: Lexicon | None) -> runtime.NativeDecoder:
    """Return the runtime's decoder for a copy of a finished network on the CPU in float32."""
    return runtime.NativeDecoder(model.config, native_arrays(model), ngram, lexicon)


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig, device: str) -> DagDecoder:
    """Load the decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    model = make_model(directory, description, device)
    assert isinstance(model, DagModel)
    if device == "cpu" and not model.config.needs_torch:
        native = runtime.load(directory, description, search)
        return DagDecoder(model, native.ngram, native.lexicon, frozen=True, native=native)
    ngram = load_ngram(directory, description, model.sizes)
    lexicon = load_lexicon(directory, description, model.sizes)
    return DagDecoder(model, ngram, lexicon, frozen=True)
