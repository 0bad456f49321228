"""Text files of both sides: tab-separated columns, a pair on each line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fewstep.documents.document import Languages
from stages.corpus.readers.lines import Lines, lines_of
from stages.corpus.readers.reader import IndexedFile
from stages.errors import DataError


class Tsv(Lines):
    """Text files with the columns of a pair on each line."""

    format: str = "tsv"

    def read(self, file: IndexedFile, start: int, stop: int, side: str, languages: Languages) -> Iterator[pa.Table]:
        """Yield the pairs on the lines `start` to `stop`. Raises DataError for a line with another number of columns."""
        for lines in lines_of(file, start, stop):
            yield _columns(file, lines, start)
            start += len(lines)


def _columns(file: IndexedFile, lines: pa.StringArray, start: int) -> pa.Table:
    """Split lines at tabs into source and target. `start` lines of the file precede them.

    Without stated columns, lines of two columns are expected. With them, lines may have more, and blank lines are empty pairs.
    """
    stated = file.file.columns
    tabs = pc.count_substring(lines, "\t").to_numpy()
    source, target = (int(column) - 1 for column in stated or (1, 2))
    last = max(source, target)
    wrong = tabs != last
    if stated:
        blank = pc.equal(pc.utf8_trim_whitespace(lines), "")
        lines = pc.if_else(blank, "\t" * last, lines)
        wrong = (tabs < last) & ~blank.to_numpy(zero_copy_only=False)
    if (at := np.flatnonzero(wrong)).size:
        expected = f"at least {last + 1} columns" if stated else "two columns, source<TAB>target"
        line = start + int(at[0]) + 1
        found = int(tabs[at[0]]) + 1
        raise DataError(f"{file.shown}, line {line}: expected {expected}, got {found}; remove or repair the line")
    cells = pc.split_pattern(lines, "\t")
    return pa.table({"source": pc.list_element(cells, source), "target": pc.list_element(cells, target)})
