"""A loaded system, which translates lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal, overload

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig
from fewstep.decoding import BATCH_TOKENS, Decoder, decode_sentences
from fewstep.explanation import Explaining, Explanation
from fewstep.system.format import BundleError
from fewstep.translation import Hypothesis, Translation
from fewstep.vocabulary import clean

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

__all__ = ["System"]

log = logging.getLogger("fewstep")

Search = str | SearchConfig | None
"""A label of one of the system's searches, a derived label, a search of the system's family, or None for the default search."""
Outputs = list[str] | list[Translation] | list[list[Translation]]


@dataclass(frozen=True, kw_only=True)
class System:
    """A system that translates or summarises text, depending on its training.

    Several threads may use one system at the same time. The output of a line does not depend on the other lines.
    """

    name: str
    family: str
    task: str
    """`translation` or `summarization`."""
    source_language: str
    target_language: str
    searches: Mapping[str, SearchConfig]
    """Searches by label."""
    default_search: str
    """Label of the search that is used if no other is given."""
    decoder: Decoder
    source_pieces: SentencePieceProcessor
    target_pieces: SentencePieceProcessor
    max_source_tokens: int
    """Number of tokens, without EOS, to which longer sources are cut."""
    max_target_tokens: int
    """Length of the longest target, in tokens without EOS, that can be scored."""
    cuts: bool = False
    """Whether sources were cut in training too, so that cutting needs no warning per line. Otherwise only sources beyond the
    network's limit are cut."""
    source_prefix: tuple[int, ...] = ()
    """Tokens in front of each source, such as the token of the target language."""

    @property
    def search(self) -> SearchConfig:
        """The default search."""
        return self.searches[self.default_search]

    @overload
    def translate(
        self,
        lines: Sequence[str],
        search: Search = None,
        *,
        n_best: None = None,
        scores: Literal[False] = False,
        threads: int | None = None,
        first_line: int = 1,
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        lines: Sequence[str],
        search: Search = None,
        *,
        n_best: None = None,
        scores: Literal[True],
        threads: int | None = None,
        first_line: int = 1,
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        lines: Sequence[str],
        search: Search = None,
        *,
        n_best: int,
        scores: bool = False,
        threads: int | None = None,
        first_line: int = 1,
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        lines: Sequence[str],
        search: Search = None,
        *,
        n_best: int | None = None,
        scores: bool = False,
        threads: int | None = None,
        first_line: int = 1,
    ) -> Outputs:
        """Return the best translation of each line, empty for a blank one.

        Args:
            lines: Text, one sentence (or document) each. Invalid characters are replaced, with a warning.
            search: A label of `searches`, a label that is derived from a search's options (such as `beam-beam_size4`), or a search
                of the system's family. None: the default search.
            n_best: Return this number of translations of each line, best first, with their scores; fewer where the search finds
                fewer.
            scores: Return each translation with its score, its steps and its statistics.
            threads: Number of threads. None: `fewstep.threads.default_threads`, or torch's number for a system that torch decodes.
            first_line: Number of the first line in warnings.

        Raises TypeError for a single string, ValueError for an unknown search and for options that are not valid for this system,
        `fewstep.decoding.DecodingMemoryError` when the memory does not suffice for one line, OSError when threads cannot start,
        and `BundleError` when the network's outputs are not numbers.
        """
        ranked = self._translations(lines, self.chosen_search(search, n_best), threads, first_line)
        if n_best is not None:
            return ranked
        best = [translations[0] for translations in ranked]
        return best if scores else [translation.text for translation in best]

    @overload
    def stream(
        self,
        lines: Iterable[str],
        search: Search = None,
        *,
        n_best: None = None,
        scores: Literal[False] = False,
        threads: int | None = None,
        batch: int = 64,
    ) -> Iterator[str]: ...

    @overload
    def stream(
        self,
        lines: Iterable[str],
        search: Search = None,
        *,
        n_best: None = None,
        scores: Literal[True],
        threads: int | None = None,
        batch: int = 64,
    ) -> Iterator[Translation]: ...

    @overload
    def stream(
        self,
        lines: Iterable[str],
        search: Search = None,
        *,
        n_best: int,
        scores: bool = False,
        threads: int | None = None,
        batch: int = 64,
    ) -> Iterator[list[Translation]]: ...

    def stream(
        self,
        lines: Iterable[str],
        search: Search = None,
        *,
        n_best: int | None = None,
        scores: bool = False,
        threads: int | None = None,
        batch: int = 64,
    ) -> Iterator[str] | Iterator[Translation] | Iterator[list[Translation]]:
        """Yield what `translate` returns for each line, in order, with at most `batch` lines in memory.

        Lines are taken from the iterable `batch` at a time, so that a text of any size can be translated; `batch=1` answers each
        line before the next one is taken. Raises ValueError for a `batch` below 1, and otherwise as `translate` does.
        """
        if batch < 1:
            raise ValueError(f"batch: expected at least 1 line, got {batch}")
        chosen = self.chosen_search(search, n_best)
        return self._stream(iter(lines), chosen, n_best, scores, threads, batch)

    def _stream(
        self, lines: Iterator[str], search: SearchConfig, n_best: int | None, scores: bool, threads: int | None, batch: int
    ) -> Iterator[str] | Iterator[Translation] | Iterator[list[Translation]]:
        first = 1
        while taken := list(islice(lines, batch)):
            for ranked in self._translations(taken, search, threads, first):
                yield ranked if n_best is not None else ranked[0] if scores else ranked[0].text
            first += len(taken)

    def chosen_search(self, search: Search = None, n_best: int | None = None) -> SearchConfig:
        """Return the search that `translate` uses. Raises ValueError for an unknown label and for a search of another family."""
        chosen = self.search_labelled(search) if isinstance(search, str) else search or self.search
        if not isinstance(chosen, type(self.search)):
            raise ValueError(f"search: expected {type(self.search).__name__}, got {type(chosen).__name__}")
        return chosen if n_best is None else replace(chosen, n_best=n_best)

    def search_labelled(self, label: str) -> SearchConfig:
        """Return the system's search with this label, or the search that the label is derived from. Raises ValueError for any other
        label."""
        found = self.searches.get(label) or type(self.search).parse(label)
        if found is None:
            raise ValueError(f"search: expected one of {', '.join(self.searches)}, or a derived label, got {label!r}")
        return found

    def problems(self, search: SearchConfig) -> Iterator[Problem]:
        """Yield the options of a search that are not valid for this system."""
        return self.decoder.problems(search)

    def explain(self, line: str, search: Search = None, *, threads: int | None = None) -> Explanation | None:
        """Return the graph or lattice from which `search` chooses the translation of a line; None for a blank line and for families
        and searches that have none. Raises ValueError as `translate` does."""
        chosen = self.chosen_search(search)
        (source,) = self.encode([line])
        if not source or not isinstance(self.decoder, Explaining):
            return None
        return self.decoder.explain(source, chosen, self.target_pieces.id_to_piece, threads)

    def _translations(
        self, lines: Sequence[str], search: SearchConfig, threads: int | None, first_line: int
    ) -> list[list[Translation]]:
        sources = self._whole(lines, first_line)
        if self.cuts and (cut := sum(len(ids) > self.max_source_tokens for ids in sources)):
            last = first_line + len(lines) - 1
            log.warning("lines %d to %d: cut %d to their first %d tokens", first_line, last, cut, self.max_source_tokens)
        found = self.decode([ids[: self.max_source_tokens] for ids in sources], search, threads=threads)
        self._check_found(found, first_line)
        return [[self._translation(hypothesis) for hypothesis in ranked] for ranked in found]

    def _check_found(self, found: Sequence[Sequence[Hypothesis]], first_line: int) -> None:
        """Raise BundleError if the search found nothing for a line, which happens only where scores are not numbers."""
        for number, ranked in enumerate(found, first_line):
            if not ranked:
                raise BundleError(
                    f"system {self.name}: line {number}: expected a translation, got none, because the network's outputs are not "
                    "numbers; its weights are damaged: copy the directory again, or train again"
                )

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = self.target_pieces.decode(hypothesis.ids)
        return Translation(text, hypothesis.score, hypothesis.steps, hypothesis.statistics)

    def encode(self, lines: Sequence[str], *, first_line: int = 1) -> list[list[int]]:
        """Return the source ids of each line without EOS, cut to `max_source_tokens`. Invalid characters are replaced, with a
        warning."""
        return [ids[: self.max_source_tokens] for ids in self._whole(lines, first_line)]

    def _whole(self, lines: Sequence[str], first_line: int) -> list[list[int]]:
        """Return the uncut source ids of each line; a line that exceeds the network's limit causes a warning, unless cutting is the
        rule."""
        if isinstance(lines, str):
            raise TypeError("lines: expected a sequence of lines, got one string; put it into a list")
        encoded = [[*self.source_prefix, *ids] if ids else ids for ids in encode_lines(self.source_pieces, lines, first_line)]
        for number, ids in enumerate(encoded, first_line):
            if len(ids) > self.max_source_tokens and not self.cuts:
                log.warning("line %d: cut to %d tokens, got %d", number, self.max_source_tokens, len(ids))
        return encoded

    def decode(
        self, sources: Sequence[Sequence[int]], search: Search = None, *, threads: int | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of source ids without EOS, best first (`fewstep.decoding`). An empty source has one, empty."""
        chosen = self.chosen_search(search)
        return decode_sentences(self.decoder, sources, chosen, batch_tokens=BATCH_TOKENS, threads=threads)

    def decode_ids(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of target ids."""
        # One by one: SentencePiece starts threads for lists, which takes longer than decoding a sentence.
        return [str(self.target_pieces.decode(list(ids))) for ids in targets]


def encode_lines(pieces: SentencePieceProcessor, lines: Sequence[str], first_line: int = 1) -> list[list[int]]:
    """Return the ids of cleaned lines, uncut."""
    # One by one, as in `System.decode_ids`.
    return [list(pieces.encode(clean(line, number))) for number, line in enumerate(lines, first_line)]
