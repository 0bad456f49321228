"""Run the benchmark stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from stages.benchmark import BenchmarkConfig, BenchmarkInputs
from stages.benchmark.matched_baseline import peer
from stages.benchmark.peak_memory import peak_memory
from stages.benchmark.tables import length_table, table, table_of_parts, yardstick_table
from stages.benchmark.timing import (
    Translate,
    Turn,
    batches,
    by_length,
    by_sentence,
    environment,
    evenly_spaced,
    measure,
    summarise,
)
from stages.benchmark.translator import timed_translator
from stages.context import Context, StepContext
from stages.decoding.ctranslate2 import check_engine
from stages.decoding.driver import load
from stages.decoding.sentences import read_sentences
from stages.errors import DataError
from stages.score.tasks import TASKS


def run(inputs: BenchmarkInputs, config: BenchmarkConfig, context: StepContext) -> None:
    """Write `systems.json` (what was timed), `records/benchmark.json` (the figures) and tables for the report.

    Raises DataError for a search of a system that is not there and for a test set without text, StageError where the engine of a
    search is not installed.
    """
    sentences = [sentence for sentence in read_sentences(inputs.text.path) if sentence.source.strip()]
    if not sentences:
        raise DataError(f"benchmark: expected a sentence to translate, got none in {inputs.text.path}")
    _check(inputs, config)
    chosen = [sentences[index] for index in evenly_spaced(len(sentences), config.sentences)]
    lines = [sentence.source for sentence in chosen]
    turns, where = _measured(inputs, config, context, lines)
    figures = summarise(turns, config.baseline, _yardsticks(config))
    if config.memory:
        _add_memory(figures, inputs, config, context, lines)
    protocol = {
        "sentences": len(chosen),
        "rounds": config.rounds,
        "batch_size": config.batch_sizes[-1],
        "batch_sizes": list(config.batch_sizes),
        "baseline": config.baseline,
        "yardsticks": _yardsticks(config),
        "peers": _peers(config),
    }
    lengths, task = by_length(turns, config.baseline), TASKS[config.task]
    found = [asdict(turn) for turn in turns]
    record = {"protocol": protocol, "environment": where, "entries": figures, "by_length": lengths}
    record |= {"by_sentence": by_sentence(turns, config.baseline), "turns": found}
    context.write_json(context.records("benchmark.json"), record)
    context.write_json(context.records("tables", "benchmark.json"), table(len(sentences), protocol, figures, task))
    context.write_json(context.records("tables", "benchmark-yardsticks.json"), yardstick_table(protocol, figures))
    context.write_json(context.records("tables", "benchmark-lengths.json"), length_table(lengths, config.baseline, task))
    if (parts := table_of_parts(turns)) is not None:
        context.write_json(context.records("tables", "parts.json"), parts)
    searches = {entry: asdict(search) for entry, search in config.searches.items()}
    ids = [sentence.id for sentence in chosen]
    context.write_json(context.directory / "systems.json", {"baseline": config.baseline, "searches": searches, "sentences": ids})


def _measured(
    inputs: BenchmarkInputs, config: BenchmarkConfig, context: Context, lines: list[str]
) -> tuple[list[Turn], dict[str, Any]]:
    """All turns, and where they were taken."""
    threads, device = context.resources.threads, "cuda" if context.resources.gpus else "cpu"
    before, turns = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        where = environment(device, threads, ctranslate2=any(search.uses_ctranslate2 for search in config.searches.values()))
        rounds = measure(_load(inputs, config, device), lines, config.rounds, config.batch_sizes)
        for count, fresh in enumerate(rounds, 1):
            turns += fresh
            context.progress(count, config.rounds, "rounds")
    finally:
        torch.set_num_threads(before)
    return turns, where


def _yardsticks(config: BenchmarkConfig) -> list[str]:
    """The baseline, the other searches of its system, and what CTranslate2 decodes."""
    system = config.baseline.partition("/")[0]
    return [entry for entry, search in config.searches.items() if entry.partition("/")[0] == system or search.uses_ctranslate2]


def _peers(config: BenchmarkConfig) -> dict[str, str | None]:
    """Of each entry the search of the baseline's system that it is compared with like for like."""
    system = config.baseline.partition("/")[0]
    own = {entry: search for entry, search in config.searches.items() if entry.partition("/")[0] == system}
    return {entry: peer(search, own) for entry, search in config.searches.items()}


def _add_memory(
    figures: dict[str, dict[str, Any]], inputs: BenchmarkInputs, config: BenchmarkConfig, context: Context, lines: list[str]
) -> None:

    longest = batches(lines, config.batch_sizes[-1])[-1]
    device = "cuda" if context.resources.gpus else "cpu"
    for entry, search in config.searches.items():
        directory = inputs.systems[entry.partition("/")[0]].path
        figures[entry]["memory_mib"] = peak_memory(directory, asdict(search), longest, device, context.resources.threads)


def _check(inputs: BenchmarkInputs, config: BenchmarkConfig) -> None:
    """Raises what `run` does of systems, searches and baseline."""
    names = {entry.partition("/")[0] for entry in config.searches}
    if missing := sorted(names - set(inputs.systems)):
        raise DataError(f"benchmark: expected systems among {sorted(inputs.systems)}, got {missing}")
    if config.baseline not in config.searches:
        raise DataError(f"benchmark.baseline: expected one of {sorted(config.searches)}, got {config.baseline!r}")
    for search in config.searches.values():
        check_engine(search)


def _load(inputs: BenchmarkInputs, config: BenchmarkConfig, device: str) -> dict[str, Translate]:
    """All entries, each system loaded once."""
    names = {entry: entry.partition("/")[0] for entry in config.searches}
    systems = {name: load(inputs.systems[name], device) for name in dict.fromkeys(names.values())}
    return {entry: timed_translator(systems[names[entry]], search) for entry, search in config.searches.items()}
