"""Contexts of steps, workers in another order, texts, and files of results, which tests of all stages share."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stages.artifacts import Text
from stages.context import StepContext
from stages.corpus import TextFiles
from stages.corpus.indexed_text import IndexedText, open_text
from stages.corpus.readers import parquet
from stages.shared.phases import Phases
from stages.shared.shards import read_shards, write_shards
from stages.workers import LocalWorkers, Resources


def read_parquet_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check Parquet files in this process. The process of limited memory takes half a second for each file."""
    monkeypatch.setattr(parquet, "row_groups", lambda *arguments, whole=True: parquet.checked_groups(*arguments, whole=whole))


def context_in(directory: Path, kind: type[StepContext] = StepContext, **changes: Any) -> StepContext:
    """Return the context of a step that writes to a directory, with one worker in this process unless `changes` state others."""
    directory.mkdir(parents=True, exist_ok=True)
    usual = {"attempt": "a1", "workers": LocalWorkers(), "resources": Resources(workers=1, cpus=1)}
    return kind(directory=directory, **{**usual, "shard_cache": directory / "cache", **changes})


@dataclass(frozen=True)
class ShuffledWorkers(LocalWorkers):
    """Workers that process items in another order, and pickle all that crosses processes; they may die."""

    seed: int = 3
    lives: list[int] = field(default_factory=lambda: [10**9])
    """Number of items before they die."""
    done: list[tuple[str, Any]] = field(default_factory=list)
    """Name of the function and item of each call."""
    sent: list[int] = field(default_factory=list)
    """Bytes of argument, item and result of each call."""

    def map(self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, shards: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        order = list(range(len(shards)))
        random.Random(self.seed).shuffle(order)
        for index in order if order != sorted(order) else order[::-1]:
            if self.lives[0] == 0:
                raise KeyboardInterrupt
            self.lives[0] -= 1
            self.done.append((make.__name__, shards[index]))
            sent = [pickle.dumps(value) for value in (argument, shards[index])]
            result = pickle.dumps(make(pickle.loads(sent[0]))(pickle.loads(sent[1])))
            self.sent.append(sum(map(len, sent)) + len(result))
            yield index, pickle.loads(result)


def write_text(directory: Path, rows: Sequence[tuple[str, str]], shard_rows: int = 100, ids: Sequence[int] | None = None) -> Text:
    """Write pairs as the artifact of a text. Their ids are 0, 1, ... unless they are given."""
    source, target = zip(*rows, strict=True) if rows else ((), ())
    columns = {"id": pa.array(range(len(rows)) if ids is None else ids, pa.int64()), "source": pa.array(source, pa.string())}
    table = pa.table({**columns, "target": pa.array(target, pa.string())})
    shards = write_shards([table], directory, shard_rows, context_in(directory))
    (directory / "text.json").write_text(json.dumps({"rows": len(rows), "shards": len(shards), "shard_rows": shard_rows}))
    return Text(directory, "text")


def opened(files: TextFiles, folder: Path) -> IndexedText:
    """Return the text of English and German files, which are decompressed below a folder."""
    return open_text(files, ("en", "de"), folder / "unpacked", Phases(context_in(folder / "step")))


def tables(files: TextFiles, folder: Path) -> Iterator[pa.Table]:
    """Yield all rows of the text of files."""
    text = opened(files, folder)
    return text.read(0, text.rows)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of all shards of an artifact."""
    return [row for table in read_shards(directory) for row in table.to_pylist()]


def results(directory: Path) -> dict[str, bytes]:
    """Return the files of an artifact that enter comparisons: all but records, checkpoints and cached shards."""
    paths = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if not name.startswith(("records/", "checkpoints/", "cache/"))}


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def metrics_of(directory: Path) -> list[dict[str, float]]:
    """Return the lines of metrics that the attempts in a directory recorded."""
    return [json.loads(line) for path in sorted((directory / "records").glob("metrics.*")) for line in path.open()]
