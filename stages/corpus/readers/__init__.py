"""The formats of text files, each with a class that counts and reads its rows from anywhere.

A reader knows nothing of pieces, workers and sides: it counts the rows of a file in spans, and reads the rows from one number to
another. The index of a file is the number of rows before each of its blocks, as the reader counts them.
"""

from stages.corpus.readers.lines import Lines
from stages.corpus.readers.parquet import Parquet
from stages.corpus.readers.reader import Reader
from stages.corpus.readers.tsv import Tsv
from stages.corpus.readers.units import BILINGUAL, Units

UNITS = {name: Units(name) for name in BILINGUAL}
"""Readers of files of units."""
READERS: dict[str, Reader] = {"lines": Lines(), "tsv": Tsv(), "parquet": Parquet(), **UNITS}
"""Readers by format: the fields of `TextFiles`, and `lines` for files that hold one side."""
