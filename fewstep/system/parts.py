"""Loading of a system's candidate tables, shortlists and n-gram model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewstep.config.network import Sizes
from fewstep.ngram import NgramModel, NgramScorer
from fewstep.pieces import pieces_of
from fewstep.shortlist import Lexicon, build_lexicon
from fewstep.system.format import NGRAM, TABLES, BundleError
from fewstep.vocabulary import vocabulary_digest

if TYPE_CHECKING:
    from fewstep.candidates import CandidateTables


def load_tables(directory: Path, source_size: int, target_size: int, links: str) -> CandidateTables:
    """Load the candidate tables of a system directory; `links` is the digest of counts in the system's description.

    Raises BundleError for tables that are missing, damaged, or of another vocabulary or alignment.
    """
    from fewstep.candidates import CandidateTables

    path = directory / TABLES
    try:
        tables = CandidateTables.load(path, vocabulary=vocabulary_digest(directory))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: {error}") from error
    check_tables(tables, source_size, target_size, links)
    return tables


def check_tables(tables: CandidateTables, source_size: int, target_size: int, links: str = "") -> None:
    """Raise BundleError for tables of vocabularies of other sizes, or counted from links with another digest than `links`."""
    found = tables.summary
    if (found.source_size, found.target_size) != (source_size, target_size):
        raise BundleError(
            f"{tables.path}: expected candidate tables of {source_size} source and {target_size} target pieces as the network has, "
            f"got {found.source_size} and {found.target_size}; use the tables of this vocabulary"
        )
    if links and found.links.hex() != links:
        raise BundleError(
            f"{tables.path}: expected candidate tables of the links {links[:16]}, got those of {found.links.hex()[:16]}; use the "
            "tables that were counted from the system's alignment"
        )


def load_ngram(directory: Path, description: Mapping[str, Any], sizes: Sizes) -> NgramScorer | None:
    """Return the n-gram scorer of a system over target ids, or None if it has no model.

    Raises BundleError for a model that is damaged or of another vocabulary.
    """
    if NGRAM not in description["parts"]:
        return None
    pieces = pieces_of(directory, description, "target", sizes.target)
    try:
        return NgramModel.load(directory / NGRAM).for_vocabulary([pieces.id_to_piece(token) for token in range(len(pieces))])
    except (OSError, RuntimeError, ValueError) as error:
        raise BundleError(f"{directory / NGRAM}: {error}") from error


def load_lexicon(directory: Path, description: Mapping[str, Any], sizes: Sizes) -> Lexicon | None:
    """Return the lexicon of a system, or None if it has no candidate tables.

    Raises BundleError for tables that are damaged, of another vocabulary or alignment, or were counted without a backoff.
    """
    if TABLES not in description["parts"]:
        return None
    tables = load_tables(directory, sizes.source, sizes.target, str(description.get("links", "")))
    try:
        return build_lexicon(tables, joint=sizes.joint)
    except ValueError as error:
        raise BundleError(str(error)) from error
