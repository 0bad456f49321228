"""The embedded corpus as a text whose rows can be read from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from stages.corpus import CorpusConfig
from stages.corpus.indexed_text import BATCH_ROWS
from stages.corpus.readers.reader import IndexedFile
from stages.errors import DataError
from stages.shared.embedded import LANGUAGES, documents, pairs


@dataclass(frozen=True)
class EmbeddedText:
    """The first `config.embedded` pairs of a part of the embedded corpus. See `stages.corpus.indexed_text.IndexedText`."""

    config: CorpusConfig

    @staticmethod
    def of(config: CorpusConfig) -> EmbeddedText:
        """Return the text of a config. Raises DataError for languages that it does not have."""
        languages = config.languages
        expected = LANGUAGES[config.task]
        if sorted(languages) != sorted(expected):
            raise DataError(
                f"the embedded corpus: expected languages {expected[0]} and {expected[1]}, got {languages[0]} and {languages[1]}; "
                "use files for other languages"
            )
        return EmbeddedText(config)

    @property
    def rows(self) -> int:
        return self.config.embedded

    def batches(self) -> Iterator[int]:
        """Yield the numbers of rows of the tables in which the whole text is read."""
        for start in range(0, self.rows, BATCH_ROWS):
            yield min(BATCH_ROWS, self.rows - start)

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop` in order, in tables of at most `BATCH_ROWS` rows."""
        stream = (pairs if self.config.task == "translation" else documents)(self.config.part, start, stop - start)
        forth = self.config.source_language == LANGUAGES[self.config.task][0]
        while batch := list(islice(stream, BATCH_ROWS)):
            first, second = zip(*batch, strict=True)
            sides = (first, second) if forth else (second, first)
            yield pa.table([pa.array(side, pa.string()) for side in sides], ["source", "target"])

    def place(self, row: int) -> None:
        """Return None, since the text has no files."""

    def counts(self) -> Iterator[tuple[str, IndexedFile]]:
        """Yield nothing, since the text has no files."""
        return iter(())
