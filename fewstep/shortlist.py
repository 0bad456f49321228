"""Lexical shortlists (Jean et al. 2015, section 3.3): a sentence chooses its output tokens among a fraction of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fewstep_native import I64

__all__ = ["Lexicon", "native_arguments"]


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
