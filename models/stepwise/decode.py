"""The decoder of the stepwise family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fewstep.config.problems import Problem
from fewstep.config.search import SystemParts, check_search
from fewstep.families.stepwise import decoder as runtime
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.sources import Sources, gather, max_output_lengths
from fewstep.system.format import WEIGHTS, network_folders
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.translation import Hypothesis
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of, native_arrays
from models.common.inference import MEMORY_ERRORS, score_pairs
from models.common.layers.linear import pack
from models.stepwise.ctranslate2 import CTranslate2Engine
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.loss import log_probability
from models.stepwise.model import StepwiseModel
from models.stepwise.search.run import TorchDecoder

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class StepwiseDecoder:
    """A network or an ensemble with the engines that can decode with it."""

    memory_errors = MEMORY_ERRORS

    def __init__(
        self,
        model: StepwiseModel | Ensemble,
        ngram: NgramScorer | None = None,
        lexicon: Lexicon | None = None,
        *,
        frozen: bool = False,
        native: runtime.NativeDecoder | None = None,
    ) -> None:
        """`ngram` is a scorer over target ids for searches with an `ngram_weight`; `lexicon` provides shortlists. With `frozen` the
        weights must not change any more; engines may then copy them. `native` is the runtime's decoder of the same network, if it
        was loaded."""
        self.model = model
        self.ngram = ngram
        self.lexicon = lexicon
        if frozen:
            pack(model)
        self.engines: dict[str, TorchDecoder | runtime.NativeDecoder | CTranslate2Engine] = dict(
            engines_of(
                TorchDecoder(model, ngram, lexicon, frozen=frozen),
                model,
                model.config,
                lambda: runtime.NativeDecoder(model.config, [native_arrays(member) for member in networks(model)], ngram, lexicon),
                frozen=frozen,
                native=native,
            )
        )
        if frozen:
            self.engines["ctranslate2"] = CTranslate2Engine(model, lexicon)

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its network."""
        return SystemParts(ngram=self.ngram is not None, tables=self.lexicon is not None, networks=len(networks(self.model)))

    def problems(self, search: StepwiseSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: StepwiseSearch | None = None, threads: int | None = None
    ) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for one that exceeds the network's `max_positions`."""
        return gather(sources, self._max_tokens)

    def decode(self, prepared: Sources, search: StepwiseSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Raises ValueError for a search with problems (`StepwiseSearch.problems`) or that no engine of this decoder can run, and
        EngineError if the search needs CTranslate2 and it is not installed.
        """
        config = self.model.config
        check_search(search, config, self.system_parts)
        if not prepared.rows:
            return []
        engine = choose_engine(self.engines, search)
        limits = max_output_lengths(search.output_limits, prepared.lengths, config.max_positions)
        return runtime.deduplicated(engine.search(prepared, search, limits, threads or torch.get_num_threads()), search)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return log-probabilities; see `ScoringDecoder.score`. The same slots count as in searches; no token is banned.

        If either direction may end an output, a text can be written in two ways; the score is that of the way used in training.
        """
        return score_pairs(self.model, log_probability, sources, targets, self._max_tokens)

    @property
    def _max_tokens(self) -> int:
        """Maximum length of sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1


def decode_batch(model: StepwiseModel, sources: Sequence[Sequence[int]], search: StepwiseSearch) -> list[list[Hypothesis]]:
    """Decode with the current weights of a network that may be in training; its training mode does not change."""
    decoder = StepwiseDecoder(model)
    return decoder.decode(decoder.prepare(sources), search)


def load(directory: Path, description: Mapping[str, Any], search: StepwiseSearch, device: str) -> StepwiseDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    members = [make_model(directory, description, device, f"{folder}/{WEIGHTS}") for folder in network_folders(description)]
    models = [member for member in members if isinstance(member, StepwiseModel)]
    model = models[0] if len(models) == 1 else Ensemble(models)
    if device == "cpu" and not model.config.needs_torch:
        native = runtime.load(directory, description, search)
        return StepwiseDecoder(model, native.ngram, native.lexicon, frozen=True, native=native)
    ngram = load_ngram(directory, description, model.sizes)
    lexicon = load_lexicon(directory, description, model.sizes)
    return StepwiseDecoder(model, ngram, lexicon, frozen=True)
