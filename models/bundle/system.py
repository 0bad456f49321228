"""A loaded system, which translates lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sentencepiece import SentencePieceProcessor

from fewstep.vocabulary import clean
from models.bundle.batched_decoding import BATCH_TOKENS, batches, decode_sentences
from models.config.problems import Problem
from models.config.search import SearchConfig
from models.family import Decoder, Hypothesis

log = logging.getLogger("fewstep")


class Translation(NamedTuple):
    """One output of a search, a translation or a summary."""

    text: str
    score: float


@dataclass(frozen=True, kw_only=True)
class System:
    """A system that translates or summarises text, depending on its training. Outputs of lines do not depend on each other."""

    name: str
    family: str
    source_language: str
    target_language: str
    search: SearchConfig
    """The default search, of the family's search type."""
    decoder: Decoder
    source_pieces: SentencePieceProcessor
    target_pieces: SentencePieceProcessor
    max_source_tokens: int
    """Number of tokens, without EOS, to which longer sources are cut."""
    max_target_tokens: int
    """Length of the longest target, in tokens without EOS, that can be scored."""
    searches: Mapping[str, SearchConfig] = field(default_factory=dict)
    """Searches by label, the default among them."""
    cuts: bool = False
    """Whether sources were cut in training too, so that cutting needs no warning per line. Otherwise only sources beyond the
    network's limit are cut."""

    def translate(self, lines: Sequence[str], search: Any = None, *, first_line: int = 1) -> list[str]:
        """Return the best translation of each line, empty for a blank one. `first_line` numbers the lines in warnings."""
        return [ranked[0].text for ranked in self.translate_n_best(lines, search, first_line=first_line)]

    def translate_n_best(self, lines: Sequence[str], search: Any = None, *, first_line: int = 1) -> list[list[Translation]]:
        """Return the translations of each line that `search` finds, best first; `search` is a label or a search of the family
        (default: the system's own)."""
        sources = self._whole(lines, first_line)
        if self.cuts and (cut := sum(len(ids) > self.max_source_tokens for ids in sources)):
            last = first_line + len(lines) - 1
            log.warning("lines %d to %d: cut %d to their first %d tokens", first_line, last, cut, self.max_source_tokens)
        found = self.decode([ids[: self.max_source_tokens] for ids in sources], search)
        texts = iter(self.decode_ids([hypothesis.ids for ranked in found for hypothesis in ranked]))
        return [[Translation(next(texts), hypothesis.score) for hypothesis in ranked] for ranked in found]

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

    def encode(self, lines: Sequence[str], *, first_line: int = 1) -> list[list[int]]:
        """Return the source ids of each line without EOS, cut to `max_source_tokens`. Invalid characters are replaced, with a
        warning."""
        return [ids[: self.max_source_tokens] for ids in self._whole(lines, first_line)]

    def _whole(self, lines: Sequence[str], first_line: int) -> list[list[int]]:
        """Return the uncut source ids of each line; a line that exceeds the network's limit causes a warning, unless cutting is the
        rule."""
        encoded = _encode(self.source_pieces, lines, first_line)
        for number, ids in enumerate(encoded, first_line):
            if len(ids) > self.max_source_tokens and not self.cuts:
                log.warning("line %d: cut to %d tokens, got %d", number, self.max_source_tokens, len(ids))
        return encoded

    def decode(self, sources: Sequence[Sequence[int]], search: Any = None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first (`models.bundle.batched_decoding`). An empty source has one, empty."""
        chosen = self.search_labelled(search) if isinstance(search, str) else search or self.search
        return decode_sentences(self.decoder, sources, chosen, batch_tokens=BATCH_TOKENS)

    def score(self, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1) -> list[float]:
        """Return the natural log-probability of each line of `targets`, followed by EOS, as the translation of its source.

        Raises ValueError for different numbers of sources and targets and for a line that is too long: no line is cut.
        """
        if len(sources) != len(targets):
            raise ValueError(f"expected as many targets as sources ({len(sources)}), got {len(targets)}")
        pairs = self.encode_pairs(sources, targets, first_line=first_line)
        for number, (source, target) in enumerate(pairs, first_line):
            for side, ids, longest in (("source", source, self.max_source_tokens), ("target", target, self.max_target_tokens)):
                if len(ids) > longest:
                    raise ValueError(f"line {number}: expected a {side} of at most {longest} tokens, got {len(ids)}")
        return self.score_ids(pairs)

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1
    ) -> list[tuple[list[int], list[int]]]:
        """Return the source and target ids of each pair of lines without EOS, uncut."""
        encoded = (_encode(self.source_pieces, sources, first_line), _encode(self.target_pieces, targets, first_line))
        return list(zip(*encoded, strict=True))

    def score_ids(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
        """Return the log-probability of each pair of ids (`Decoder.score`), computed in batches of similar length."""
        scores = [0.0] * len(pairs)
        for batch in batches([max(len(source), len(target), 1) for source, target in pairs], BATCH_TOKENS):
            found = self.decoder.score([pairs[index][0] for index in batch], [pairs[index][1] for index in batch])
            for index, score in zip(batch, found, strict=True):
                scores[index] = score
        return scores

    def decode_ids(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of target ids."""
        # One by one: SentencePiece starts threads for lists, which takes longer than decoding a sentence.
        return [str(self.target_pieces.decode(list(ids))) for ids in targets]


def _encode(pieces: SentencePieceProcessor, lines: Sequence[str], first_line: int) -> list[list[int]]:
    """Return the ids of cleaned lines."""
    # One by one, as in `decode_ids`.
    return [list(pieces.encode(clean(line, number))) for number, line in enumerate(lines, first_line)]
