"""The decoders of the aggressive family: a drafter alone, and a drafter with its verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from fewstep import Lexicon
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig, SystemParts, check_search
from fewstep.families.aggressive import decoder as runtime
from fewstep.families.aggressive import pair
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.record import DraftRecord
from fewstep.sources import Sources, gather, max_output_lengths
from fewstep.system.format import DRAFTER, VERIFIER, BundleError
from fewstep.system.parts import load_lexicon
from fewstep.translation import Hypothesis
from models.aggressive.precision import Network
from models.aggressive.run import TorchDecoder
from models.aggressive.system import VERIFIER_FAMILY
from models.aggressive.verifier import Autoregressive, as_verifier, codes_of
from models.bundle.weights import make_model
from models.common.engines import choose_engine, engines_of, native_arrays
from models.common.inference import MEMORY_ERRORS
from models.common.layers.backbone import Backbone
from models.common.layers.linear import pack
from models.family import family_named


class DraftDecoder:
    """A drafter whose weights may change. Without a verifier it writes block after block, with any search, until one contains EOS;
    with a verifier its drafts are verified as `AggressiveDecoder` does."""

    memory_errors = MEMORY_ERRORS

    def __init__(self, model: Network, verifier: nn.Module | None = None) -> None:
        """Raises ValueError for a verifier that does not fit the drafter."""
        self.model = model
        self.record = DraftRecord()
        self.pair = None if verifier is None else AggressiveDecoder(model, verifier)
        self._alone = TorchDecoder(model, None, None)

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
        if self.pair is not None:
            return self.pair.decode(prepared, search, threads)
        if not prepared.rows:
            return []
        limits = max_output_lengths(search.output_limits, prepared.lengths, self.model.config.max_positions)
        found = self._alone.search(prepared, replace(search, strategy="draft"), limits, [], 1)
        self.record.add(found, search)
        return [[hypothesis] for hypothesis in found.hypotheses]

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
        draft_system: runtime.DraftSystem | None = None,
        lexicon: Lexicon | None = None,
        draft_model: nn.Module | None = None,
        *,
        frozen: bool = False,
        native: runtime.NativeDecoder | None = None,
    ) -> None:
        """`draft_system` is another system whose outputs are drafts, and `draft_model` an autoregressive network that drafts token
        after token; `lexicon` provides shortlists. With `frozen` the weights must not change any more; engines may then copy them.
        `native` is the runtime's decoder of the same networks, if it was loaded.
        Raises ValueError for networks that do not fit each other."""
        self.model = model
        self.verifier = as_verifier(verifier)
        if model.config.train_verifier:
            take_trained_weights(self.verifier, model)
        self.draft_system = draft_system
        self.lexicon = lexicon
        self.draft_model = None if draft_model is None else as_verifier(draft_model)
        self.record = DraftRecord()
        check_pair(model, self.verifier)
        if frozen:
            pack(model)
            pack(verifier)
            if draft_model is not None:
                pack(draft_model)
        self.engines = engines_of(
            TorchDecoder(model, self.verifier, lexicon, self.draft_model, frozen=frozen),
            model,
            cast(Autoregressive, self.verifier).config,
            self._native,
            frozen=frozen,
            native=native,
        )

    def _native(self) -> runtime.NativeDecoder:
        """Return the runtime's decoder for copies of the networks, whose weights must be in float32."""
        model, verifier = self.model, self.verifier
        config = cast(Autoregressive, verifier).config
        arrays = native_arrays(model), native_arrays(verifier)
        drafting = self.draft_model
        draft_model = None if drafting is None else (cast(Autoregressive, drafting).config, native_arrays(drafting))
        return runtime.NativeDecoder(
            model.config, arrays[0], model.sizes, config, arrays[1], draft_model=draft_model, lexicon=self.lexicon
        )

    @property
    def system_parts(self) -> SystemParts:
        """The parts of the system in addition to its networks."""
        tables = self.lexicon is not None and self.lexicon.linked_tokens is not None
        draft_model = self.draft_model is not None
        drafter = draft_model or self.draft_system is not None
        return SystemParts(tables=tables, drafter=drafter, draft_model=draft_model, target_size=self.model.sizes.target)

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
        engine = choose_engine(self.engines, search)
        limits = max_output_lengths(search.output_limits, prepared.lengths, config.max_positions)
        hints = runtime.draft_hints(prepared, search, self.draft_system, self.model.sizes.joint, threads)
        found = engine.search(prepared, search, limits, hints, threads or torch.get_num_threads())
        self.record.add(found, search)
        return [[hypothesis] for hypothesis in found.hypotheses]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the verifier's log-probabilities; see `ScoringDecoder.score`."""
        return family_named(VERIFIER_FAMILY).functions.decoder(self.verifier).score(sources, targets)


def take_trained_weights(verifier: Backbone, model: Network) -> None:
    """Replace the verifier's weights by those that were trained with the heads (`train_verifier`).

    Raises ValueError for a verifier with other tensors, such as start vectors.
    """
    own = model.state_dict()
    try:
        verifier.load_state_dict({name: own[name] for name in verifier.state_dict()})
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"verifier: expected the network that the heads were trained with, got another one: {error}") from error


def check_pair(model: Network, verifier: Backbone) -> None:
    """Raise ValueError for networks with vocabularies of other sizes or with other `max_positions`, and for a drafter whose shared
    parameters are not those of the verifier."""
    with torch.no_grad():
        own = {**model.state_dict(), "slot_codes": model.slot_codes(model.max_positions)}
        others = {**verifier.state_dict(), "slot_codes": codes_of(verifier)}
    its_config = cast(Autoregressive, verifier).config
    pair.check_pair(model.config, model.sizes, own, its_config, verifier.sizes, others, torch.equal)


def load(directory: Path, description: Mapping[str, Any], search: SearchConfig, device: str) -> AggressiveDecoder:
    """Load the decoder of a system directory, ready for `search`. Raises BundleError."""
    model = make_model(directory, description, device)
    assert isinstance(model, Network)
    network = make_model(directory / VERIFIER, runtime.verifier_description(directory), device)
    draft_system: runtime.DraftSystem | None = None
    draft_model: nn.Module | None = None
    if (directory / DRAFTER).exists():
        from models.bundle.directory import load_system

        draft_system = runtime.draft_system_of(directory, partial(load_system, device=device))
        if (described := runtime.draft_model_description(directory, model.config)) is not None:
            draft_model = make_model(directory / DRAFTER, described, device)
    torch_only = cast(Autoregressive, network).config.needs_torch
    native = runtime.load(directory, description, search) if device == "cpu" and not torch_only else None
    lexicon = load_lexicon(directory, description, model.sizes) if native is None else native.lexicon
    try:
        return AggressiveDecoder(model, network, draft_system, lexicon, draft_model, frozen=True, native=native)
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error
