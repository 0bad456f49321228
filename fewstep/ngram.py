"""Load n-gram language models from model and ARPA files, and compute probabilities. All logarithms are natural."""

from __future__ import annotations

import hashlib
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from fewstep.bounded_files import expanded
from fewstep.native import fewstep_native
from fewstep.text.format import check_text_file

if TYPE_CHECKING:
    from fewstep_native import F32, I64
    from fewstep_native import NgramModel as NativeModel
    from fewstep_native import NgramScorer as NativeScorer

MAGIC = b"FSNGRAM\n"
"""The first bytes of a model file (`kernels/csrc/inference/ngram/model.h`)."""

KENLM_MAGIC = b"mmap lm "
"""The first bytes of KenLM's own binary files."""

SEPARATORS = re.compile(r"[ \t\r\n\0]")
"""The characters that separate words and lines of a text."""

SPECIAL = ("<unk>", "<s>", "</s>")
"""Words that every model has, with the ids 0, 1 and 2."""


@dataclass(frozen=True)
class Perplexity:
    """The fit of a model to a text; `</s>` counts as a word where it ends a sentence."""

    sentences: int
    words: int
    unknown: int
    """Words that the model does not have; it scores them as `<unk>`."""
    log_prob: float
    """Log-probability of all words."""
    unknown_log_prob: float
    """Log-probability of the unknown words."""

    @property
    def unknown_rate(self) -> float:
        """The fraction of unknown words; `</s>` is always known."""
        return self.unknown / self.words

    @property
    def perplexity(self) -> float:
        """The perplexity exp(-log_prob / words)."""
        return math.exp(-self.log_prob / self.words)

    @property
    def known_perplexity(self) -> float:
        """The perplexity of the known words, infinite if no word is known."""
        known = self.words - self.unknown
        return math.exp((self.unknown_log_prob - self.log_prob) / known) if known else math.inf


class BigramTables(NamedTuple):
    """The unigrams and bigrams of a model of U words, for look-ups on other devices. Logarithms are to base 10, float32."""

    words: I64
    """The model's word for each piece [V]."""
    log_probs: F32
    """The log-probabilities of words without a context [U]."""
    backoffs: F32
    """The back-off of each word as a context [U]."""
    pairs: I64
    """The numbers u U + w of the bigrams of words u and w [N], ascending."""
    pair_log_probs: F32
    """The log-probabilities of w after u [N]. For other pairs it is that of w plus the back-off of u."""


@dataclass(frozen=True)
class NgramScorer:
    """A model over the ids of a vocabulary, as a beam search takes it.

    A state is a number that stands for all that a prefix contributes to its continuations: prefixes of equal states can be merged.
    """

    native: NativeScorer
    """The native object (`kernels/csrc/inference/ngram/model.h`)."""
    unknown: int
    """Pieces that the model does not have; they score as `<unk>`."""

    @property
    def begin(self) -> int:
        """The state at the beginning of a sentence."""
        return self.native.begin()

    @property
    def empty(self) -> int:
        """The state without any context."""
        return 0

    def step(self, state: int, piece: int) -> tuple[float, int]:
        """Return the natural logarithm of p(piece | state) and the next state. The piece `</s>` ends a sentence."""
        return self.native.step(state, piece)

    def bigrams(self) -> BigramTables:
        """Return the tables by which `step` scores a piece after `empty` and one other piece."""
        return BigramTables(np.array(self.native.words, dtype=np.int64), *self.native.bigrams())

    def __len__(self) -> int:
        return len(self.native)


class NgramModel:
    """An n-gram language model with back-off."""

    def __init__(self, native: NativeModel) -> None:
        self.native = native
        """The native object."""

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a model file (a large one is mapped), or an ARPA file, plain or compressed with gzip.

        In an ARPA file a missing back-off is 0, a missing `<unk>` has a log-probability of -100 (to base 10), and an n-gram whose
        context is missing gets one, with the probability that backing off gives it. Raises ValueError for another kind of file, for
        one that is truncated or altered, and for an ARPA file that contradicts itself (the message says where), OSError if it
        cannot be read.
        """
        path = Path(path)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError(f"{path}: expected a regular file, got a pipe or a device; write its content to a file first")
        with path.open("rb") as file:
            begin = file.read(8)
        if begin == MAGIC:
            return cls(fewstep_native.NgramModel.map(str(path)))
        if begin == KENLM_MAGIC:
            raise ValueError(f"{path}: expected a model file or an ARPA file, got KenLM's binary format; load its ARPA file")
        if begin[:2] != b"\x1f\x8b":
            return cls(fewstep_native.NgramModel.read_arpa(str(path), str(path)))
        try:
            text = expanded(path.read_bytes())
        except (EOFError, ValueError, zlib.error) as error:
            raise ValueError(f"{path}: expected a complete gzip file, got: {error}; create it again") from error
        return cls(fewstep_native.NgramModel.read_arpa(text, str(path)))

    @property
    def order(self) -> int:
        return self.native.order

    @property
    def counts(self) -> list[int]:
        """Number of n-grams of each order."""
        return self.native.counts

    @property
    def words(self) -> list[str]:
        """All words by id, `SPECIAL` first; bytes that are not UTF-8 are escaped as surrogates."""
        return [word.decode("utf-8", "surrogateescape") for word in self.native.words()]

    @property
    def vocabulary_digest(self) -> str:
        """SHA-256 of the words, each followed by a newline."""
        return hashlib.sha256(b"".join(word + b"\n" for word in self.native.words())).hexdigest()

    def score(self, words: Sequence[str], bos: bool = True, eos: bool = True) -> float:
        """Return the log-probability of a sentence: after `<s>` with `bos`, followed by `</s>` with `eos`.

        Unknown words score as `<unk>`. Raises ValueError for a word that is empty or contains white space.
        """
        return self._perplexity(text_of([words]), bos, eos, 1).log_prob

    def perplexity(
        self, sentences: Iterable[Sequence[str]] | Path, bos: bool = True, eos: bool = True, threads: int = 1
    ) -> Perplexity:
        """Return the perplexity of sentences, which are lists of words or a text file with one sentence per line.

        Raises ValueError if there is no word to predict, and for a file that is compressed or in UTF-16.
        """
        if isinstance(sentences, os.PathLike):
            check_text_file(Path(sentences))
        source = str(sentences) if isinstance(sentences, os.PathLike) else text_of(sentences)
        perplexity = self._perplexity(source, bos, eos, threads)
        if not perplexity.words:
            raise ValueError("perplexity: expected at least one word, got an empty text")
        return perplexity

    def _perplexity(self, source: bytes | str, bos: bool, eos: bool, threads: int) -> Perplexity:
        return Perplexity(*self.native.score_text(source, bos=bos, eos=eos, threads=threads))

    def for_vocabulary(self, pieces: Sequence[str]) -> NgramScorer:
        """Return the model over ids: piece `i` is the word with its text, and `<s>`, `</s>` and `<unk>` are the model's own.

        Raises ValueError if the model has none of the pieces, that is, if it was estimated with another vocabulary.
        """
        native = self.native.scorer([encoded(piece) for piece in pieces])
        known = [piece for piece, word in zip(pieces, native.words, strict=True) if word]
        if not set(known) - set(SPECIAL):
            raise ValueError(
                f"n-gram model: expected one over the {len(pieces)} pieces of this vocabulary, got a model without any of them; "
                "estimate it with this vocabulary"
            )
        return NgramScorer(native, len(pieces) - len(known) - list(pieces).count(SPECIAL[0]))


def encoded(text: str) -> bytes:
    """Return the bytes of a word, with escaped bytes restored."""
    return text.encode("utf-8", "surrogateescape")


def text_of(sentences: Iterable[Sequence[str]]) -> bytes:
    """Return sentences, which are lists of words, as lines. Raises TypeError for strings, ValueError for words with white space."""
    if isinstance(sentences, str | bytes):
        raise TypeError("sentences: expected lists of words or a Path, got a string")
    return b"".join(encoded(_line(words, number)) for number, words in enumerate(sentences))


def _line(words: Sequence[str], number: int) -> str:
    if isinstance(words, str | bytes):
        raise TypeError(f"sentence {number}: expected a list of words, got the string {words!r}")
    line = " ".join(words)
    if len(SEPARATORS.findall(line)) != max(0, len(words) - 1) or "" in words:
        raise ValueError(f"sentence {number}: expected non-empty words without white space, got {list(words)!r}")
    return line + "\n"
