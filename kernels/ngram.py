"""n-gram language models: estimated from text, read from ARPA files, asked for probabilities. Logarithms are natural."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.durable import write_whole

if TYPE_CHECKING:
    from fewstep_native import NgramModel as NativeModel
    from fewstep_native import NgramScorer as NativeScorer

MAGIC = b"FSNGRAM\n"
"""How a model file begins (`kernels/csrc/inference/ngram/model.h`)."""

KENLM_MAGIC = b"mmap lm "
"""How KenLM's own binary files begin."""

SEPARATORS = re.compile(r"[ \t\r\n\0]")
"""What parts words and lines of a text."""

SPECIAL = ("<unk>", "<s>", "</s>")
"""Words that every model has, with the ids 0, 1 and 2."""


@dataclass(frozen=True)
class Estimation:
    """What an estimate is made of."""

    discounts: tuple[tuple[float, float, float], ...]
    """By order: what is taken off adjusted counts of 1, 2 and 3 or more."""
    fallback: tuple[bool, ...]
    """By order: the discounts are `discount_fallback`."""
    distinct: tuple[int, ...]
    """By order: n-grams of the text, the pruned ones among them."""
    sentences: int
    tokens: int
    """Words of the text, without `<s>` and `</s>`."""
    skipped: int
    """Special words in the text that were taken for white space."""


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text; `</s>` is a word where sentences end in it."""

    sentences: int
    words: int
    unknown: int
    """Words that the model does not have; it scores them as `<unk>`."""
    log_prob: float
    """Natural logarithm of the probability of all words."""
    unknown_log_prob: float
    """The part of the unknown ones."""

    @property
    def unknown_rate(self) -> float:
        """Fraction of the words that are unknown; `</s>` never is."""
        return self.unknown / self.words

    @property
    def perplexity(self) -> float:
        """exp(-log_prob / words)."""
        return math.exp(-self.log_prob / self.words)

    @property
    def known_perplexity(self) -> float:
        """The same of the known words, infinite where there are none."""
        known = self.words - self.unknown
        return math.exp((self.unknown_log_prob - self.log_prob) / known) if known else math.inf


@dataclass(frozen=True)
class NgramScorer:
    """A model over the ids of a vocabulary: what a beam search takes.

    A state is what a prefix leaves to its continuations, a number of the model: prefixes of equal states can be merged.
    """

    native: NativeScorer
    """What crosses to C++ (`kernels/csrc/inference/ngram/model.h`)."""
    unknown: int
    """Pieces that the model does not have; they score as `<unk>`."""

    @property
    def begin(self) -> int:
        """The state at the begin of a sentence."""
        return self.native.begin()

    @property
    def empty(self) -> int:
        """The state that knows nothing of what came before."""
        return 0

    def step(self, state: int, piece: int) -> tuple[float, int]:
        """Natural logarithm of p(piece | state), and the state after it. The piece `</s>` ends a sentence."""
        return self.native.step(state, piece)

    def __len__(self) -> int:
        return len(self.native)


class NgramModel:
    """An n-gram language model with back-off. Make one by `estimate` or `load`."""

    def __init__(self, native: NativeModel, estimation: Estimation | None = None) -> None:
        self.native = native
        """What crosses to C++."""
        self.estimation = estimation
        """What it was estimated from; None when it was loaded."""

    @classmethod
    def estimate(
        cls,
        sentences: Iterable[Sequence[str]] | Path,
        order: int = 5,
        *,
        prune: Sequence[int] = (0,),
        discount_fallback: tuple[float, float, float] | None = None,
        interpolate_unigrams: bool = True,
        skip_special: bool = False,
        threads: int = 1,
        memory_gib: float = 8.0,
    ) -> NgramModel:
        """Estimate interpolated modified Kneser-Ney of order 1 to 6, the model that KenLM's lmplz estimates.

        `sentences` are lists of words, or a text file with one sentence a line and words between spaces, tabs, carriage returns
        and zero bytes. `prune[n - 1]` leaves n-grams out that occur no more often; the last value holds for all higher orders.
        `discount_fallback` are the discounts, mostly (0.5, 1, 1.5), of orders whose counts give none, which is an error otherwise.
        `interpolate_unigrams=False` gives `<unk>` the whole weight of its order. `skip_special` takes `<s>`, `</s>` and `<unk>`
        in the text for white space. The model does not depend on `threads`.

        It is made in memory: at most 12 bytes for each word and 64 for each distinct n-gram, beside the text. Raises MemoryError
        when that is more than `memory_gib`, ValueError for options or a text that allow no estimate.
        """
        from kernels.native import fewstep_native

        source = str(sentences) if isinstance(sentences, os.PathLike) else _text(sentences)
        thresholds = [*prune][: max(order, 1)]
        if not thresholds or any(value < 0 for value in thresholds):
            raise ValueError(f"prune: expected counts of at least 0, got {list(prune)}")
        thresholds += [thresholds[-1]] * (order - len(thresholds))
        native, facts = fewstep_native.NgramModel.estimate(
            source,
            order=order,
            prune=thresholds,
            discount_fallback=discount_fallback,
            interpolate_unigrams=interpolate_unigrams,
            skip_special=skip_special,
            threads=threads,
            memory=int(memory_gib * 2**30),
        )
        tuples: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
        return cls(native, Estimation(**tuples))

    @classmethod
    def load(cls, path: Path | str) -> NgramModel:
        """A file of `save`, which is mapped, or an ARPA file, plain or compressed by gzip.

        In an ARPA file a missing back-off is 0, a missing `<unk>` has a log-probability of -100 (to base 10), and an n-gram whose
        context is missing gets it, with the probability that backing off gives it. Raises ValueError for another kind of file, for
        one that is cut off or altered, and for an ARPA file that contradicts itself (the message says where), OSError when it
        cannot be read.
        """
        from kernels.native import fewstep_native

        path = Path(path)
        with path.open("rb") as file:
            begin = file.read(8)
        if begin == MAGIC:
            return cls(fewstep_native.NgramModel.map(str(path)))
        if begin == KENLM_MAGIC:
            raise ValueError(
                f"{path}: expected a model file or an ARPA file, got KenLM's binary form; load the ARPA file it was made of"
            )
        if begin[:2] != b"\x1f\x8b":
            return cls(fewstep_native.NgramModel.read_arpa(str(path), str(path)))
        try:
            text = gzip.decompress(path.read_bytes())
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: expected a whole gzip file, got: {error}; make it again") from error
        return cls(fewstep_native.NgramModel.read_arpa(text, str(path)))

    def save(self, path: Path | str) -> None:
        """Write the file that `load` maps, whole or not at all. Equal models give equal bytes. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write(str(temporary)))

    def write_arpa(self, path: Path | str) -> None:
        """Write an ARPA file, whole or not at all; loaded again it is the same model. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write_arpa(str(temporary)))

    @property
    def order(self) -> int:
        return self.native.order

    @property
    def counts(self) -> list[int]:
        """n-grams of each order."""
        return self.native.counts

    @property
    def words(self) -> list[str]:
        """All words by id, `SPECIAL` first; bytes that are no UTF-8 are escaped as surrogates."""
        return [word.decode("utf-8", "surrogateescape") for word in self.native.words()]

    @property
    def vocabulary_digest(self) -> str:
        """SHA-256 of the words, each followed by a newline."""
        return hashlib.sha256(b"".join(word + b"\n" for word in self.native.words())).hexdigest()

    def score(self, words: Sequence[str], bos: bool = True, eos: bool = True) -> float:
        """Natural logarithm of the probability of a sentence: after `<s>` with `bos`, followed by `</s>` with `eos`.

        Unknown words score as `<unk>`. Raises ValueError for a word that is empty or holds white space.
        """
        return self._perplexity(_text([words]), bos, eos, 1).log_prob

    def perplexity(
        self, sentences: Iterable[Sequence[str]] | Path, bos: bool = True, eos: bool = True, threads: int = 1
    ) -> Perplexity:
        """How well the model predicts sentences, given as for `estimate`. Raises ValueError when there is no word to predict."""
        source = str(sentences) if isinstance(sentences, os.PathLike) else _text(sentences)
        found = self._perplexity(source, bos, eos, threads)
        if not found.words:
            raise ValueError("perplexity: expected at least one word, got an empty text")
        return found

    def _perplexity(self, source: bytes | str, bos: bool, eos: bool, threads: int) -> Perplexity:
        return Perplexity(*self.native.score_text(source, bos=bos, eos=eos, threads=threads))

    def for_vocabulary(self, pieces: Sequence[str]) -> NgramScorer:
        """The model over ids: piece `i` is the word of its text, and `<s>`, `</s>` and `<unk>` are the model's own.

        Raises ValueError when the model has none of the pieces: it was made with another vocabulary.
        """
        native = self.native.scorer([_bytes(piece) for piece in pieces])
        known = [piece for piece, word in zip(pieces, native.words, strict=True) if word]
        if not set(known) - set(SPECIAL):
            raise ValueError(
                f"n-gram model: expected one over the {len(pieces)} pieces of this vocabulary, got none of them; estimate it anew"
            )
        return NgramScorer(native, len(pieces) - len(known) - list(pieces).count(SPECIAL[0]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(sentences: Iterable[Sequence[str]]) -> bytes:
    """Sentences as lines."""
    if isinstance(sentences, str | bytes):
        raise TypeError("sentences: expected lists of words or a Path, got a string")
    return b"".join(_bytes(_line(words, number)) for number, words in enumerate(sentences))


def _line(words: Sequence[str], number: int) -> str:
    if isinstance(words, str | bytes):
        raise TypeError(f"sentence {number}: expected a list of words, got the string {words!r}")
    line = " ".join(words)
    if len(SEPARATORS.findall(line)) != max(0, len(words) - 1) or "" in words:
        raise ValueError(f"sentence {number}: expected words without white space, none of them empty, got {list(words)!r}")
    return line + "\n"
