"""Decoding with a loaded or a living network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models.bundle.weights import make_model, read_json, weights_of
from models.common.deduplicate import deduplicate
from models.common.inference import at_work, score_pairs
from models.common.linear import pack
from models.common.ngram import language_model
from models.common.search import SystemParts, check_search
from models.common.shortlist import listed_for, load_lexicon
from models.common.sources import Sources, gather, max_output_lengths
from models.family import Hypothesis, Sizes
from models.stepwise.beam import beam_search
from models.stepwise.config import StepwiseSearch
from models.stepwise.engines.ctranslate2 import CTranslate2Search
from models.stepwise.engines.native import NativeSearch
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.greedy import greedy
from models.stepwise.joint_step import coupling, joint_step
from models.stepwise.loss import log_probability
from models.stepwise.model import StepwiseModel
from models.stepwise.sampling import sample
from models.training.batch import Ints

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class StepwiseDecoder:
    """A network at work, in evaluation mode and float32, or several that write together."""

    def __init__(self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None = None, lexicon: Lexicon | None = None) -> None:
        """`ngram`: a `kernels` scorer over target ids, for searches that give it a weight; `lexicon`: what lists of words are made
        of, for searches that have one."""
        self.model, self.ngram, self.lexicon = model, ngram, lexicon

    @property
    def parts(self) -> SystemParts:
        """The parts of the system beside its network."""
        return SystemParts(ngram=self.ngram is not None, tables=self.lexicon is not None, networks=len(networks(self.model)))

    def prepare(self, sources: Sequence[Sequence[int]], search: StepwiseSearch | None = None) -> Sources:
        """Sources without EOS as one batch. Raises ValueError for one that is longer than the network's `max_positions`."""
        return gather(sources, self._longest)

    def decode(self, prepared: Sources, search: StepwiseSearch) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a search with problems
        (`StepwiseSearch.problems`), and EngineError if the search needs CTranslate2 and it is not installed."""
        check_search(search, self.model.config, self.parts)
        if not prepared.rows:
            return []
        limits = max_output_lengths(search.output_limits, prepared.lengths, self.model.config.max_positions)
        found = self._search(prepared, search, limits)
        return [_deduplicated(ranked, search) for ranked in found] if search.deduplicate else found

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """See `models.family.Decoder.score`. Each slot is charged as the searches charge it, with nothing banned.

        Where either direction may end an output, a text can be written in two ways: the score is that of the way it is trained in.
        """
        return score_pairs(self.model, log_probability, sources, targets, self._longest)

    @property
    def _longest(self) -> int:
        """Longest sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1

    def _search(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        if search.engine == "ctranslate2":
            raise ValueError("engine: expected auto or torch with a network that is not finished yet, got ctranslate2")
        if search.precision != "float32":
            raise ValueError(
                "precision: expected float32 for sampling, for engine torch, and for a network that is not decoded natively on a "
                f"CPU, got {search.precision}"
            )
        with at_work(self.model) as device:
            source, lengths = prepared.tensors(device)
            listed = listed_for(search.shortlist, self.lexicon, source, lengths, networks(self.model)[0].target_embedding.num_embeddings)
            given = (self.model, source, lengths, search, torch.from_numpy(limits).to(device))
            if search.strategy == "greedy":
                return greedy(*given, joint_step(self.model.order, search, self.ngram), listed)
            if search.strategy == "beam":
                return beam_search(*given, coupling(self.model.order, search, self.ngram), listed)
            return sample(*given, listed)


class FinishedDecoder(StepwiseDecoder):
    """Networks whose weights do not change any more, so that other engines may work with copies of them."""

    def __init__(self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None = None, lexicon: Lexicon | None = None) -> None:
        super().__init__(model, ngram, lexicon)
        self._converted: dict[str, CTranslate2Search] = {}

    def _search(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        if search.engine != "ctranslate2":
            return super()._search(prepared, search, limits)
        if search.precision not in self._converted:
            device = next(self.model.parameters()).device.type
            self._converted[search.precision] = CTranslate2Search(self.model, precision=search.precision, device=device)
        return self._converted[search.precision](prepared.rows, search, limits.tolist())


class NativeDecoder(FinishedDecoder):
    """On the CPU: greedy and beam search run in `kernels.Transformer`, all else in torch, or where the search says."""

    def __init__(self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None = None, lexicon: Lexicon | None = None) -> None:
        super().__init__(model, ngram, lexicon)
        pack(model)
        self._native = NativeSearch(model, lexicon)

    def _search(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        if search.strategy == "sample" or search.engine != "auto":
            return super()._search(prepared, search, limits)
        return self._native(prepared.ids, prepared.lengths, search, limits, self.ngram)


def _deduplicated(ranked: list[Hypothesis], search: StepwiseSearch) -> list[Hypothesis]:
    """Hypotheses without repetitions; of those of a beam that become equal, the first. Samples may be equal anyway."""
    clean = []
    for hypothesis in ranked:
        ids = deduplicate(hypothesis.ids)
        clean.append(hypothesis if len(ids) == len(hypothesis.ids) else replace(hypothesis, ids=ids))
    if search.strategy == "sample":
        return clean
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in clean:
        distinct.setdefault(tuple(hypothesis.ids), hypothesis)
    return list(distinct.values())


def decode_batch(model: StepwiseModel, sources: Sequence[Sequence[int]], search: StepwiseSearch) -> list[list[Hypothesis]]:
    """Decode with a living network, as it is now; its training mode is left as it was."""
    decoder = StepwiseDecoder(model)
    return decoder.decode(decoder.prepare(sources), search)


def load(directory: Path, device: str) -> StepwiseDecoder:
    """The decoder of a system directory. Raises `models.bundle.weights.BundleError`."""
    description = read_json(directory / "system.json", "a system")
    members = [make_model(directory, description, device, weights) for weights in weights_of(description)]
    found = [member for member in members if isinstance(member, StepwiseModel)]
    model = found[0] if len(found) == 1 else Ensemble(found)
    decoder = NativeDecoder if device == "cpu" else FinishedDecoder
    return decoder(model, language_model(directory), load_lexicon(directory, description, Sizes(**description["sizes"])))
