"""Lexical shortlists (Jean et al. 2015, section 3.3): a sentence chooses its output tokens among a fraction of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.config.options import MAX_LINKS, MAX_SHORTLIST_TOKENS
from fewstep.vocabulary import RESERVED

if TYPE_CHECKING:
    from fewstep_native import I64

    from fewstep.candidates import CandidateTables


class Lexicon(NamedTuple):
    """The tables from which the shortlist of a sentence is made: its first `tokens` frequent tokens, EOS among them, and the first
    `links` translations of each source token."""

    common_tokens: I64
    """[W] distinct target ids, most frequent first."""
    linked_tokens: I64 | None = None
    """[U,L] the L most frequent translations of each source token, best first, padded with -1."""


def native_arguments(lexicon: Lexicon | None) -> dict[str, Any]:
    """Return the arrays of a lexicon as keyword arguments of native functions, empty arrays for None."""
    import numpy as np

    common, linked = (np.zeros(0), None) if lexicon is None else lexicon
    return {
        "common_tokens": np.ascontiguousarray(common, dtype=np.int64),
        "linked_tokens": np.ascontiguousarray(np.zeros((0, 0)) if linked is None else linked, dtype=np.int64),
    }


def build_lexicon(tables: CandidateTables, *, joint: bool) -> Lexicon:
    """Build a lexicon from candidate tables.

    Its common tokens are the reserved ids and the target tokens with most links, ties by the lower id, at most
    `MAX_SHORTLIST_TOKENS`. Its linked tokens are the `MAX_LINKS` most frequent links of each source token; with a `joint`
    vocabulary the source token itself comes first, so that names can be copied. Raises ValueError for tables that were counted
    without a backoff.
    """
    import numpy as np

    linked = np.full((tables.summary.source_size, MAX_LINKS), -1)
    counts = np.zeros(tables.summary.target_size, np.int64)
    for token, row in enumerate(linked):
        entries, _ = tables.lexical_row(token)
        for entry, count in entries:
            counts[entry] += count
        own = [token] if joint and token >= len(RESERVED) else []
        links = [*own, *(entry for entry, _ in entries if entry not in own)][:MAX_LINKS]
        row[: len(links)] = links
    # Reserved ids come first, EOS among them, whatever their links.
    counts[: len(RESERVED)] = counts.max(initial=0) + 1
    return Lexicon(np.argsort(-counts, kind="stable")[:MAX_SHORTLIST_TOKENS], linked)
