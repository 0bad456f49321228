"""The size of a shortlist from its recall: the share of the tokens of unrestricted outputs that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.config.options import MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.shortlist import Lexicon
from fewstep.system.description import read_description
from fewstep.system.format import BundleError
from fewstep.system.networks import sizes_of
from fewstep.system.parts import load_lexicon
from stages.errors import ArtifactError

STEP = 50
"""Sizes are multiples of this number, so that one token more or less in an output seldom changes them."""


class Measured(NamedTuple):
    """A chosen size."""

    tokens: int | None
    """Number of frequent tokens. None: no number suffices, and all tokens are ranked."""
    recall: float
    """Recall with this number; with the largest number if none suffices."""
    written: int
    """Number of tokens that were written."""


def lexicon_of(directory: Path) -> Lexicon:
    """Return the lexicon of a system directory. Raises ArtifactError for a system without candidate tables."""
    try:
        description = read_description(directory)
        lexicon = load_lexicon(directory, description, sizes_of(directory, description))
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error
    if lexicon is None:
        raise ArtifactError(f"{directory}: expected a system with candidate tables, got one without; bundle it with its tables")
    return lexicon


def ranks(lexicon: Lexicon, links: int, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> npt.NDArray[np.int64]:
    """Return the smallest size at which each written token is in its shortlist: 0 if it is among the `links` of a source token.

    `pairs` are the ids of sources and outputs, both without EOS. A token that is in no shortlist has the rank
    `MAX_SHORTLIST_TOKENS` + 1.
    """
    common = {int(token): rank for rank, token in enumerate(lexicon.common_tokens[:MAX_SHORTLIST_TOKENS].tolist(), 1)}
    found: list[int] = []
    for source, output in pairs:
        linked: set[int] = set()
        if lexicon.linked_tokens is not None:
            linked = set(lexicon.linked_tokens[np.asarray(source, np.int64), :links].ravel().tolist())
        found += [0 if token in linked else common.get(token, MAX_SHORTLIST_TOKENS + 1) for token in output]
    return np.sort(np.asarray(found, np.int64))


def smallest(found: npt.NDArray[np.int64], shortlist: Shortlist) -> Measured:
    """Return the smallest size with the recall of `shortlist`, in steps of 50; `found` are sorted ranks."""
    assert shortlist.recall is not None
    if not len(found):
        return Measured(STEP, 1.0, 0)
    needed = int(found[max(int(np.ceil(shortlist.recall * len(found) - 1e-9)), 1) - 1])
    tokens = min(max(-(-needed // STEP), 1) * STEP, MAX_SHORTLIST_TOKENS)
    recall = float((found <= tokens).mean())
    return Measured(tokens if needed <= MAX_SHORTLIST_TOKENS else None, recall, len(found))
