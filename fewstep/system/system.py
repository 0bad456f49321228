"""A loaded system, which translates lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig
from fewstep.config.values import value_problems
from fewstep.decoding import BATCH_TOKENS, Decoder, decode_sentences
from fewstep.explanation import Explaining, Explanation
from fewstep.system.format import BundleError
from fewstep.system.masks import MaskIds
from fewstep.text.glossary import Glossary, GlossaryError
from fewstep.text.languages import WITHOUT_SPACES, base_code
from fewstep.text.masks import Masked, complete, mask, restored, settle
from fewstep.text.sentences import Sentences, split, unsplit
from fewstep.translation import Hypothesis, SourceTooLongError, Translation, join
from fewstep.vocabulary import REPLACEMENT, clean, unknown_pieces

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

log = logging.getLogger("fewstep")

MAX_EXPLAINED_TOKENS = 256
"""Tokens of a sentence whose graph or lattice is given out: the work grows with the square of the length."""
MORE_HYPOTHESES = 8
"""Hypotheses of a sentence that are looked at for one with all masks, or all placeholders."""
SearchChoice = str | SearchConfig | None
"""A label of one of the system's searches, a derived label, a search of the system's family, or None for the default search."""


class Source(NamedTuple):
    """A sentence as the network reads it."""

    text: str
    ids: list[int]
    """Token ids without EOS."""
    cut: int
    """Tokens that were left out at the end."""
    unknown: tuple[str, ...]
    """Pieces that the vocabulary lacks."""
    replaced: int
    """Characters that are U+FFFD."""
    masked: Masked
    """The sentence with masks (`fewstep.text.masks`)."""


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
    masks: tuple[str, ...] = ()
    """Kinds of placeholders for which the vocabulary has masks (`fewstep.text.masks`)."""
    source_prefix: tuple[int, ...] = ()
    """Tokens in front of each source, such as the token of the target language."""
    glossary: Glossary | None = None
    """Terms that are translated as stated (`with_glossary`)."""

    def with_glossary(self, glossary: Glossary | None) -> System:
        """Return the same system, which translates the terms of a glossary as stated.

        Raises GlossaryError if its vocabulary has no masks of terms.
        """
        if glossary is not None and "term" not in self.masks:
            raise GlossaryError(
                f"system {self.name}: expected masks of terms in its vocabulary, got {', '.join(self.masks) or 'none'}; "
                "train a system with corpus.placeholders: [term]"
            )
        return self if glossary == self.glossary else replace(self, glossary=glossary)

    @property
    def search(self) -> SearchConfig:
        """The default search."""
        return self.searches[self.default_search]

    def translate(
        self,
        texts: Sequence[str],
        search: SearchChoice = None,
        *,
        threads: int | None = None,
        first_line: int = 1,
        one_sentence_per_line: bool = False,
        refuse_long: bool = False,
    ) -> list[str]:
        """Return the best translation of each text, empty for a blank one.

        Args:
            texts: Text. A translation system splits it into sentences by the rules of its source language, translates them, and
                joins the translations with the white space of the source; other systems read a text as a whole. Invalid characters
                are replaced, with a warning.
            search: A label of `searches`, a label that is derived from a search's options (such as `beam-beam_size4`), or a search
                of the system's family. None: the default search.
            threads: Number of threads. None: `fewstep.threads.default_threads`, or torch's number for a system that torch decodes.
            first_line: Number of the first text in warnings and errors.
            one_sentence_per_line: Take each text as one sentence, as the pipeline does with the lines of its texts.
            refuse_long: Raise SourceTooLongError, in place of a warning, for a sentence that has more tokens than the system reads.

        Raises TypeError for a single string, ValueError for an unknown search and for options that are not valid for this system,
        `fewstep.decoding.DecodingMemoryError` when the memory does not suffice for one sentence, OSError when threads cannot start,
        and `BundleError` when the network's outputs are not numbers.
        """
        found = self.hypotheses(
            texts,
            None,
            search,
            threads=threads,
            first_line=first_line,
            one_sentence_per_line=one_sentence_per_line,
            refuse_long=refuse_long,
        )
        return [ranked[0].text for ranked in found]

    def hypotheses(
        self,
        texts: Sequence[str],
        n_best: int | None = None,
        search: SearchChoice = None,
        *,
        threads: int | None = None,
        first_line: int = 1,
        one_sentence_per_line: bool = False,
        refuse_long: bool = False,
    ) -> list[list[Translation]]:
        """Return the `n_best` translations of each text, best first, with their scores and statistics; fewer where the search finds
        fewer. None: the number that the search has as an option. The arguments and errors are those of `translate`."""
        if isinstance(texts, str):
            raise TypeError("texts: expected a sequence of texts, got one string; put it into a list")
        chosen = self.chosen_search(search, n_best)
        splits = [unsplit(text) if one_sentence_per_line else self.split(text) for text in texts]
        numbers = [number for number, one in enumerate(splits, first_line) for _ in one.sentences]
        sources = [
            self._source(sentence, number)
            for number, sentence in zip(numbers, chain.from_iterable(one.sentences for one in splits), strict=True)
        ]
        self._report_cuts(sources, numbers, refuse_long)
        found = self.decode([source.ids for source in sources], chosen, threads=threads)
        self._check_found(found, numbers)
        ranked = iter([self._translations(source, of_it) for source, of_it in zip(sources, found, strict=True)])
        return [join([*islice(ranked, len(one.sentences))], one, self.target_language) for one in splits]

    def stream(
        self,
        texts: Iterable[str],
        search: SearchChoice = None,
        *,
        threads: int | None = None,
        batch: int = 64,
        one_sentence_per_line: bool = False,
        refuse_long: bool = False,
    ) -> Iterator[str]:
        """Yield what `translate` returns for each text, in order, with at most `batch` texts in memory.

        Texts are taken from the iterable `batch` at a time, so that one of any size can be translated; `batch=1` answers each text
        before the next one is taken. Raises ValueError for a `batch` below 1, and otherwise as `translate` does.
        """
        if batch < 1:
            raise ValueError(f"batch: expected at least 1 line, got {batch}")
        chosen = self.chosen_search(search)
        remaining = iter(texts)

        def translated() -> Iterator[str]:
            first = 1
            while taken := list(islice(remaining, batch)):
                yield from self.translate(
                    taken,
                    chosen,
                    threads=threads,
                    first_line=first,
                    one_sentence_per_line=one_sentence_per_line,
                    refuse_long=refuse_long,
                )
                first += len(taken)

        return translated()

    def split(self, text: str) -> Sentences:
        """Return the sentences of a text, which is one sentence for systems that do not translate."""
        return split(text, self.source_language) if self.task == "translation" else unsplit(text)

    def chosen_search(self, search: SearchChoice = None, n_best: int | None = None) -> SearchConfig:
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
        yield from value_problems(search)
        yield from self.decoder.problems(search)

    def explain(self, line: str, search: SearchChoice = None, *, threads: int | None = None) -> Explanation | None:
        """Return the graph or lattice from which `search` chooses the translation of a sentence; None for a blank one and for
        families and searches that have none.

        Raises ValueError as `translate` does, and SourceTooLongError for more than `MAX_EXPLAINED_TOKENS` tokens."""
        chosen = self.chosen_search(search)
        source = self._source(line, 1)
        if not source.ids or not isinstance(self.decoder, Explaining):
            return None
        if (count := len(source.ids) + source.cut) > MAX_EXPLAINED_TOKENS:
            raise SourceTooLongError(1, line, MAX_EXPLAINED_TOKENS, count)
        return self.decoder.explain(source.ids, chosen, self.target_pieces.id_to_piece, threads)

    def _report_cuts(self, sources: Sequence[Source], numbers: Sequence[int], refuse: bool) -> None:
        """Log which sources are cut. Raises SourceTooLongError for the first one if such sources are to be refused."""
        limit = self.max_source_tokens
        cut = [one for one in zip(numbers, sources, strict=True) if one[1].cut]
        if cut and refuse:
            number, source = cut[0]
            raise SourceTooLongError(number, source.text, limit, limit + source.cut)
        if cut and self.cuts:
            log.warning("lines %d to %d: cut %d to their first %d tokens", numbers[0], numbers[-1], len(cut), limit)
        for number, source in () if self.cuts else cut:
            log.warning("line %d: cut to %d tokens, got %d", number, limit, limit + source.cut)

    def _check_found(self, found: Sequence[Sequence[Hypothesis]], numbers: Sequence[int]) -> None:
        """Raise BundleError if the search found nothing for a line, which happens only where scores are not numbers."""
        for number, ranked in zip(numbers, found, strict=True):
            if not ranked:
                raise BundleError(
                    f"system {self.name}: line {number}: expected a translation, got none, because the network's outputs are not "
                    "numbers; its weights are damaged: copy the directory again, or train again"
                )

    def _translations(self, source: Source, ranked: Sequence[Hypothesis]) -> list[Translation]:
        """Return hypotheses of a source as text."""
        return [
            Translation(
                text,
                one.score,
                one.steps,
                one.statistics,
                int(bool(source.ids)),
                source.cut,
                source.unknown,
                source.replaced,
                put_back,
            )
            for one in ranked
            for text, put_back in [self._text(one.ids, source.masked, source.text)]
        ]

    def _text(self, ids: Sequence[int], source: Masked, line: str) -> tuple[str, int]:
        """Return target ids as text, and how many masks of the source, whose text is `line`, were put back."""
        # One by one, as in `_source`.
        text = str(self.target_pieces.decode(list(ids)))
        put_back = 0
        if not self.masks:
            return text, put_back
        spaced = base_code(self.target_language) not in WITHOUT_SPACES
        text, put_back = complete(source.text, text, spaced)
        kinds = [kind for kind in self.masks if kind not in ("number", "term")]
        text, changed = settle(
            restored(source.text, source.values), restored(text, source.values, _is_capital(line)), kinds, spaced
        )
        return text, put_back + changed

    def encode(self, lines: Sequence[str], *, first_line: int = 1) -> list[list[int]]:
        """Return the source ids of each line without EOS, cut to `max_source_tokens`. Invalid characters are replaced, with a
        warning."""
        numbers = range(first_line, first_line + len(lines))
        sources = [self._source(line, number) for number, line in zip(numbers, lines, strict=True)]
        if not self.cuts:
            self._report_cuts(sources, numbers, refuse=False)
        return [source.ids for source in sources]

    def _source(self, line: str, number: int) -> Source:
        cleaned = clean(line, number)
        masked = self.masked(cleaned)
        # One by one: SentencePiece starts threads for lists, which takes longer than decoding a sentence.
        ids = list(self.source_pieces.encode(masked.text))
        unknown = unknown_pieces(self.source_pieces, masked.text, ids)
        whole = [*self.source_prefix, *ids] if ids else ids
        kept = whole[: self.max_source_tokens]
        return Source(line, kept, len(whole) - len(kept), unknown, cleaned.count(REPLACEMENT), masked)

    def masked(self, text: str) -> Masked:
        """Return a cleaned text with masks of its placeholders and terms."""
        return mask(text, self.masks, terms=self.glossary.find(text) if self.glossary else ())

    def decode(
        self, sources: Sequence[Sequence[int]], search: SearchChoice = None, *, threads: int | None = None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of source ids without EOS, best first (`fewstep.decoding`). An empty source has one, empty."""
        chosen = self.chosen_search(search)
        found = decode_sentences(self.decoder, sources, chosen, batch_tokens=BATCH_TOKENS, threads=threads)
        return self.keep_masks(sources, found, chosen, threads=threads)

    def keep_masks(
        self,
        sources: Sequence[Sequence[int]],
        found: list[list[Hypothesis]],
        search: SearchConfig,
        *,
        threads: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of sources, first one that has the masks of its source, each as often, if the search finds one.

        Sources whose first hypothesis lacks a mask are decoded again with more hypotheses, if the family has such a search.
        """
        wrong = [row for row, ranked in enumerate(found) if ranked and not self._mask_ids.kept(sources[row], ranked[0].ids)]
        if not wrong:
            return found
        wider = next(self.wider_searches(search), None)
        found = list(found)
        again = [sources[row] for row in wrong]
        more = decode_sentences(self.decoder, again, wider, threads=threads) if wider else [[] for _ in wrong]
        for row, further in zip(wrong, more, strict=True):
            ranked = found[row]
            right = next((one for one in (*ranked, *further) if self._mask_ids.kept(sources[row], one.ids)), None)
            if right is not None:
                found[row] = [right, *(one for one in ranked if one is not right)][: len(ranked)]
        return found

    def wider_searches(self, search: SearchConfig) -> Iterator[SearchConfig]:
        """Yield searches like one of this system's, with more hypotheses."""
        for strategy in dict.fromkeys((search.strategy, "beam", "prefix-beam")):
            for count in (MORE_HYPOTHESES, getattr(search, "length_candidates", 1)):
                if strategy not in search.strategies() or count < 2:
                    continue
                options = {"beam_size": max(count, getattr(search, "beam_size", 1))} if hasattr(search, "beam_size") else {}
                wider = replace(search, strategy=strategy, n_best=max(search.n_best, count), **options)
                if not any(self.problems(wider)):
                    yield wider

    @cached_property
    def _mask_ids(self) -> MaskIds:
        return MaskIds.of(self.masks, self.source_pieces, self.target_pieces)

    def decode_ids(self, targets: Sequence[Sequence[int]], lines: Sequence[str] | None = None) -> list[str]:
        """Return the text of target ids. Masks are replaced by the placeholders of `lines`, the source of each of them."""
        # One by one, as in `_source`.
        texts = [str(self.target_pieces.decode(list(ids))) for ids in targets]
        if not self.masks or lines is None:
            return texts
        return [
            restored(text, source.values, _is_capital(line))
            for text, source, line in zip(texts, self._all_masked(lines), lines, strict=True)
        ]

    def complete_texts(self, targets: Sequence[Sequence[int]], lines: Sequence[str]) -> list[tuple[str, int]]:
        """Return the text of target ids as `translate` does, with all masks of its line, and how many of them were put back."""
        return [self._text(*one) for one in zip(targets, self._all_masked(lines), lines, strict=True)]

    def _all_masked(self, lines: Sequence[str]) -> Iterator[Masked]:
        return (self.masked(clean(line, number)) for number, line in enumerate(lines, 1))


def _is_capital(line: str) -> bool:
    """Return whether a line begins with a capital letter."""
    return line.lstrip()[:1].isupper()


def encode_lines(pieces: SentencePieceProcessor, lines: Sequence[str], first_line: int = 1) -> list[list[int]]:
    """Return the ids of cleaned lines, uncut."""
    # One by one, as in `System._source`.
    return [list(pieces.encode(clean(line, number))) for number, line in enumerate(lines, first_line)]
