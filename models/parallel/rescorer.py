"""Another system that chooses among outputs (noisy parallel decoding; Gu et al. 2018, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def rescoring(rescorer: ScoringDecoder, rows: Sequence[Sequence[int]]) -> Rescore:
    """Return the function of log P(text) for texts of the sources `rows`."""

    def rescore(sentences: list[int], texts: list[list[int]]) -> list[float]:
        return rescorer.score([rows[sentence] for sentence in sentences], texts)

    return rescore
