"""Decoding with a loaded or a living drafter, and the verifier that travels with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from fewstep import Lexicon
from models.aggressive.config import AggressiveSearch
from models.aggressive.drafters import Drafter, LookupDrafter, network_drafter
from models.aggressive.engines.native import NativeLoop
from models.aggressive.head import DraftHead
from models.aggressive.loop import State, draft_and_verify, statistics_of
from models.aggressive.model import AggressiveModel
from models.aggressive.rules import block_width
from models.aggressive.system import DRAFTER, VERIFIER, VERIFIER_FAMILY
from models.aggressive.verifier import Autoregressive, Verifying, as_verifier, codes_of
from models.bundle.vocabulary_digest import vocabulary_digest
from models.bundle.weights import MEMBERS, BundleError, make_model, read_json
from models.common.inference import inference_mode
from models.common.layers.backbone import Backbone
from models.common.layers.linear import pack
from models.common.problems import Problem
from models.common.search import SystemParts, check_search
from models.common.shortlist import linked_tokens, load_lexicon, shortlist_mask
from models.common.sources import Sources, gather, max_output_lengths
from models.family import EOS, Decoder, Hypothesis, family_named
from models.training.batch import Ints

log = logging.getLogger("fewstep")

Network = AggressiveModel | DraftHead


@dataclass
class Record:
    """What decoding has taken so far, summed over sentences."""

    sentences: int = 0
    tokens: int = 0
    """Written, without EOS."""
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    fell_back: int = 0
    """Sentences whose drafting did not pay."""
    tried: list[int] = field(default_factory=list)
    """By place in a block: how often all drafts before it were kept."""
    kept: list[int] = field(default_factory=list)
    """And how often then the draft there was kept too."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By part; native decoding only."""

    def add(self, best: Hypothesis) -> None:
        """Count what was found for a sentence."""
        told = best.statistics
        self.sentences += 1
        self.tokens += len(best.ids)
        self.steps += best.steps
        self.drafted += told["drafted"]
        self.accepted += told["accepted"]
        self.fell_back += told["fell_back"]
        tried, kept = told["tried"], told["kept"]
        if (more := len(tried) - len(self.tried)) > 0:
            self.tried += [0] * more
            self.kept += [0] * more
        for place, times in enumerate(tried):
            if not times:  # nor behind it
                break
            self.tried[place] += times
            self.kept[place] += kept[place]


class DraftDecoder:
    """A living drafter without a verifier: it drafts block after block, whatever the search, until one holds EOS."""

    def __init__(self, model: Network) -> None:
        self.model = model
        self.record = Record()

    def problems(self, search: AggressiveSearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, self.parts)

    @property
    def parts(self) -> SystemParts:
        """The parts of the system beside its network; a drafter that is being trained needs none."""
        return SystemParts()

    def prepare(self, sources: Sequence[Sequence[int]], search: AggressiveSearch | None = None) -> Sources:
        """Sources without EOS as one batch. Raises ValueError for one that is longer than the networks' `max_positions`."""
        return gather(sources, self._positions - 1)

    def decode(self, prepared: Sources, search: AggressiveSearch) -> list[list[Hypothesis]]:
        """For each source its hypothesis."""
        if not prepared.rows:
            return []
        return self._search(prepared, search, max_output_lengths(search.output_limits, prepared.lengths, self._positions))

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Raises ValueError: what a drafter writes depends on where its blocks begin, so a text has no probability of its own."""
        raise ValueError("score: expected a system that gives texts a probability, got a drafter without a verifier")

    @property
    def _positions(self) -> int:
        return self.model.config.max_positions

    def _search(self, prepared: Sources, search: AggressiveSearch, limits: Ints) -> list[list[Hypothesis]]:
        with inference_mode(self.model) as device:
            return self._finish(draft_alone(self.model, *prepared.tensors(device), search, torch.from_numpy(limits).to(device)))

    def _finish(self, state: State) -> list[list[Hypothesis]]:
        found = state.hypotheses()
        for ranked in found:
            self.record.add(ranked[0])
        return found


def draft_alone(model: Network, source: Tensor, source_lengths: Tensor, search: AggressiveSearch, limits: Tensor) -> State:
    """Block after block, each as drafted, until one holds EOS; a block of a drafter that writes token after token is one token."""
    width = 1 if isinstance(model, DraftHead) else block_width(search, model.config)
    state = State(limits, width)
    drafter = network_drafter(model, source, source_lengths, search, int(limits.max()))
    rows = torch.arange(len(limits), device=limits.device)
    while len(rows):
        lengths = state.lengths[rows]
        widths = torch.minimum(state.widths[rows], limits[rows] - lengths)
        scores = drafter.log_probs(rows, state.tokens[rows], lengths, widths)
        best, written = scores.topk(2).values, scores.argmax(2)
        offsets = torch.arange(written.size(1), device=rows.device)
        ends = (written == EOS).long()
        inside = (offsets < widths[:, None]) & (ends.cumsum(1) - ends == 0)
        tokens = inside & (written != EOS)
        state.tokens[rows[:, None], torch.where(tokens, lengths[:, None] + offsets, state.tokens.size(1) - 1)] = written
        state.scores[rows] += best[..., 0].double().masked_fill(~inside, 0.0).sum(1)
        gaps = (best[..., 0] - best[..., 1]).masked_fill(~inside | ~best[..., 1].isfinite(), torch.inf).amin(1)
        state.margins[rows] = torch.minimum(state.margins[rows], gaps)
        state.lengths[rows] = lengths + tokens.sum(1)
        state.ended[rows] = (ends.bool() & inside).any(1)
        state.steps[rows] += 1
        state.drafted[rows] += widths
        rows = rows[state.going()[rows]]
    return state


class AggressiveDecoder(DraftDecoder):
    """A drafter and its verifier at work, in evaluation mode and float32, through torch."""

    def __init__(
        self,
        model: Network,
        verifier: nn.Module,
        hinter: tuple[Decoder, object] | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """`hinter`: the decoder and the search of another system that drafts; `lexicon`: what lists of words are made of, for
        searches with a `shortlist` or a `draft_shortlist`. Raises ValueError for networks that do not go together."""
        super().__init__(model)
        self.verifier, self.hinter = as_verifier(verifier), hinter
        self.lexicon, self.linked = lexicon, linked_tokens(lexicon)
        check_pair(model, self.verifier)
        self._warned = False

    def decode(self, prepared: Sources, search: AggressiveSearch) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source. Raises ValueError for a search with problems (`AggressiveSearch.problems`)."""
        check_search(search, self.model.config, self.parts)
        found = super().decode(prepared, search)
        self._warn(search)
        return found

    @property
    def parts(self) -> SystemParts:
        """The parts of the system beside its networks."""
        target_size = self.model.sizes.target
        return SystemParts(tables=self.linked is not None, drafter=self.hinter is not None, target_size=target_size)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """The verifier's, whose texts these are; see `models.family.Decoder.score`."""
        return family_named(VERIFIER_FAMILY).functions.decoder(self.verifier).score(sources, targets)

    def _search(self, prepared: Sources, search: AggressiveSearch, limits: Ints) -> list[list[Hypothesis]]:
        if search.verifier_precision != "float32":
            raise ValueError(
                "verifier_precision: expected float32 for sampling, and for a system that is not decoded natively on a CPU, got "
                f"{search.verifier_precision}"
            )
        if search.strategy == "draft":
            return super()._search(prepared, search, limits)
        with inference_mode(self.model) as device, inference_mode(self.verifier):
            source, longest = prepared.tensors(device), torch.from_numpy(limits).to(device)
            listed = shortlist_mask(search.shortlist, self.lexicon, *source, self.model.sizes.target)
            verifying = Verifying(self.verifier, *source, int(limits.max()), listed)
            drafter: Drafter | None = None
            if search.looks_up:
                drafter = LookupDrafter(self._hints(prepared, search), search.ngram)
            elif search.strategy != "greedy":
                drafter = network_drafter(self.model, *source, search, int(limits.max()), self.linked)
            width = block_width(search, self.model.config)
            return self._finish(draft_and_verify(verifying, drafter, longest, search, width, prepared.rows))

    def _hints(self, prepared: Sources, search: AggressiveSearch) -> list[list[int]]:
        """What n-grams are looked up in besides the output: the source, where both sides have one vocabulary, or what another
        wrote."""
        if search.drafter == "system" and self.hinter is not None:
            decoder, other = self.hinter
            found = decoder.decode(decoder.prepare(prepared.rows, other), other)
            return [[*ranked[0].ids, EOS] for ranked in found]
        return [[*row, EOS] if self.model.sizes.joint else [] for row in prepared.rows]

    def _warn(self, search: AggressiveSearch) -> None:
        """Say once that drafting does not pay."""
        record = self.record
        if not self._warned and search.strategy != "greedy" and record.sentences >= 10 and 2 * record.fell_back > record.sentences:
            self._warned = True
            log.warning(
                "drafting did not pay for %d of %d sentences, which were written greedily: the drafter is untrained, or trained on "
                "other text than the verifier",
                record.fell_back,
                record.sentences,
            )


class NativeDecoder(AggressiveDecoder):
    """Finished networks on the CPU: all but sampling is native."""

    def __init__(
        self,
        model: Network,
        verifier: nn.Module,
        hinter: tuple[Decoder, object] | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """Networks whose weights do not change any more."""
        super().__init__(model, verifier, hinter, lexicon)
        pack(model)
        pack(verifier)
        self._native = NativeLoop(model, self.verifier, lexicon)

    def _search(self, prepared: Sources, search: AggressiveSearch, limits: Ints) -> list[list[Hypothesis]]:
        if search.strategy == "sample":
            return super()._search(prepared, search, limits)
        hints = self._hints(prepared, search) if search.looks_up else []
        drafts = self._native(prepared.ids, prepared.lengths, search, limits, hints)
        found = []
        for one in drafts.outcomes:
            hypothesis = Hypothesis(one.tokens, one.score, one.steps, statistics_of(*one[3:]))
            self.record.add(hypothesis)
            found.append([hypothesis])
        spent = self.record.seconds
        for part, seconds in zip(drafts.seconds._fields, drafts.seconds, strict=True):
            spent[part] = spent.get(part, 0.0) + seconds
        return found


def check_pair(model: Network, verifier: Backbone) -> None:
    """Raises ValueError for networks over vocabularies of other sizes or with other numbers of positions, and for a drafter that
    shares what it was not trained with."""
    if model.sizes != verifier.sizes:
        raise ValueError(f"verifier: expected vocabularies {tuple(model.sizes)} as the drafter has, got {tuple(verifier.sizes)}")
    mine, theirs = model.config.max_positions, cast(Autoregressive, verifier).config.max_positions
    if mine != theirs:
        raise ValueError(f"verifier: expected max_positions {mine} as the drafter has, got {theirs}; train both with one")
    lent = model.lent()
    own, others = model.state_dict(), verifier.state_dict()
    if other := [name for name in lent if name not in others or not torch.equal(own[name], others[name])]:
        raise ValueError(
            f"verifier: expected the one that the drafter was trained on, but {len(other)} of {len(lent)} of the tensors that they "
            f"share differ, first {other[0]}; train the drafter with `initial_weights: verifier`, from this verifier"
        )
    if isinstance(model, DraftHead) and not torch.equal(model.slot_codes(mine), codes_of(verifier)[:mine]):
        raise ValueError(
            "verifier: expected position codes alone in its slots for an autoregressive drafter, got others (a start vector?)"
        )


def load(directory: Path, device: str) -> AggressiveDecoder:
    """The decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    description = read_json(directory / "system.json", "a system")
    model = make_model(directory, description, device)
    assert isinstance(model, AggressiveModel | DraftHead)
    verifier = directory / VERIFIER
    described = read_json(verifier / "system.json", "a system (the verifier)")
    if any(part.startswith(f"{MEMBERS}/") for part in described.get("parts", ())):
        raise BundleError(f"{verifier}: expected one network that verifies, got an ensemble; name one of its members, or a student")
    network = make_model(verifier, described, device)
    _same_vocabulary(directory, verifier, "the verifier")
    hinter = None
    if (directory / DRAFTER).exists():
        from models.bundle.directory import load_system

        _same_vocabulary(directory, directory / DRAFTER, "the system that drafts")
        other = load_system(directory / DRAFTER, device, verify=False)  # compared already, as parts of this system
        hinter = (other.decoder, other.search)
    try:
        decoder = NativeDecoder if device == "cpu" else AggressiveDecoder
        return decoder(model, network, hinter, load_lexicon(directory, description, model.sizes))
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error


def _same_vocabulary(directory: Path, other: Path, what: str) -> None:
    try:
        same = vocabulary_digest(directory) == vocabulary_digest(other)
    except OSError as error:
        raise BundleError(f"{directory}: {error}; the directory is incomplete, make it anew") from error
    if not same:
        raise BundleError(f"{directory}: expected one vocabulary for the drafter and {what}, got two; train both on one vocabulary")
