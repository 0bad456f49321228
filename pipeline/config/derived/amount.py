"""Values `auto`: numbers that follow from the amount of training text, by one rule for all pairs of languages.

The rule interpolates between recipes that were measured: 29,000 pairs of Multi30k and 4.5 million pairs of WMT14. It is written out
in `docs/guide/quickstart.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fewstep.config.problems import KeyPath
from pipeline.config.expand import long_text
from pipeline.config.texts import FORMATS
from pipeline.config.tree import Node, dotted
from stages.errors import DataError

AUTO = "auto"
LARGE = 500_000
"""Number of pairs from which networks of size `base` are trained, in larger batches."""
REFERENCE_PAIRS, REFERENCE_UPDATES = 29_000, 7000
"""The amount of text and the updates of the recipe from which others are scaled."""
VALIDATIONS = 14
"""Number of validations of a training, of which the best five checkpoints are averaged by default."""


def updates(pairs: int) -> int:
    """Return the updates of a training: in proportion to the square root of the pairs, from 2,000 to 300,000, with two digits."""
    number: float = REFERENCE_UPDATES * math.sqrt(pairs / REFERENCE_PAIRS)
    digits: int = 10 ** max(math.floor(math.log10(max(number, 1))) - 1, 0)
    return min(max(round(number / digits) * digits, 2000), 300_000)


def pieces(pairs: int) -> int:
    """Return the size of a vocabulary."""
    return next((size for limit, size in ((20_000, 2000), (100_000, 8000), (LARGE, 16_000)) if pairs < limit), 32_000)


def dropout(pairs: int) -> float:
    """Return the probability of dropout: the less text, the more a network has to be kept from learning it by heart."""
    return next((share for limit, share in ((100_000, 0.3), (LARGE, 0.2)) if pairs < limit), 0.1)


RULES: dict[KeyPath, Callable[[int], Any]] = {
    ("size",): lambda pairs: "base" if pairs >= LARGE else "tiny",
    ("dropout",): dropout,
    ("training", "updates"): updates,
    ("training", "batch_tokens"): lambda pairs: 25_000 if pairs >= LARGE else 4096,
    ("training", "learning_rate"): lambda pairs: 0.0007 if pairs >= LARGE else 0.002,
    ("training", "warmup_updates"): lambda pairs: min(updates(pairs) // 7, 4000),
    ("training", "validate_every"): lambda pairs: updates(pairs) // VALIDATIONS,
}
"""Keys of `defaults`, the teacher and systems that may be `auto`, with their values by the number of training pairs."""


@dataclass(frozen=True)
class Resolved:
    """A config as written, without values `auto`."""

    root: Node
    pairs: int | None = None
    """Number of training pairs. None: no value follows from it."""
    values: tuple[tuple[str, Any], ...] = ()
    """The values that follow from it, by their keys."""

    def text(self) -> str:
        """Return the values as one line, which is empty if no value follows from the pairs."""
        if self.pairs is None:
            return ""
        return f"from {self.pairs:,} training pairs: " + ", ".join(f"{key} {value}" for key, value in self.values)


def resolve(root: Node, problems: list[str]) -> Resolved:
    """Replace all values `auto`. Problems in counting the pairs are added to `problems`, and the rule then takes 29,000 for
    them."""
    places = dict(_places(root))
    if not places:
        return Resolved(root)
    pairs = _pairs(root, next(iter(places)), problems)
    found = []
    for path, rule in places.items():
        node, _ = root.locate(path)
        root = _put(root, path, replace(node, value=rule(pairs)))
        found.append((dotted(path), rule(pairs)))
    if ("vocabulary", "size") in places:
        vocabulary = root.map["vocabulary"]
        inexact = vocabulary.with_value({"exact": vocabulary.child("exact", False), **vocabulary.map})
        root = _put(root, ("vocabulary",), inexact)
    return Resolved(root, pairs, tuple(found))


def _places(root: Node) -> Iterator[tuple[KeyPath, Callable[[int], Any]]]:
    """Yield the paths of all values `auto` that follow from the amount of text, with their rules."""
    owners: list[KeyPath] = [("defaults",), ("teacher",), *(("systems", name) for name in _map(root, ("systems",)))]
    rules = {("vocabulary", "size"): pieces} | {(*owner, *key): rule for owner in owners for key, rule in RULES.items()}
    for path, rule in rules.items():
        node, rest = root.locate(path)
        if not rest and node.value == AUTO:
            yield path, rule


def _map(root: Node, path: KeyPath) -> dict[str, Node]:
    node, rest = root.locate(path)
    return {} if rest else node.map


def _put(root: Node, path: KeyPath, node: Node) -> Node:
    if not path:
        return node
    key = str(path[0])
    return root.with_value({**root.map, key: _put(root.map[key], path[1:], node)})


def _pairs(root: Node, first: KeyPath, problems: list[str]) -> int:
    """Return the number of training pairs, stated or counted."""
    corpus = _map(root, ("corpus",))
    stated = corpus["pairs"].value if "pairs" in corpus else None
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        return stated
    where = f"{root.locate(first)[0].where}: {dotted(first)}"
    try:
        found = sum(_counts(long_text(corpus["train"]) if "train" in corpus else root.child("train", {})))
        if found:
            return found
        problems.append(f"{where}: expected training text on this machine, or its number of pairs in corpus.pairs, to follow from")
    except DataError as error:
        problems.append(f"{where}: expected training text whose pairs can be counted, or corpus.pairs; {error}")
    return REFERENCE_PAIRS


def _counts(text: Node) -> Iterator[int]:
    """Yield the numbers of pairs of the parts of a text; nothing for those that are not on this machine."""
    if isinstance(embedded := _value(text, "embedded"), int):
        yield embedded
    for kind in (key for key in FORMATS if key != "target"):
        files = text.map[kind].value if kind in text.map else []
        for file in files if isinstance(files, list) else []:
            if isinstance(file.value, str):
                path = Path(file.value)
                yield _count(path, *_state(path), kind == "parquet")


def _value(text: Node, key: str) -> Any:
    return text.map[key].value if key in text.map else None


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=256)
def _count(path: Path, size: int, modified: int, parquet: bool) -> int:
    """Return the rows of a file; `size` and `modified` are part of the key of the cache."""
    if not parquet:
        from stages.corpus.lines import read_lines

        return sum(len(lines) for lines in read_lines(path))
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            return int(file.metadata.num_rows)
    except (OSError, ArrowException) as error:
        raise DataError(f"{path}: expected a Parquet file, got: {error}") from error
