"""Decoding of the aggressive family in torch, on any device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import block_width
from fewstep.families.aggressive.record import Drafting
from fewstep.sources import Ints, Sources
from models.aggressive.drafters import Drafter, DraftModel, JacobiDrafter, LookupDrafter, network_drafter
from models.aggressive.precision import Network, Pair
from models.aggressive.search import DraftAndVerify, DraftOnly, random_numbers
from models.aggressive.tokens import draft_mask
from models.aggressive.verifier import CachedDecoder
from models.common.buffers import Inputs, Size, empty_inputs, fill_up, inputs_for, round_slots, size_for
from models.common.inference import inference_mode, source_tensors
from models.common.layers.backbone import Backbone
from models.common.replay import RunnerCache
from models.common.runner import BufferedSearch, SearchRunner
from models.common.shortlist import linked_tokens, shortlist_mask

if TYPE_CHECKING:
    from fewstep import Lexicon

NUMBERS = 3
"""Random numbers for each slot of an output."""


class TorchDecoder:
    """A drafter in evaluation mode, alone or with its verifier."""

    def __init__(
        self,
        model: Network,
        verifier: Backbone | None,
        lexicon: Lexicon | None,
        draft_model: Backbone | None = None,
        *,
        frozen: bool = False,
    ) -> None:
        """`draft_model` is an autoregressive network that drafts as well. `frozen` states that the weights do not change any more,
        so that there may be copies in half precision. Without a verifier all searches are those of the drafter alone."""
        self._pair = Pair(model, verifier, draft_model, frozen=frozen)
        self._lexicon = lexicon
        self._config = model.config
        self._tokens = model.sizes.target
        self._device = model.target_embedding.weight.device
        self._runners: RunnerCache[tuple[AggressiveSearch, Size, int], SearchRunner] = RunnerCache(self._runner, self._device)

    def unsupported(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the precisions of a search that torch does not have on this device."""
        return self._pair.problems(search)

    def search(
        self, prepared: Sources, search: AggressiveSearch, limits: Ints, hints: Sequence[Sequence[int]], threads: int
    ) -> Drafting:
        """Return the hypothesis of each source. `limits` [B] are maximum output lengths in tokens with EOS; `hints` are texts in
        which n-grams are looked up, if the search does so. Torch has its own number of threads."""
        search = search.with_fallback(self._config)
        model = self._pair.drafter(search)
        verifier = self._pair.verifier(search)
        max_length = int(limits.max())
        positions = self._config.max_positions
        with inference_mode(model) as device, inference_mode(verifier or model):
            size = size_for(prepared, max_length, device, max_source=positions, max_slots=positions)
            longest = max(map(len, hints), default=0)
            hint_tokens = round_slots(longest, max(longest, positions), device) if search.looks_up else 0
            inputs = self._inputs(prepared, search, limits, hints, size, hint_tokens)
            key = (search, size, hint_tokens)
            found = self._runners.call(key, lambda runner: runner.run(inputs, len(prepared.ids), max_length))
        return Drafting([hypothesis for (hypothesis,) in found], {})

    def _inputs(
        self,
        prepared: Sources,
        search: AggressiveSearch,
        limits: Ints,
        hints: Sequence[Sequence[int]],
        size: Size,
        hint_tokens: int,
    ) -> Inputs:
        source = source_tensors(prepared, "cpu")
        allowed = shortlist_mask(search.shortlist, self._lexicon, *source, self._tokens)
        inputs = inputs_for(prepared, limits, 0, allowed, size, self._device)
        if self._samples(search):
            numbers = random_numbers(prepared.rows, search, size.slots)
            inputs = inputs._replace(numbers=fill_up(numbers, size.sentences, value=0.0).to(self._device))
        drafted = draft_mask(self._pair.drafter(search).words, linked_tokens(self._lexicon), *source, search)
        if drafted is not None:
            inputs = inputs._replace(draft_excluded=fill_up(~drafted, size.sentences, value=False).to(self._device))
        if search.looks_up:
            inputs = inputs._replace(hints=_padded(hints, size.sentences, hint_tokens).to(self._device))
        return inputs

    def _runner(self, key: tuple[AggressiveSearch, Size, int]) -> SearchRunner:
        search, size, hint_tokens = key
        inputs = empty_inputs(size, self._tokens, self._device, shortlists=search.shortlist is not None)
        if self._samples(search):
            numbers = torch.zeros((size.sentences, size.slots, NUMBERS), device=self._device)
            inputs = inputs._replace(numbers=numbers)
        if search.draft_shortlist is not None:
            excluded = torch.zeros((size.sentences, self._tokens), dtype=torch.bool, device=self._device)
            inputs = inputs._replace(draft_excluded=excluded)
        if search.looks_up:
            inputs = inputs._replace(hints=_padded([], size.sentences, hint_tokens).to(self._device))
        return SearchRunner(self._search(search, size), inputs, self._device)

    def _search(self, search: AggressiveSearch, size: Size) -> BufferedSearch:
        model = self._pair.drafter(search)
        verifier = self._pair.verifier(search)
        if verifier is None or search.strategy == "draft":
            return DraftOnly(model, search, size)
        width = block_width(search, self._config)
        drafter = None if search.strategy == "greedy" else self._drafter(search, size, width)
        return DraftAndVerify(CachedDecoder(verifier, size, search.tree_nodes), drafter, search, size, width, self._device)

    def _drafter(self, search: AggressiveSearch, size: Size, width: int) -> Drafter:
        """Return the source of drafts of a search."""
        if search.looks_up:
            return LookupDrafter(search.ngram, width)
        if search.drafts_by == "jacobi":
            return JacobiDrafter(size, width, self._device)
        if search.drafts_by == "draft_model":
            draft_model = self._pair.draft_model(search)
            assert draft_model is not None
            return DraftModel(draft_model, search, size, width)
        return network_drafter(self._pair.drafter(search), search, size, width)

    def _samples(self, search: AggressiveSearch) -> bool:
        """Return whether tokens are drawn: a drafter alone writes its most probable ones."""
        return search.strategy == "sample" and self._pair.verifier(search) is not None


def _padded(rows: Sequence[Sequence[int]], sentences: int, tokens: int) -> Tensor:
    """Return texts as ids [sentences,tokens], padded with -1."""
    found = torch.full((sentences, tokens), -1)
    for line, row in zip(found, rows, strict=False):
        line[: len(row)] = torch.tensor(row, dtype=torch.int64)
    return found
