"""Options that the searches of several families share, each as a type of its own.

A search holds these types as fields, so that an option has the same keys, bounds and meaning in every family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from fewstep.config.bounds import MAX_TOKENS, Ge, Gt, Le
from fewstep.config.problems import Problem

Precision = Literal["float32", "bfloat16", "float16", "int8"]
HALF_PRECISIONS = ("float16", "bfloat16")
"""The arithmetic of products with weights, in training and in decoding alike."""

MAX_HYPOTHESES = 1024
"""Most hypotheses of a sentence."""
MAX_CELLS = 1 << 24
"""Most cells of what a search holds for a sentence, such as its prefixes: about a gigabyte."""
MAX_EXPONENT = 10
"""Largest exponent of a length."""

MAX_SHORTLIST_TOKENS = 4096
"""Maximum number of tokens that a shortlist holds for every source."""
MAX_LINKS = 32
"""Maximum number of tokens that one source token adds to a shortlist."""


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """A lexical shortlist (Jean et al. 2015, section 3.3).

    Tokens are chosen, and their probabilities normalised, among frequent tokens and those that the source tokens are linked to,
    which is faster than ranking the whole vocabulary. Both are counted by word alignment in the system's training text.
    """

    tokens: Annotated[int, Ge(8), Le(MAX_SHORTLIST_TOKENS)] | None = None
    """Number of frequent tokens that every shortlist holds. Empty: it follows from `recall`."""
    recall: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of the tokens of the search's outputs for the validation text, decoded with the whole vocabulary, that its shortlists
    must hold. A run chooses the smallest sufficient number of frequent tokens, in steps of 50. Until it is chosen, or if no number
    suffices, all tokens are ranked. Empty: `tokens` states the number."""
    links: Annotated[int, Ge(0), Le(MAX_LINKS)] = 16
    """Number of tokens that each source token adds: those that it is linked to most often. With a joint vocabulary the token
    itself comes first."""

    def problems(self, tables: bool | None) -> Iterator[Problem]:
        """Yield the options that are not valid with one another, or for a system with or without candidate `tables` (None: not
        known)."""
        if tables is False:
            yield Problem((), "none for a system without candidate tables", self)
        elif self.tokens is None and self.recall is None:
            yield Problem((), "tokens or recall", "neither")
        elif self.tokens is not None and self.recall is not None:
            yield Problem(("recall",), "empty where tokens states the size", self.recall)


def shortlist_sizes(shortlist: Shortlist | None) -> dict[str, int]:
    """Return the options of `fewstep` rules for a shortlist. They are empty without a shortlist and until the number of its
    frequent tokens is chosen."""
    if shortlist is None or shortlist.tokens is None:
        return {}
    return {"shortlist_tokens": shortlist.tokens, "shortlist_links": shortlist.links}


def engine_precision(engine: str, precision: Precision, key: str = "precision") -> Iterator[Problem]:
    """Yield a problem for a precision that the engine `auto`, which is native code on a CPU, or `torch` does not have."""
    if precision == "float16" and engine == "auto":
        yield Problem((key,), "float32, bfloat16 or int8 unless engine is torch", precision)
    elif precision == "int8" and engine == "torch":
        yield Problem((key,), "float32, float16 or bfloat16 with engine torch", precision)


@dataclass(frozen=True, kw_only=True)
class OutputLimits:
    """Bounds on the length of an output, and on the tokens in it."""

    max_extra_tokens: Annotated[int, Ge(0), Le(MAX_TOKENS)] = 50
    """Longest output in tokens, EOS included, relative to the source: the source tokens with EOS plus this number."""
    min_tokens: Annotated[int, Ge(1), Le(MAX_TOKENS)] = 1
    """Shortest output in tokens, without EOS."""
    max_tokens: Annotated[int, Ge(1), Le(MAX_TOKENS)] | None = None
    """Longest output in tokens, EOS included, for every source. Empty: only `max_extra_tokens` limits it."""
    allow_unknown: bool = False
    """Whether an output may contain the unknown token."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options of random sampling. Only the strategy `sample` reads them."""

    temperature: Annotated[float, Ge(0.001), Le(1000)] = 1.0
    """Divisor of the scores before they become probabilities."""
    seed: Annotated[int, Ge(0)] = 1
    """Seed. The samples of a sentence depend on the seed and on the sentence alone."""


@dataclass(frozen=True, kw_only=True)
class NucleusSampling(Sampling):
    """Options of nucleus sampling (Holtzman et al. 2020). Only the strategy `sample` reads them."""

    top_p: Annotated[float, Gt(0), Le(1)] = 0.9
    """Total probability of the most probable tokens that are sampled from; 1: all tokens."""
