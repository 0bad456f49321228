"""Select training targets from the teacher's hypotheses."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fewstep.config.options import OutputLimits
from stages.artifacts import CHECKPOINTS, ExternalFile, System
from stages.context import StepContext, WorkerContext
from stages.distill import DistillConfig, DistillInputs
from stages.errors import ArtifactError
from stages.shared.decoding.pieces import Piece
from stages.shared.scoring.choice import Candidates, selector_of
from stages.shared.shards import read_shard, write_shard
from stages.shared.target_filters import TargetFilter
from stages.workers import LocalWorkers

MAX_REPEATS = 5
"""Largest number of consecutive repetitions of an n-gram in a usable output."""

PIECES_OF_A_MODEL = 32
"""Pieces whose targets are chosen together by a model that has to be loaded."""

COUNTS = b"counts"
"""Key of the outcomes of sources in the metadata of a table of chosen pairs."""


@dataclass(frozen=True)
class OutputFilter:
    """Filter of outputs that cannot be targets. Hypotheses are rows of a `Hypotheses` artifact."""

    config: DistillConfig
    max_source_tokens: int | None
    """Tokens, without EOS, to which the teacher's network limits sources; None if sources are truncated by a rule of the run."""
    max_output_tokens: int
    """Tokens, without EOS, to which the teacher's network limits outputs."""

    def rejection(self, source: str, candidates: Sequence[dict[str, Any]]) -> str | None:
        """Return the reason why no candidate is usable; None if at least one is."""
        if self.max_source_tokens is not None and candidates[0]["source_tokens"] >= self.max_source_tokens:
            return "long_source"
        return None if self.usable(source, candidates) else self._problem(source, candidates[0])

    def usable(self, source: str, candidates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the candidates that may be targets."""
        return [row for row in candidates if self._problem(source, row) is None]

    def _problem(self, source: str, row: dict[str, Any]) -> str | None:
        limit = min(self.max_output_tokens, max_output_tokens(self.config.search.output_limits, row["source_tokens"]))
        if (ratio := self.config.max_ratio) is not None:
            limit = min(limit, int(ratio * (row["source_tokens"] + 1)))
        found = problem_of(row["ids"], row["text"], limit)
        filters = self.config.filters
        if found is not None or filters is None:
            return found
        return TargetFilter(filters, self.config.target_language).rejection(source, row["text"])


def distilled_tables(
    pieces: Sequence[Piece], inputs: DistillInputs, config: DistillConfig, context: StepContext, counts: Counter[str]
) -> Iterator[pa.Table]:
    """Yield the pairs (id, source, target) of each decoded piece that have a usable output, and add the outcomes of all sources to
    `counts`.

    Choices of an earlier attempt are reused.
    """
    output_filter = OutputFilter(config, *limits_of(inputs.teacher))
    folder = context.directory / CHECKPOINTS / f"chosen-{hashlib.sha256(repr(config).encode()).hexdigest()[:16]}"
    missing = [piece for piece in pieces if not (folder / piece.decoded.name).is_file()]
    # Choosing by score without filters is faster than starting a worker.
    slow = config.choose != "score" or config.filters is not None
    workers = context.workers if slow else LocalWorkers()
    done = len(pieces) - len(missing)
    size = PIECES_OF_A_MODEL if inputs.comet else 1
    groups = [missing[start : start + size] for start in range(0, len(missing), size)]
    for index, _ in workers.map(make_chooser, (output_filter, inputs.comet, context.for_workers(), folder), groups):
        done += len(groups[index])
        if slow:
            context.progress(done, len(pieces), "pieces with chosen targets")
    for piece in pieces:
        table = read_shard(folder / piece.decoded.name)
        counts.update(json.loads(table.schema.metadata[COUNTS]))
        yield table.replace_schema_metadata(None)


def limits_of(teacher: System) -> tuple[int | None, int]:
    """Return `max_source_tokens` and `max_output_tokens` of `OutputFilter`. Raises ArtifactError for a damaged description."""
    path = teacher.path / "system.json"
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        longest = int(described["network"]["max_positions"]) - 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path}: expected the description of a system, got: {error!r}; remove the artifact and run again"
        ) from error
    return None if "max_source_tokens" in described else longest, longest


Job = tuple[OutputFilter, ExternalFile | None, WorkerContext, Path]


def make_chooser(argument: Job) -> Callable[[Sequence[Piece]], None]:
    """Return a function that writes the chosen pairs of pieces, each to a file in a folder."""
    output_filter, comet, context, folder = argument
    selector = selector_of(output_filter.config, comet, context)

    def choose(pieces: Sequence[Piece]) -> None:
        read = [Outputs.read(piece, output_filter, whole=selector is not None) for piece in pieces]
        rows = [row for outputs in read for row in outputs.candidates()]
        chosen = iter(selector(rows) if selector else [0] * len(rows))
        for piece, outputs in zip(pieces, read, strict=True):
            write_shard(folder / piece.decoded.name, outputs.pairs(chosen, ranks=selector is not None), context)

    return choose


@dataclass(frozen=True)
class Outputs:
    """The outputs for the sources of a decoded piece."""

    rows: pa.Table
    """The sources and their ids."""
    references: Sequence[str]
    usable: Sequence[Sequence[dict[str, Any]]]
    """The outputs of each source that may be its target, as rows of a `Hypotheses` artifact."""
    counts: Counter[str]
    """The outcomes of the sources that have none."""

    @staticmethod
    def read(piece: Piece, output_filter: OutputFilter, *, whole: bool) -> Outputs:
        """Read a piece, with all outputs of a source (`whole`) or with the best one."""
        rows = piece.read()
        references = read_shard(piece.shard)["target"].slice(piece.start, piece.rows).to_pylist() if whole else [""] * piece.rows
        ranked: dict[int, list[dict[str, Any]]] = {}
        for row in read_shard(piece.decoded).to_pylist():
            ranked.setdefault(row["id"], []).append(row)
        counts = Counter(rows=piece.rows)
        usable = list[list[dict[str, Any]]]()
        for id_, source in zip(rows["id"].to_pylist(), rows["source"].to_pylist(), strict=True):
            outputs = ranked[id_] if whole else ranked[id_][:1]
            rejection = output_filter.rejection(source, outputs)
            counts.update([rejection] if rejection else [])
            usable.append([] if rejection else output_filter.usable(source, outputs))
        return Outputs(rows, references, usable, counts)

    def candidates(self) -> Iterator[Candidates]:
        """Yield the outputs of the sources that have a usable one."""
        for source, reference, outputs in zip(self.rows["source"].to_pylist(), self.references, self.usable, strict=True):
            if outputs:
                yield Candidates(source, [output["text"] for output in outputs], reference or "")

    def pairs(self, chosen: Iterator[int | None], *, ranks: bool) -> pa.Table:
        """Return the pairs of the sources with their chosen targets.

        `chosen` has the index of a target for each source of `candidates`, in their order. The metadata of the table hold the
        outcomes of the sources and, with `ranks`, how often each rank of the search was chosen.
        """
        counts = self.counts.copy()
        targets: list[str | None] = []
        for outputs in self.usable:
            index = next(chosen) if outputs else None
            targets.append(None if index is None else outputs[index]["text"])
            if index is not None:
                counts.update(["kept", f"rank_{outputs[index]['rank']}"] if ranks else ["kept"])
            elif outputs:
                counts.update(["quality"])
        pairs = self.rows.append_column("target", pa.array(targets, pa.string()))
        kept = pairs.filter(pa.array([target is not None for target in targets], pa.bool_()))
        return kept.replace_schema_metadata({COUNTS: json.dumps(counts, sort_keys=True)})


def max_output_tokens(limits: OutputLimits, source_tokens: int) -> int:
    """Return the length in tokens of the longest output that the limits allow for a source; both without EOS."""
    longest = source_tokens + limits.max_extra_tokens
    return longest if limits.max_tokens is None else min(longest, limits.max_tokens - 1)


def problem_of(ids: Sequence[int], text: str, max_tokens: int) -> str | None:
    """Return why an output cannot be a target (`empty`, `over_long` or `repeating`), or None if it can.

    An output of `max_tokens` tokens or more reached a limit of the search and is over-long. `ids` are without EOS.
    """
    if not text.strip():
        return "empty"
    if len(ids) >= max_tokens:
        return "over_long"
    return "repeating" if repeats(ids, MAX_REPEATS) else None


def repeats(ids: Sequence[int], max_times: int) -> bool:
    """Return whether any n-gram occurs more than `max_times` times in a row."""
    for width in range(1, len(ids) // (max_times + 1) + 1):
        run = 0
        for left, right in zip(ids, ids[width:], strict=False):
            run = run + 1 if left == right else 0
            if run == width * max_times:
                return True
    return False
