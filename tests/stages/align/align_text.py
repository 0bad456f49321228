"""Text to align, and readers of the result."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kernels import AlignOptions, fast_align
from stages.align import AlignConfig
from stages.artifacts import Text, Tokens
from stages.context import StepContext
from stages.shared.shards import read_shards, write_shards
from stages.workers import LocalWorkers, Resources

WORDS = AlignConfig(unit="words")


def work_in(directory: Path, **more: Any) -> StepContext:
    directory.mkdir(parents=True, exist_ok=True)
    return replace(
        StepContext(
            directory=directory,
            attempt="a1",
            workers=LocalWorkers(),
            resources=Resources(workers=1, cpus=1),
            shard_cache=directory / "cache",
        ),
        **more,
    )


def draw(count: int) -> list[tuple[str, str]]:
    drawn = random.Random(9)
    side = lambda letter: " ".join(f"{letter}{drawn.randrange(14)}" for _ in range(drawn.randrange(0, 9)))  # noqa: E731
    return [(side("é"), side("f")) for _ in range(count)]


ROWS = draw(120)


def text_of(directory: Path, rows: list[tuple[str, str]], shard_rows: int = 50) -> Text:
    source, target = zip(*rows, strict=True)
    table = pa.table({"id": pa.array(range(7, len(rows) + 7), pa.int64()), "source": source, "target": target})
    write_shards([table], directory, shard_rows, work_in(directory))
    return Text(directory, "text")


def tokens_of(directory: Path, rows: list[tuple[str, str]], shard_rows: int = 50, width: Any = None) -> Tokens:
    numbers = [[[int(word[1:]) for word in side.split()] for side in sides] for sides in zip(*rows, strict=True)]
    kind = pa.list_(width or pa.uint16())
    columns = {name: pa.array(side, kind) for name, side in zip(("source", "target"), numbers, strict=True)}
    table = pa.table({"id": pa.array(range(7, len(rows) + 7), pa.int64()), **columns})
    write_shards([table], directory, shard_rows, work_in(directory))
    (directory / "tokens.json").write_text(json.dumps({"source_size": 14, "target_size": 14}))
    return Tokens(directory, "tokens")


def table_of(directory: Path) -> dict[str, list[Any]]:
    return pa.concat_tables(read_shards(directory)).to_pydict()


def described(directory: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((directory / "align.json").read_text())
    return value


def pairs_of(rows: list[tuple[str, str]]) -> list[tuple[list[str], list[str]]]:
    return [(source.split(), target.split()) for source, target in rows]


def functions(rows: list[tuple[str, str]], options: AlignOptions) -> list[list[int]]:
    """Return the links of `fast_align` as a position for each explained word."""
    found = []
    for (source, target), links in zip(pairs_of(rows), fast_align(pairs_of(rows), options=options).links, strict=True):
        row = [-1] * len(source if options.reverse else target)
        for i, j in links:
            row[i if options.reverse else j] = j if options.reverse else i
        found.append(row)
    return found
