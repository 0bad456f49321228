"""The candidate tables of a system."""

from __future__ import annotations

from pathlib import Path

from fewstep import CandidateTables
from models.bundle.vocabulary_digest import vocabulary_digest
from models.bundle.weights import TABLES, BundleError


def load_tables(directory: Path, source_size: int, target_size: int, links: str) -> CandidateTables:
    """The candidate tables of a system directory. Raises BundleError for tables that are missing or damaged, of another
    vocabulary, or (`links`: the digest of counts that the system names) of another alignment."""
    path = directory / TABLES
    try:
        tables = CandidateTables.load(path, vocabulary=vocabulary_digest(directory))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: {error}") from error
    check_tables(tables, source_size, target_size, links)
    return tables


def check_tables(tables: CandidateTables, source_size: int, target_size: int, links: str = "") -> None:
    """Raises BundleError for tables of vocabularies of other sizes, or of other links than those whose digest is `links`."""
    found = tables.summary
    if (found.source_size, found.target_size) != (source_size, target_size):
        raise BundleError(
            f"{tables.path}: expected candidate tables of {source_size} source and {target_size} target pieces as the network has, "
            f"got {found.source_size} and {found.target_size}; they are of another vocabulary"
        )
    if links and found.links.hex() != links:
        raise BundleError(
            f"{tables.path}: expected candidate tables of the links {links[:16]}, got those of {found.links.hex()[:16]}; they were "
            "counted from another alignment than those of the system"
        )
