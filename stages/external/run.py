"""Run the external stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import CHECKPOINTS
from stages.context import Context, StepContext, WorkerContext
from stages.errors import StageError, TransientError
from stages.external import ExternalConfig, ExternalInputs
from stages.external.ctranslate2_model import CTranslate2Lines
from stages.external.process import Translator
from stages.shared.normalise import normalise
from stages.shared.shards import read_shard, rows_of, shard_paths, write_shard, write_shards

Job = tuple[ExternalInputs, ExternalConfig, WorkerContext]


def run(inputs: ExternalInputs, config: ExternalConfig, context: StepContext) -> None:
    """Write the text with the program's lines as targets, and `distill.json`. Sources without an output are dropped.

    Each shard is kept as soon as it is complete, so that a later attempt translates only those that are missing. Raises
    TransientError and DataError as `Translator.translate` does, StageError when no source has an output.
    """
    described = json.loads((inputs.text.path / "text.json").read_text(encoding="utf-8"))
    shards = shard_paths(inputs.text.path)
    missing = [index for index, path in enumerate(shards) if not _is_whole(_kept(context, index), path)]
    size = config.shards_per_process
    groups = [missing[start : start + size] for start in range(0, len(missing), size)]
    done, total = len(shards) - len(missing), len(shards)
    context.progress(done, total, "shards")
    for _, translated in context.workers.map(make_translator, (inputs, config, context.for_workers()), groups):
        done += translated
        context.progress(done, total, "shards")
        if context.stop_requested() and done < total:
            raise TransientError(f"asked to stop: {done} of {total} shards are translated and kept")
    counts = Counter({"rows": 0, "kept": 0, "empty": 0})
    rows = write_shards(_pairs(shards, context, counts), context.directory, described["shard_rows"], context)
    if not counts["kept"]:
        raise StageError(f"{config.key}: expected a translation of at least one of {counts['rows']} sources, got empty lines alone")
    context.write_json(
        context.directory / "text.json", {"rows": sum(rows), "shards": len(rows), "shard_rows": described["shard_rows"]}
    )
    context.write_json(context.directory / "distill.json", dict(counts))


def make_translator(argument: Job) -> Callable[[Sequence[int]], int]:
    """Return a function that translates shards by their numbers with one process or with a loaded model, and returns how many."""
    inputs, config, context = argument
    shards, lines_translated = shard_paths(inputs.text.path), _translation(inputs, config, context)

    def translate(indices: Sequence[int]) -> int:
        tables = [read_shard(shards[index]).select(["id", "source"]) for index in indices]
        sources = [table["source"].to_pylist() for table in tables]
        outputs = lines_translated([line for lines in sources for line in lines if line.strip()])
        for index, table, lines in zip(indices, tables, sources, strict=True):
            found = islice(outputs, sum(bool(line.strip()) for line in lines))
            targets = [next(found, None) if line.strip() else "" for line in lines]
            if None in targets:
                break  # the end of the outputs raises the error
            write_shard(_kept(context, index), table.append_column("target", pa.array(targets, pa.string())), context)
        for _ in outputs:
            break
        return len(indices)

    return translate


def _translation(
    inputs: ExternalInputs, config: ExternalConfig, context: WorkerContext
) -> Callable[[Sequence[str]], Iterator[str]]:
    """Return the function that yields the translations of lines in their order."""
    if config.ctranslate2 is not None:
        device, threads = "cuda" if context.resources.gpus else "cpu", context.resources.threads
        return CTranslate2Lines(inputs.model, config.ctranslate2, device=device, threads=threads).translate

    def translate(lines: Sequence[str]) -> Iterator[str]:
        return Translator(
            config.command,
            files=[file.path for file in inputs.files],
            environment=config.environment,
            timeout_seconds=config.timeout_seconds,
        ).translate(lines)

    return translate


def _kept(context: Context, index: int) -> Path:
    return context.directory / CHECKPOINTS / f"translated-{index:05d}.arrow"


def _is_whole(kept: Path, shard: Path) -> bool:
    return kept.exists() and rows_of(kept) == rows_of(shard)


def _pairs(shards: Sequence[Path], context: Context, counts: Counter[str]) -> Iterator[pa.Table]:
    """Yield the pairs with an output, normalised as all training text is, and count them."""
    for index in range(len(shards)):
        table = read_shard(_kept(context, index))
        targets = normalise(table["target"].combine_chunks())
        kept = table.set_column(table.column_names.index("target"), "target", targets).filter(pc.not_equal(targets, ""))
        counts.update(rows=table.num_rows, kept=kept.num_rows, empty=table.num_rows - kept.num_rows)
        yield kept
