"""Which words of a target are likely, whatever the source, and which where some word stands in the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fewstep_native import I64

__all__ = ["Lexicon"]


class Lexicon(NamedTuple):
    """What a list of words is made of that a sentence is written in (a lexical shortlist): the first of the common words, EOS among
    them, and the first of those that each word of the source is linked to."""

    common_words: I64
    """[W] ids, each once, in the order in which they are listed"""
    linked_words: I64 | None = None
    """[U,L] by word of a source, L words that it is translated as, best first, then -1"""


def native_arguments(lexicon: Lexicon | None) -> dict[str, Any]:
    """The arrays of a lexicon, empty ones where there is none."""
    import numpy as np

    common, linked = (np.zeros(0), None) if lexicon is None else lexicon
    return {
        "common_tokens": np.ascontiguousarray(common, dtype=np.int64),
        "linked_tokens": np.ascontiguousarray(np.zeros((0, 0)) if linked is None else linked, dtype=np.int64),
    }
