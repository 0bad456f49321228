"""The decoder of the parallel family, and the system that may choose among its outputs (noisy parallel decoding; Gu et al. 2018,
section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.decoding import batches
from fewstep.families.parallel import decoder as runtime
from fewstep.families.parallel.config import ParallelSearch
from fewstep.families.parallel.search import Rescore
from fewstep.sources import Sources, gather
from fewstep.system.description import read_description
from fewstep.system.format import RESCORER, BundleError
from fewstep.system.parts import load_lexicon, load_ngram
from fewstep.translation import Hypothesis
from fewstep.vocabulary import vocabulary_digest
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of, native_arrays
from models.common.inference import MEMORY_ERRORS, score_pairs
from models.common.layers.linear import pack
from models.family import ScoringDecoder, family_named
from models.parallel.loss import log_probability
from models.parallel.model import ParallelModel
from models.parallel.search import TorchDecoder

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


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


def load_rescorer(directory: Path, device: str) -> ScoringDecoder:
    """Load the system that rescores, which has the vocabulary of the system in `directory`. Raises BundleError."""
    folder = directory / RESCORER
    description = read_description(folder, verify=False)  # compared already, as a part of this system
    if vocabulary_digest(directory) != vocabulary_digest(folder):
        raise BundleError(f"{directory}: expected one vocabulary for the system and its rescorer, got two; train both on one")
    family = family_named(description["family"])
    search = family.search.from_values(description["searches"][description["search"]])
    return family.functions.load(folder, description, search, device)


def rescoring(rescorer: ScoringDecoder, rows: Sequence[Sequence[int]], max_tokens: int) -> Rescore:
    """Return the function of log P(text) for texts of the sources `rows`.

    Equal texts of a sentence are scored once, at most `BATCH_TOKENS` padded tokens at a time. A text of more than `max_tokens`
    tokens, which are all slots without an EOS among them, cannot be ended by the rescorer: its score is minus infinity.
    """

    def rescore(sentences: list[int], texts: list[list[int]]) -> list[float]:
        pairs = [(sentence, tuple(text)) for sentence, text in zip(sentences, texts, strict=True)]
        distinct = [pair for pair in dict.fromkeys(pairs) if len(pair[1]) <= max_tokens]
        scores: dict[tuple[int, tuple[int, ...]], float] = {}
        for batch in batches([max(len(rows[sentence]), len(text)) + 1 for sentence, text in distinct]):
            part = [distinct[number] for number in batch]
            found = rescorer.score([rows[sentence] for sentence, _ in part], [list(text) for _, text in part])
            scores.update(zip(part, found, strict=True))
        return [scores.get(pair, -math.inf) for pair in pairs]

    return rescore
