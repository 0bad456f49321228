"""Network, loss and decoder of the toy family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.config.problems import Problem
from fewstep.config.search import SystemParts, check_search
from fewstep.sources import Sources, gather, max_output_lengths
from fewstep.translation import Hypothesis
from fewstep.vocabulary import PAD, RESERVED
from models.bundle.weights import make_model
from models.common.inference import MEMORY_ERRORS, inference_mode, source_tensors
from models.family import Family, Loss
from models.training.batch import Batch
from tests.models.toy_family.system import GlossaryConfig, GlossarySearch


class Glossary(nn.Module):
    """Scores of target tokens by source token."""

    def __init__(self, config: GlossaryConfig, sizes: Sizes) -> None:
        super().__init__()
        self.config, self.sizes = config, sizes
        self.table = nn.Embedding(sizes.source, sizes.target)

    def forward(self, source: Tensor) -> Tensor:
        """Source ids [B,S] to log-probabilities [B,S,V]."""
        scores: Tensor = self.config.scale * self.table(source)
        return scores.log_softmax(2)


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Negative log-probability of the target token at the place of each source token, as far as both sides reach."""
    size = min(batch.source.size(1), batch.target.size(1))
    source, target = batch.source[:, :size], batch.target[:, :size]
    real = (source != PAD) & (target != PAD)
    found = -model(source).gather(2, target[:, :, None])[..., 0][real]
    return Loss(found.sum(), torch.tensor(len(found)), {"nll": found.sum().detach()})


class GlossaryDecoder:
    """The decoder of a glossary."""

    memory_errors = MEMORY_ERRORS

    def __init__(self, model: Glossary) -> None:
        self.model = model

    def problems(self, search: GlossarySearch) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return search.problems(self.model.config, SystemParts())

    def prepare(
        self, sources: Sequence[Sequence[int]], search: GlossarySearch | None = None, threads: int | None = None
    ) -> Sources:
        """Sources without EOS as one batch."""
        return gather(sources, self.model.config.max_positions - 1)

    def decode(self, prepared: Sources, search: GlossarySearch, threads: int | None = None) -> list[list[Hypothesis]]:
        """Return the hypothesis of each source."""
        check_search(search, self.model.config, SystemParts())
        longest = max_output_lengths(search.output_limits, prepared.lengths, self.model.config.max_positions)
        with inference_mode(self.model) as device:
            source, lengths = source_tensors(prepared, device)
            scores = self.model(source)
            scores[..., : len(RESERVED)] = -torch.inf
            best = scores.topk(2)
        rank = 0 if search.strategy == "first" else 1
        rows = zip(best.indices[..., rank].tolist(), lengths.tolist(), longest.tolist(), strict=True)
        return [[Hypothesis(ids[: min(length - 1, limit)], 0.0, 1)] for ids, length, limit in rows]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """A glossary does not model lengths."""
        raise ValueError("score: expected a system that gives texts a probability, got a glossary")


def load(directory: Path, description: Mapping[str, Any], search: GlossarySearch, device: str) -> GlossaryDecoder:
    """Return the decoder of a system directory."""
    model = make_model(directory, description, device)
    assert isinstance(model, Glossary)
    return GlossaryDecoder(model)


def fits(config: GlossaryConfig, source_length: int, target_length: int) -> bool:
    """Return whether both sides are short enough."""
    return max(source_length, target_length) < config.max_positions


FAMILY = Family(Glossary, loss, fits, load, GlossaryDecoder)
