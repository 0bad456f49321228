"""Decoding in torch, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.families.parallel.search import (
    FilledSlots,
    RankedSlots,
    Rescore,
    choose_lengths,
    passes,
    search_alignments,
    tokens_needed,
)
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from fewstep.vocabulary import BLANK
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.parallel.device.filling import DeviceFilling
from models.parallel.device.ranking import DeviceRanking
from models.parallel.filling import fill
from models.parallel.lengths import length_candidates, upsampled
from models.parallel.model import ParallelModel
from models.parallel.ranking import Ranking

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class TorchEngine:
    """A network in evaluation mode."""

    def __init__(self, model: ParallelModel, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models, self._ngram, self._lexicon = Precisions(model, frozen=frozen), ngram, lexicon
        self._ranking_programs, self._filling_programs = DeviceRanking(self._models, lexicon), DeviceFilling(self._models, lexicon)

    def problems(self, search: ParallelSearch, network: ParallelConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        return list(self._models.problems(search.precision))

    def decode(
        self, prepared: Sources, search: ParallelSearch, threads: int | None, rescore: Rescore | None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        if self._models[search.precision].config.uses_ctc:
            return search_alignments(self.ranked(prepared, search), search, self._ngram, threads or torch.get_num_threads())
        filled = self.filled(prepared, search)
        return choose_lengths(filled, search, len(prepared.rows), passes(search), rescore)

    def filled(self, prepared: Sources, search: ParallelSearch) -> FilledSlots:
        """Return the filled slots of all lengths that a search asks for."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            if device.type != "cpu":
                return self._filling_programs.filled(prepared, search)
            source, source_lengths = source_tensors(prepared, device)
            read, ranking = model.read(source, source_lengths), self._ranking(model, source, source_lengths, search)
            assert read.lengths is not None
            lengths, distinct = length_candidates(
                model.config, read.lengths, source_lengths, search.length_candidates, search.length_choice
            )
            sentences = distinct.nonzero()[:, 0]
            found = fill(model, read.select(sentences), lengths[distinct], sentences, ranking, passes(search))
            ordered = read.lengths.sort(1, descending=True).values
            gaps = ordered[:, 0] - ordered[:, 1]
            margins = torch.minimum(found.margins, gaps[sentences])
            arrays = (sentences, lengths[distinct], found.ids, found.log_probs, margins)
            return FilledSlots(*(part.cpu().numpy() for part in arrays))

    def ranked(self, prepared: Sources, search: ParallelSearch) -> RankedSlots:
        """Return the ranked slots of a CTC network, with as many tokens as a search reads."""
        model = self._models[search.precision]
        with inference_mode(model) as device:
            if device.type != "cpu":
                return self._ranking_programs.ranked(prepared, search)
            source, source_lengths = source_tensors(prepared, device)
            read, ranking = model.read(source, source_lengths), self._ranking(model, source, source_lengths, search)
            lengths = upsampled(model.config, source_lengths)
            size = int(lengths.max())
            states = model.states(model.inputs(read, lengths, size), lengths, read)
            real = torch.arange(size, device=device) < lengths[:, None]
            scores, ids, blanks = ranking.top(states[real], real.nonzero()[:, 0], tokens_needed(search), without=BLANK)
            arrays = [part.new_zeros((*real.shape, *part.shape[1:])) for part in (scores, ids, blanks)]
            for whole, part in zip(arrays, (scores, ids, blanks), strict=True):
                whole[real] = part
            return RankedSlots(*(part.cpu().numpy() for part in (*arrays, lengths)))

    def _ranking(self, model: ParallelModel, source: torch.Tensor, source_lengths: torch.Tensor, search: ParallelSearch) -> Ranking:
        size = model.target_embedding.num_embeddings
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, source_lengths, size)
        return Ranking(model, allowed, allow_unknown=search.allow_unknown)
