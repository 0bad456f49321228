"""Validation and test text that is taken from a training text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stages.corpus import Filters
from stages.corpus.filters import SAMPLE, Cleaner, comparison_keys, usual_ratio
from stages.corpus.lines import read_lines
from stages.errors import DataError
from stages.shared.normalise import normalise

PAIRS = 1000
"""Pairs of a text that is taken, if the training text is large enough."""
SHARE = 0.05
"""Largest share of the training text that is taken for one of them."""
BLOCKS = 10
"""Blocks of consecutive pairs that a text consists of. Single pairs would have neighbours of the same document in the training
text."""
SLACK = 2
"""Pairs of a block that are looked at for each that is taken, since some do not pass the filters."""


Rows = Callable[[], Iterator[tuple[str, ...]]]
"""A function that yields the pairs of a text."""


class Pair(NamedTuple):
    """The two files of a parallel text."""

    source: Path
    target: Path

    def size(self) -> int:
        """Return the number of pairs. Raises DataError for files that differ in their number of lines or cannot be read."""
        counts = [sum(1 for _ in _lines(path)) for path in self]
        if counts[0] != counts[1]:
            raise DataError(f"init: expected as many lines in {self.target} as in {self.source} ({counts[0]}), got {counts[1]}")
        return counts[0]

    def __str__(self) -> str:
        return str(self.source)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the pairs."""
        return zip(*map(_lines, self), strict=True)


def take_files(counts: Mapping[str, int], names: Sequence[str]) -> dict[str, list[str]]:
    """Return whole files for each named text, by the pairs of each file: as many as fit, in the order of their names' digests.

    Pairs of one file resemble each other, so that its other pairs would be known. Raises DataError if no file is left to train on.
    """
    quota = min(PAIRS, int(SHARE * sum(counts.values())))
    # An order that is the same everywhere and does not follow the alphabet, in which similar files are neighbours.
    rest = sorted((name for name, pairs in counts.items() if pairs), key=lambda name: hashlib.sha256(name.encode()).digest())
    found = dict[str, list[str]]()
    for text in names:
        taken = list[str]()
        pairs = 0
        for name in rest:
            if pairs + counts[name] <= quota:
                taken.append(name)
                pairs += counts[name]
        found[text] = taken or sorted(rest, key=counts.__getitem__)[:1]
        rest = [name for name in rest if name not in found[text]]
    if not rest or not all(found.values()):
        raise DataError(
            f"init: expected more than {len(names)} files with pairs, got {sum(map(bool, counts.values()))}; name the texts to "
            f"hold out with {' and '.join(f'--{name}' for name in names)}"
        )
    return found


def take_blocks(
    text: Rows, place: str, languages: tuple[str, str], count: int, names: Sequence[str]
) -> dict[str, list[tuple[str, str]]]:
    """Return pairs for each named text: the first of evenly spaced blocks that pass the filters of a run, none of them twice.

    `place` names the text in errors.

    Raises DataError for a text of less than 1 / `SHARE` pairs and for blocks of which no pair passes.
    """
    if not names:
        return {}
    taken = min(PAIRS, int(SHARE * count))
    if taken == 0:
        raise DataError(f"{place}: expected at least {round(1 / SHARE)} pairs to take test pairs from, got {count}")
    sample = _table(islice(text(), SAMPLE))
    cleaner = Cleaner(Filters(), *languages, comparison_keys(pa.array([], pa.string())), usual_ratio([sample]))
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    seen = set[tuple[str, str]]()
    for turn, table in enumerate(_blocks(text, count, taken, len(names))):
        pairs = found[names[turn % len(names)]]
        quota = -(-taken // min(BLOCKS, taken))
        good = [pair for pair in _passing(cleaner, table) if pair not in seen][: min(quota, taken - len(pairs))]
        seen.update(good)
        pairs += dict.fromkeys(good)
    for name, pairs in found.items():
        if not pairs:
            raise DataError(f"{place}: expected pairs that pass the filters for the {name} text, got none; name one with --{name}")
    return found


def _blocks(text: Rows, count: int, taken: int, texts: int) -> Iterator[pa.Table]:
    """Yield the blocks of all texts in turn, in the order of the file."""
    blocks = min(BLOCKS, taken)
    region = count // (blocks * texts)
    length = min(region, SLACK * -(-taken // blocks))
    rows = text()
    for _ in range(blocks * texts):
        yield _table(islice(rows, length))
        for _skipped in islice(rows, region - length):
            pass


def _table(rows: Iterator[tuple[str, ...]]) -> pa.Table:
    sides = list(zip(*rows, strict=True)) or [(), ()]
    return pa.table([normalise(pa.array(side, pa.string())) for side in sides], ["source", "target"])


def _passing(cleaner: Cleaner, table: pa.Table) -> list[tuple[str, str]]:
    dropped = np.logical_or.reduce(list(cleaner.masks(table).values()))
    return [(row["source"], row["target"]) for row in table.filter(pa.array(~dropped)).to_pylist()]


def _lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\n") for block in read_lines(path) for line in block.to_pylist())
