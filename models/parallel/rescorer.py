"""Another system that chooses among outputs (noisy parallel decoding; Gu et al. 2018, section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fewstep.decoding import batches
from fewstep.families.parallel.search import Rescore
from fewstep.system.description import read_description
from fewstep.system.format import RESCORER, BundleError
from fewstep.vocabulary import vocabulary_digest
from models.family import ScoringDecoder, family_named


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
