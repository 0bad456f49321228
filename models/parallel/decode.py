"""The decoder of the parallel family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.parallel import decoder as runtime
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import Rescore
from fewstep.sources import Sources, gather
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.translation import Hypothesis
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of
from models.common.inference import MEMORY_ERRORS, score_pairs
from models.common.layers.linear import pack
from models.common.native import native_arrays
from models.parallel.loss import log_probability
from models.parallel.model import ParallelModel
from models.parallel.rescorer import load_rescorer, rescoring
from models.parallel.search import TorchDecoder

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer
    from models.family import ScoringDecoder


class ParallelDecoder:
    """A network with the engines that can decode with it."""

    memory_errors = MEMORY_ERRORS

    def __init__(
        self,
        model: ParallelModel,
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        rescorer: ScoringDecoder | None = None,
        frozen: bool = False,
        native: runtime.NativeDecoder | None = None,
    ) -> None:
        """Create the engines for a network.

        `ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists; `rescorer` scores
        outputs of several lengths. `frozen` states that the weights do not change any more, so that engines may copy them. `native`
        is the runtime's decoder of the same network, if it was loaded.
        """
        self.model = model
        self.ngram = ngram
        self.lexicon = lexicon
        self.rescorer = rescorer
        if frozen:
            pack(model)
        self.engines = engines_of(
            TorchDecoder(model, ngram, lexicon, frozen=frozen),
            model,
            model.config,
            lambda: runtime.NativeDecoder(model.config, native_arrays(model), ngram, lexicon),
            frozen=frozen,
            native=native,
        )

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its network."""
        return SystemParts(ngram=self.ngram is not None, tables=self.lexicon is not None, rescorer=self.rescorer is not None)

    def problems(self, search: ParallelSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: ParallelSearch | None = None, threads: int | None = None
    ) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for a source that exceeds the network's `max_positions`."""
        return gather(sources, self._max_tokens)

    def decode(self, prepared: Sources, search: ParallelSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Raises ValueError for a search that has problems (`ParallelSearch.problems`) or that no engine of this decoder can run.
        """
        check_search(search, self.model.config, self.system_parts)
        if not prepared.rows:
            return []
        engine = choose_engine(self.engines, search)
        return engine.search(prepared, search, threads or torch.get_num_threads(), self._rescore(prepared, search))

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return log-probabilities: over all alignments with CTC, else with that of the length. See `ScoringDecoder.score`."""
        return score_pairs(self.model, log_probability, sources, targets, self._max_tokens)

    def _rescore(self, prepared: Sources, search: ParallelSearch) -> Rescore | None:
        if self.rescorer is None or search.rescoring != "system":
            return None
        return rescoring(self.rescorer, prepared.rows, self._max_tokens)

    @property
    def _max_tokens(self) -> int:
        """The maximum length of sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig, device: str) -> ParallelDecoder:
    """Load the decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    model = make_model(directory, description, device)
    assert isinstance(model, ParallelModel)
    rescorer = load_rescorer(directory, device) if runtime.has_rescorer(description) else None
    if device == "cpu":
        native = runtime.load(directory, description, search)
        return ParallelDecoder(model, native.ngram, native.lexicon, rescorer=rescorer, frozen=True, native=native)
    ngram = load_ngram(directory, description, model.sizes)
    lexicon = load_lexicon(directory, description, model.sizes)
    return ParallelDecoder(model, ngram, lexicon, rescorer=rescorer, frozen=True)
