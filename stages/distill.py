"""Decode the training source with the teacher: sequence-level distillation (Kim and Rush 2016)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Text
from stages.errors import StageError
from stages.stage import Stage, Work

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.decoding import Piece


@dataclass(frozen=True)
class DistillInputs:
    text: Text
    teacher: System


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """How the teacher decodes the training source."""

    search: StepwiseSearch
    """The teacher's search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


PIECE_ROWS = 512
"""Sentences decoded at a time: a killed attempt loses no more than this of each worker."""

MAX_REPEATS = 5
"""How often the same tokens may stand in a row before an output is held to be a loop."""


def run(inputs: DistillInputs, config: DistillConfig, work: Work) -> None:
    """Write the text with the teacher's outputs as targets, without the pairs that it failed on, and `distill.json`.

    Raises StageError when the teacher failed on all of them, ArtifactError when a decoded piece lacks or doubles rows.
    """
    from stages.decoding import Task, decode_text
    from stages.shards import drop_shards_from, write_shards

    decoded = decode_text(inputs.text, Task(inputs.teacher, config.search, config.batch_tokens), PIECE_ROWS, work)
    shard_rows = json.loads((inputs.text.path / "text.json").read_text(encoding="utf-8"))["shard_rows"]
    counts = Counter({"rows": 0, "kept": 0, "empty": 0, "over_long": 0, "repeating": 0})
    shards = write_shards(_distilled(decoded, config.search, counts), work.directory, shard_rows, work)
    drop_shards_from(work.directory, len(shards))
    if not counts["kept"]:
        raise StageError(
            f"distillation: the teacher made something of none of {counts['rows']} sources: {dict(counts)}; train it longer"
        )
    work.write_json(work.directory / "text.json", {"rows": sum(shards), "shards": len(shards), "shard_rows": shard_rows})
    work.write_json(work.directory / "distill.json", dict(counts))


def _distilled(decoded: list[Piece], search: StepwiseSearch, counts: Counter[str]) -> Iterator[pa.Table]:
    """The pairs of each decoded piece whose output is sound, counting all of them."""
    import pyarrow as pa

    from stages.shards import read_shard

    for piece in decoded:
        hypotheses = [row for row in read_shard(piece.decoded).to_pylist() if row["rank"] == 0]
        failures = [failure(row["ids"], row["text"], longest_output(search, row["source_tokens"])) for row in hypotheses]
        counts.update(failed or "kept" for failed in failures)
        counts["rows"] += len(failures)
        pairs = piece.read().append_column("target", pa.array([row["text"] for row in hypotheses], pa.string()))
        yield pairs.filter(pa.array([failed is None for failed in failures], pa.bool_()))


def longest_output(search: StepwiseSearch, source_tokens: int) -> int:
    """The longest output that the search allows, in tokens; both without EOS."""
    longest = source_tokens + search.max_extra_tokens
    return longest if search.max_tokens is None else min(longest, search.max_tokens - 1)


def failure(ids: Sequence[int], text: str, longest: int) -> str | None:
    """Why an output is no training target, or None: it is `empty`, `over_long` or `repeating`.

    Over-long is what ran into the search's limit of `longest` tokens. `ids` are without EOS.
    """
    if not text.strip():
        return "empty"
    if len(ids) >= longest:
        return "over_long"
    return "repeating" if loops(ids, MAX_REPEATS) else None


def loops(ids: Sequence[int], times: int) -> bool:
    """Does any n-gram stand more than `times` times in a row?"""
    for width in range(1, len(ids) // (times + 1) + 1):
        run = 0
        for left, right in zip(ids, ids[width:], strict=False):
            run = run + 1 if left == right else 0
            if run == width * times:
                return True
    return False


STAGE = Stage(name="distill", version=1, run=run, output=Text, distributes=True)
