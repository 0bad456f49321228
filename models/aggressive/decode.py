"""The decoders of the aggressive family: a drafter alone, and a drafter with its verifier."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from fewstep import Lexicon
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.sources import Sources, gather, max_output_lengths
from fewstep.system.format import MEMBERS, BundleError, read_json
from fewstep.system.parts import load_lexicon
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, vocabulary_digest
from models.aggressive.draft_only import draft_only
from models.aggressive.engines import engines_for
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel
from models.aggressive.record import DraftRecord
from models.aggressive.system import DRAFTER, VERIFIER, VERIFIER_FAMILY
from models.aggressive.verifier import Autoregressive, as_verifier, codes_of
from models.bundle.weights import make_model
from models.common.engines import choose_engine
from models.common.inference import MEMORY_ERRORS, inference_mode
from models.common.layers.backbone import Backbone
from models.common.layers.linear import pack
from models.common.sources import source_tensors
from models.family import ScoringDecoder, family_named

log = logging.getLogger("fewstep")

Network = AggressiveModel | DraftHead


class DraftDecoder:
    """A drafter without a verifier, whose weights may change. With any search it writes block after block until one contains
    EOS."""

    memory_errors = MEMORY_ERRORS

    def __init__(self, model: Network) -> None:
        self.model = model
        self.record = DraftRecord()

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its network; a drafter in training needs none."""
        return SystemParts()

    def problems(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: AggressiveSearch | None = None, threads: int | None = None
    ) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for one that exceeds the network's `max_positions`."""
        return gather(sources, self.model.config.max_positions - 1)

    def decode(self, prepared: Sources, search: AggressiveSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source."""
        if not prepared.rows:
            return []
        limits = max_output_lengths(search.output_limits, prepared.lengths, self.model.config.max_positions)
        with inference_mode(self.model) as device:
            state = draft_only(self.model, *source_tensors(prepared, device), search, torch.from_numpy(limits).to(device))
        hypotheses = state.hypotheses()
        for hypothesis in hypotheses:
            self.record.add(hypothesis)
        return [[hypothesis] for hypothesis in hypotheses]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Raise ValueError: the output of a drafter depends on where its blocks begin, so a text has no single probability."""
        raise ValueError("score: expected a system that assigns probabilities to texts, got a drafter without a verifier")


class AggressiveDecoder:
    """A drafter and its verifier with the engines that can decode with them."""

    memory_errors = MEMORY_ERRORS

    def __init__(
        self,
        model: Network,
        verifier: nn.Module,
        draft_system: tuple[ScoringDecoder, object] | None = None,
        lexicon: Lexicon | None = None,
        *,
        frozen: bool = False,
    ) -> None:
        """`draft_system` is the decoder and the search of another system whose outputs are drafts; `lexicon` provides shortlists.
        With `frozen` the weights must not change any more; engines may then copy them. Raises ValueError for networks that do not
        fit each other."""
        self.model, self.verifier = model, as_verifier(verifier)
        self.draft_system, self.lexicon = draft_system, lexicon
        self.record = DraftRecord()
        check_pair(model, self.verifier)
        if frozen:
            pack(model)
            pack(verifier)
        self.engines = engines_for(model, self.verifier, lexicon, frozen=frozen)
        self._warned = False

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its networks."""
        tables = self.lexicon is not None and self.lexicon.linked_tokens is not None
        return SystemParts(tables=tables, drafter=self.draft_system is not None, target_size=self.model.sizes.target)

    def problems(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.system_parts)

    def prepare(
        self, sources: Sequence[Sequence[int]], search: AggressiveSearch | None = None, threads: int | None = None
    ) -> Sources:
        """Return sources without EOS as one batch. Raises ValueError for one that exceeds the networks' `max_positions`."""
        return gather(sources, self.model.config.max_positions - 1)

    def decode(self, prepared: Sources, search: AggressiveSearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source.

        Raises ValueError for a search with problems (`AggressiveSearch.problems`) or that no engine of this decoder can run.
        """
        config = self.model.config
        check_search(search, config, self.system_parts)
        if not prepared.rows:
            return []
        engine = choose_engine(self.engines, "auto", search, config)
        limits = max_output_lengths(search.output_limits, prepared.lengths, config.max_positions)
        hypotheses, seconds = engine.decode(prepared, search, limits, self._hints(prepared, search) if search.looks_up else [])
        for hypothesis in hypotheses:
            self.record.add(hypothesis)
        self.record.add_seconds(seconds)
        self._warn(search)
        return [[hypothesis] for hypothesis in hypotheses]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the verifier's log-probabilities; see `ScoringDecoder.score`."""
        return family_named(VERIFIER_FAMILY).functions.decoder(self.verifier).score(sources, targets)

    def _hints(self, prepared: Sources, search: AggressiveSearch) -> list[list[int]]:
        """Return the texts in which n-grams are looked up in addition to the output: the sources of a joint vocabulary, or the
        outputs of the draft system."""
        if search.drafter == "system" and self.draft_system is not None:
            decoder, its_search = self.draft_system
            found = decoder.decode(decoder.prepare(prepared.rows, its_search), its_search)
            return [[*ranked[0].ids, EOS] for ranked in found]
        return [[*row, EOS] if self.model.sizes.joint else [] for row in prepared.rows]

    def _warn(self, search: AggressiveSearch) -> None:
        """Warn once if drafting was given up for most sentences."""
        record = self.record
        if not self._warned and search.strategy != "greedy" and record.sentences >= 10 and 2 * record.fell_back > record.sentences:
            self._warned = True
            log.warning(
                "drafting was given up for %d of %d sentences, which were decoded greedily: the drafter is untrained or trained on "
                "other text than the verifier",
                record.fell_back,
                record.sentences,
            )


def check_pair(model: Network, verifier: Backbone) -> None:
    """Raise ValueError for networks with vocabularies of other sizes or with other `max_positions`, and for a drafter whose shared
    parameters are not those of the verifier."""
    if model.sizes != verifier.sizes:
        raise ValueError(f"verifier: expected vocabularies {tuple(model.sizes)} as the drafter has, got {tuple(verifier.sizes)}")
    expected, got = model.config.max_positions, cast(Autoregressive, verifier).config.max_positions
    if expected != got:
        raise ValueError(f"verifier: expected max_positions {expected} as the drafter has, got {got}; train both with one value")
    shared = model.shared_parameters()
    own, others = model.state_dict(), verifier.state_dict()
    if different := [name for name in shared if name not in others or not torch.equal(own[name], others[name])]:
        raise ValueError(
            f"verifier: expected the one that the drafter was trained on, but {len(different)} of {len(shared)} tensors that "
            f"they share differ, first {different[0]}; train the drafter with `initial_weights: verifier`, from this verifier"
        )
    if isinstance(model, DraftHead) and not torch.equal(model.slot_codes(expected), codes_of(verifier)[:expected]):
        raise ValueError("verifier: expected slots with position codes only for an autoregressive drafter, got start vectors too")


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig, device: str) -> AggressiveDecoder:
    """Load the decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    model = make_model(directory, description, device)
    assert isinstance(model, AggressiveModel | DraftHead)
    verifier = directory / VERIFIER
    described = read_json(verifier / "system.json", "a system (the verifier)")
    if any(part.startswith(f"{MEMBERS}/") for part in described.get("parts", ())):
        raise BundleError(f"{verifier}: expected a verifier of one network, got an ensemble; name one of its members, or a student")
    network = make_model(verifier, described, device)
    _check_vocabularies(directory, verifier, "the verifier")
    draft_system = None
    if (directory / DRAFTER).exists():
        from models.bundle.directory import load_system

        _check_vocabularies(directory, directory / DRAFTER, "the draft system")
        other = load_system(directory / DRAFTER, device, verify=False)  # compared already, as parts of this system
        draft_system = (other.decoder, other.search)
    try:
        return AggressiveDecoder(model, network, draft_system, load_lexicon(directory, description, model.sizes), frozen=True)
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error


def _check_vocabularies(directory: Path, other: Path, name: str) -> None:
    try:
        same = vocabulary_digest(directory) == vocabulary_digest(other)
    except OSError as error:
        raise BundleError(f"{directory}: {error}; the directory is incomplete, create it again") from error
    if not same:
        raise BundleError(f"{directory}: expected one vocabulary for the drafter and {name}, got two; train both on one vocabulary")
