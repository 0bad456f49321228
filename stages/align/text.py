"""The job of the workers of an alignment, its files, and its text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, get_args

import numpy as np

import durable
from kernels.fast_align.em import Pass
from kernels.fast_align.options import AlignOptions
from stages.artifacts import CHECKPOINTS, Text, Tokens
from stages.context import StepContext, WorkerContext, json_text
from stages.shared.shards import read_shard, shard_paths

if TYPE_CHECKING:
    import pyarrow as pa
    from fewstep_native import I64, U8, U32, Bitext

    from stages.align import AlignConfig

Direction = Literal["forward", "reverse"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


@dataclass(frozen=True)
class Job:
    """One alignment. It is picklable."""

    shards: tuple[Path, ...]
    sizes: tuple[int, int] | None
    """Sizes of the source and the target vocabulary; None if words are aligned."""
    config: AlignConfig
    context: WorkerContext

    @classmethod
    def of(cls, bitext: Text | Tokens, config: AlignConfig, context: StepContext) -> Job:
        """Return the job of a text or its tokens."""
        sizes = None
        if isinstance(bitext, Tokens):
            described = json.loads((bitext.path / "tokens.json").read_text(encoding="utf-8"))
            sizes = (described["source_size"], described["target_size"])
        return cls(tuple(shard_paths(bitext.path)), sizes, config, context.for_workers())

    def options(self, direction: Direction) -> AlignOptions:
        """Return the options of the kernels for one direction."""
        config = self.config
        return AlignOptions(
            reverse=direction == "reverse",
            iterations=config.iterations,
            tension=config.tension,
            optimize_tension=config.optimize_tension,
            alpha=config.alpha,
            p0=config.p0,
            compatible=config.compatible,
            max_length=config.max_length,
            threads=self.context.resources.threads,
        )

    def state(self, *parts: str) -> Path:
        """Return the path of a file that later attempts find and that is deleted when the step is finished."""
        return self.context.directory.joinpath(CHECKPOINTS, *parts)

    def links(self, direction: Direction, shard: int, array: str) -> Path:
        """Return the path of an array with the links of a shard.

        `sources` (int32): the position that each explained word is linked to, -1 if it has no link. `starts` (int64, rows + 1): the
        first word of each sentence.
        """
        return self.state("links", direction, f"{shard:05d}.{array}.npy")

    def save(self, path: Path, array: Any) -> None:
        """Write an array atomically and durably."""
        self._save(path, lambda file: np.save(file, array))

    def save_json(self, path: Path, value: Mapping[str, Any]) -> None:
        """Write a JSON file atomically and durably."""
        self._save(path, lambda file: file.write(json_text(value).encode()))

    def _save(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        def write_file(temporary: Path) -> None:
            with temporary.open("wb") as file:
                write(file)

        durable.make_directory(path.parent)
        durable.write_whole(path, write_file, self.context.temporary(path))


def load(path: Path) -> Any:
    """Return a saved array, memory-mapped."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


def load_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def lines_of(table: pa.Table, side: str) -> tuple[I64, U8]:
    """Return the offsets of the lines of a side, and the bytes of all lines."""
    column = _joined(table, side)
    starts = _offsets(column, column.buffers()[1], np.int32)
    letters = column.buffers()[2]
    return starts, np.frombuffer(letters, np.uint8) if letters else np.zeros(0, np.uint8)


def ids_of(table: pa.Table, side: str) -> tuple[I64, U32]:
    """Return the offsets of the sentences of a side, and the ids of all sentences."""
    column = _joined(table, side)
    return _offsets(column, column.buffers()[1], np.int32), column.values.to_numpy().astype(np.uint32)


def _joined(table: pa.Table, side: str) -> Any:
    import pyarrow as pa

    chunks = table.column(side).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([*chunks, pa.array([], table.schema.field(side).type)])


def _offsets(column: Any, buffer: Any, kind: type[np.int32]) -> I64:
    if len(column) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)


def whole_text(job: Job, shards: Sequence[int]) -> Bitext:
    """Return these shards as one text, of words (numbered by first appearance) or of pieces."""
    from fewstep.native import fewstep_native

    text = fewstep_native.Bitext()
    for shard in shards:
        table = read_shard(job.shards[shard])
        if job.sizes:
            text.add_ids(*ids_of(table, "source"), *ids_of(table, "target"), *job.sizes)
        else:
            text.add_lines(*lines_of(table, "source"), *lines_of(table, "target"))
    return text


def pass_record(one: Pass) -> dict[str, Any]:
    """Return the statistics of a pass as plain data."""
    return {
        "log_likelihood": one.log_likelihood,
        "perplexity": one.perplexity,
        "null_posterior": one.null_posterior,
        "feature": one.feature,
        "tensions": list(one.tensions),
    }


def fit_record(
    passes: Sequence[Mapping[str, Any]], *, tension: float, length_ratio: float, counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the entry of a direction in `align.json`. `counts`: target_words (of the explained side), empty, too_long, ..."""
    return {"tension": tension, "length_ratio": length_ratio, "passes": list(passes), **counts}


def report_pass(context: StepContext, number: int, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Report the metrics of pass `number` (from 0), given by direction."""
    values = {}
    for direction, record in records.items():
        values[f"{direction}_perplexity"] = record["perplexity"]
        values[f"{direction}_log_likelihood"] = record["log_likelihood"]
        values[f"{direction}_null_posterior"] = record["null_posterior"]
        if record["tensions"]:
            values[f"{direction}_tension"] = record["tensions"][-1]
    context.metrics(number + 1, values)
