"""Run the external stage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import durable
from stages.artifacts import CHECKPOINTS
from stages.context import Context, StepContext, WorkerContext
from stages.errors import DataError, StageError, TransientError
from stages.external import ExternalConfig, ExternalInputs, answers
from stages.external.answers import Budget, Chooser, Journal, ask_all, tokens_of, write
from stages.external.ctranslate2_model import CTranslate2Lines
from stages.external.openai_server import Server
from stages.external.process import Translator
from stages.external.prompts import Answer, estimate
from stages.shared.normalise import normalise
from stages.shared.scoring.options import QUALITY
from stages.shared.shards import read_shard, rows_of, shard_paths, write_shard, write_shards
from stages.shared.target_filters import REASONS

Job = tuple[ExternalInputs, ExternalConfig, WorkerContext]

OUTCOMES = {"kept": "kept"} | answers.REASONS | REASONS | QUALITY
"""Outcomes of a source, and their names in reports."""


class Group(NamedTuple):
    """The shards that a worker translates before it reports."""

    indices: Sequence[int]
    budget: Budget | None = None
    """Tokens and money for the requests of a language model."""


def run(inputs: ExternalInputs, config: ExternalConfig, context: StepContext) -> None:
    """Write the text with the program's lines as targets, and `distill.json`. Sources without an output are dropped.

    Each shard is kept as soon as it is complete, so that a later attempt translates only those that are missing. Raises
    TransientError and DataError as `Translator.translate` does, StageError when no source has an output.
    """
    described = json.loads((inputs.text.path / "text.json").read_text(encoding="utf-8"))
    shards = shard_paths(inputs.text.path)
    missing = [index for index, path in enumerate(shards) if not _is_whole(_kept(context, index), path)]
    size = config.shards_per_process
    groups = [Group(missing[start : start + size]) for start in range(0, len(missing), size)]
    if config.openai is not None or config.ray_llm is not None:
        durable.make_directory(context.shard_cache)
    if config.openai is not None:
        groups = _with_budgets(groups, shards, config, context)
    done = len(shards) - len(missing)
    total = len(shards)
    context.progress(done, total, "shards")
    if config.ray_llm is not None:
        finished = _on_engines(missing, shards, inputs, config, context)
    else:
        mapped = context.workers.map(make_translator, (inputs, config, context.for_workers()), groups)
        finished = (translated for _, translated in mapped)
    for translated in finished:
        done += translated
        context.progress(done, total, "shards")
        if context.stop_requested() and done < total:
            raise TransientError(f"asked to stop: {done} of {total} shards are translated and kept")
    counts = Counter({"rows": 0, "kept": 0, "empty": 0})
    rows = write_shards(_pairs(shards, context, counts), context.directory, described["shard_rows"], context)
    if not counts["kept"]:
        raise StageError(f"{config.key}: expected a translation of at least one of {counts['rows']} sources, got {dict(counts)}")
    context.write_json(
        context.directory / "text.json", {"rows": sum(rows), "shards": len(rows), "shard_rows": described["shard_rows"]}
    )
    context.write_json(context.directory / "distill.json", dict(counts))
    context.write_json(context.records("tables", "distillation.json"), _table(counts, config))


def _with_budgets(groups: Sequence[Group], shards: Sequence[Path], config: ExternalConfig, context: StepContext) -> list[Group]:
    """Return the groups, each with its part of the budget by the tokens that its missing answers may take.

    Raises DataError before the first request if the budget does not hold all of them.
    """
    spent = [0, 0]
    asked = dict[int, tuple[float, float]]()
    for index, path in enumerate(shards):
        sources = read_shard(path)["source"].to_pylist()
        known = Journal(context.shard_cache, config, sources).read()
        spent = [sum(pair) for pair in zip(spent, tokens_of(known.values()), strict=True)]
        asked[index] = estimate(config, (line for row, line in enumerate(sources) if line.strip() and row not in known))
    of_groups = [[sum(values) for values in zip(*(asked[index] for index in group.indices), strict=True)] for group in groups]
    assert config.openai is not None
    remaining = Budget(config.openai, spent=(spent[0], spent[1]))
    remaining.check(sum(prompt for prompt, _ in of_groups), sum(answer for _, answer in of_groups))
    total = sum(map(sum, of_groups)) or 1.0
    return [group._replace(budget=remaining.part(sum(of_it) / total)) for group, of_it in zip(groups, of_groups, strict=True)]


def make_translator(argument: Job) -> Callable[[Group], int]:
    """Return a function that translates shards by their numbers with one process, a loaded model or a server, and returns how
    many."""
    inputs, config, context = argument
    if config.openai is not None:
        return _asker(inputs, config, context)
    shards = shard_paths(inputs.text.path)
    lines_translated = _translation(inputs, config, context)
    chooser = Chooser(config, inputs.comet, context)

    def translate(group: Group) -> int:
        indices = group.indices
        tables = [read_shard(shards[index]).select(["id", "source"]) for index in indices]
        sources = [table["source"].to_pylist() for table in tables]
        outputs = lines_translated([line for lines in sources for line in lines if line.strip()])
        for index, table, lines in zip(indices, tables, sources, strict=True):
            found = islice(outputs, sum(bool(line.strip()) for line in lines))
            targets = [next(found, None) if line.strip() else "" for line in lines]
            if None in targets:
                break  # the end of the outputs raises the error
            outputs_of = [(line, Answer([target] if target else [], 0, 0), "") for line, target in zip(lines, targets, strict=True)]
            _keep(index, table, chooser.targets(outputs_of), context)
        # Behind the last line stands the end of the program, which may have failed or written too many lines.
        for _ in outputs:
            break
        return len(indices)

    return translate


def _asker(inputs: ExternalInputs, config: ExternalConfig, context: WorkerContext) -> Callable[[Group], int]:
    """Return a function that asks a language model for the translations of shards that are missing."""
    shards = shard_paths(inputs.text.path)
    server = Server(config)
    chooser = Chooser(config, inputs.comet, context)

    def translate(group: Group) -> int:
        assert group.budget is not None
        for index in group.indices:
            table = read_shard(shards[index])
            sources = table["source"].to_pylist()
            journal = Journal(context.shard_cache, config, sources)
            found = journal.read()
            missing = {row: line for row, line in enumerate(sources) if line.strip() and row not in found}
            with journal.open() as file:
                for row, answer in ask_all(server, config, missing, group.budget):
                    write(file, row, answer)
                    found[row] = answer
            _keep_chosen(index, table, found, chooser, context)
        return len(group.indices)

    return translate


def _on_engines(
    missing: Sequence[int], shards: Sequence[Path], inputs: ExternalInputs, config: ExternalConfig, context: StepContext
) -> Iterator[int]:
    """Translate shards with engines on the cluster, and yield 1 for each that is complete.

    The engines go on from shard to shard, since they take minutes to start. Each answer is kept as it comes.
    """
    from stages.external import ray_llm

    chooser = Chooser(config, inputs.comet, context)
    waiting = dict[int, int]()
    """Number of answers that a shard waits for."""

    def journal_of(index: int, table: pa.Table) -> Journal:
        return Journal(context.shard_cache, config, table["source"].to_pylist())

    def keep(index: int) -> int:
        table = read_shard(shards[index])
        _keep_chosen(index, table, journal_of(index, table).read(), chooser, context)
        return 1

    journals = dict[int, Journal]()
    sources = list[ray_llm.Sources]()
    for index in missing:
        table = read_shard(shards[index])
        journal = journal_of(index, table)
        known = journal.read()
        texts = {row: line for row, line in enumerate(table["source"].to_pylist()) if line.strip() and row not in known}
        if not texts:
            yield keep(index)
            continue
        sources.append(ray_llm.Sources(index, texts))
        waiting[index] = len(texts)
        journals[index] = journal
    for index, row, answer in ray_llm.answers(sources, config, context.resources) if sources else ():
        with journals[index].open() as file:
            write(file, row, answer)
        waiting[index] -= 1
        if waiting[index] == 0:
            yield keep(index)
        elif context.stop_requested():
            raise TransientError("asked to stop: the answers so far are kept")


def _keep_chosen(index: int, table: pa.Table, found: Mapping[int, Answer], chooser: Chooser, context: Context) -> None:
    """Write a shard with the targets that are chosen among the answers of its sources. Raises DataError if the model takes none."""
    problems = [answer.problem for answer in found.values()]
    if problems and all(problems):
        raise DataError(
            f"{chooser.config.key}: expected translations, got for all {len(problems)} sources of a shard: {problems[0]}"
        )
    sources = table["source"].to_pylist()
    references = table["target"].to_pylist() if chooser.config.choose == "reference" else [""] * len(sources)
    of_rows = [found.get(row, Answer([], 0, 0)) for row in range(len(sources))]
    chosen = chooser.targets(list(zip(sources, of_rows, references, strict=True)))
    _keep(index, table.select(["id", "source"]), chosen, context)


def _keep(index: int, table: pa.Table, chosen: Sequence[tuple[str, str]], context: Context) -> None:
    """Write a shard with targets, and the reasons for their absence."""
    for name, values in zip(("target", "reason"), zip(*chosen, strict=True) if chosen else ((), ()), strict=True):
        table = table.append_column(name, pa.array(values, pa.string()))
    write_shard(_kept(context, index), table, context)


def _translation(
    inputs: ExternalInputs, config: ExternalConfig, context: WorkerContext
) -> Callable[[Sequence[str]], Iterator[str]]:
    """Return the function that yields the translations of lines in their order."""
    device = "cuda" if context.resources.gpus else "cpu"
    threads = context.resources.threads
    if config.transformers is not None:
        from stages.external.transformers_model import TransformersLines

        return TransformersLines(inputs.model, config.transformers, device=device, threads=threads).translate
    if config.ctranslate2 is not None:
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
        reasons, table = table["reason"], table.drop_columns(["reason"])
        targets = normalise(table["target"].combine_chunks())
        usable = pc.and_(pc.not_equal(targets, ""), pc.equal(reasons.combine_chunks(), ""))
        for reason, target in zip(reasons.to_pylist(), targets.to_pylist(), strict=True):
            counts.update([reason or "empty"] if reason or not target else [])
        kept = table.set_column(table.column_names.index("target"), "target", targets).filter(usable)
        counts.update(rows=table.num_rows, kept=kept.num_rows)
        yield kept


def _table(counts: Counter[str], config: ExternalConfig) -> dict[str, object]:
    """The outcomes of the sources as a table of the report."""
    total = max(counts["rows"], 1)
    rows = [[OUTCOMES[key], f"{counts[key]:,}", f"{counts[key] / total:.2%}"] for key in OUTCOMES if counts[key] or key == "kept"]
    caption = f"Outputs of {config.key} for {counts['rows']:,} sources. Students are trained on those that are kept."
    return {"title": "Distillation", "caption": caption, "columns": ["outputs", "sentences", "share"], "rows": rows}
