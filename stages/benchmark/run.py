"""Run the benchmark stage."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, cast

import torch

from fewstep.families.stepwise.config import StepwiseSearch
from stages.benchmark import BenchmarkConfig, BenchmarkInputs
from stages.benchmark.peak_memory import peak_memory
from stages.benchmark.rivals.ctranslate2_entry import ctranslate2_translator
from stages.benchmark.summary import (
    by_length,
    by_sentence,
    length_table,
    matched_baseline,
    parts_table,
    reference_table,
    summarise,
    table,
)
from stages.benchmark.timing import RoundTimings, Translate, measure, sized_batches, timed_translator
from stages.context import Context, StepContext
from stages.errors import DataError
from stages.shared.decoding.searches import check_engine, with_tuned_options
from stages.shared.decoding.sentences import read_sentences
from stages.shared.decoding.systems import load
from stages.shared.environment import OtherWork, environment
from stages.shared.statistics import evenly_spaced
from stages.shared.tasks import TASKS


def run(inputs: BenchmarkInputs, config: BenchmarkConfig, context: StepContext) -> None:
    """Write `systems.json` (systems, searches and sentences), `records/benchmark.json` (timings) and tables for the report.

    Raises DataError for a search of an unknown system and for a test set without text, StageError if the engine of a search is
    not installed.
    """
    sentences = [sentence for sentence in read_sentences(inputs.text.path) if sentence.source.strip()]
    if not sentences:
        raise DataError(
            f"benchmark: expected a sentence to translate, got only blank ones in {inputs.text.path}; check the test set"
        )
    _check(inputs, config)
    matched = _matched_baselines(config)  # searches with equal recall are alike, whatever the sizes of their shortlists
    config = _with_measured_shortlists(config, inputs)
    chosen = [sentences[index] for index in evenly_spaced(len(sentences), config.sentences)]
    lines = [sentence.source for sentence in chosen]
    timings, machine = _measured(inputs, config, context, lines)
    figures = summarise(timings, config.baseline, _reference_entries(config))
    for entry in config.searches:
        files = (path for path in inputs.systems[_system_of(entry)].path.rglob("*") if path.is_file())
        figures[entry]["system_bytes"] = sum(path.stat().st_size for path in files)
    if config.memory:
        _add_memory(figures, inputs, config, context, lines)
    protocol = {
        "sentences": len(chosen), "rounds": config.rounds, "batch_size": config.batch_sizes[-1],
        "batch_sizes": list(config.batch_sizes), "baseline": config.baseline, "reference_entries": _reference_entries(config),
        "matched_baselines": matched,
    }  # fmt: skip
    record = {
        "protocol": protocol, "environment": machine, "entries": figures, "by_length": by_length(timings, config.baseline),
        "by_sentence": by_sentence(timings, config.baseline), "timings": [asdict(one) for one in timings],
    }  # fmt: skip
    context.write_json(context.records("benchmark.json"), record)
    _write_tables(record, len(sentences), timings, config, context)
    searches = {entry: search.values() for entry, search in config.searches.items()}
    ids = [sentence.id for sentence in chosen]
    context.write_json(context.directory / "systems.json", {"baseline": config.baseline, "searches": searches, "sentences": ids})


def _write_tables(
    record: dict[str, Any], test_sentences: int, timings: list[RoundTimings], config: BenchmarkConfig, context: Context
) -> None:
    protocol = record["protocol"]
    figures = record["entries"]
    task = TASKS[config.task]
    tables = {
        "benchmark": table(test_sentences, protocol, figures, task),
        "benchmark-references": reference_table(protocol, figures),
        "benchmark-lengths": length_table(record["by_length"], config.baseline, task),
        "parts": parts_table(timings),
    }
    for name, content in tables.items():
        if content is not None:
            context.write_json(context.records("tables", f"{name}.json"), content)


def _measured(
    inputs: BenchmarkInputs, config: BenchmarkConfig, context: Context, lines: list[str]
) -> tuple[list[RoundTimings], dict[str, Any]]:
    """The timings of all rounds, and the machine."""
    threads = context.resources.threads
    device = "cuda" if context.resources.gpus else "cpu"
    before = torch.get_num_threads()
    timings: list[RoundTimings] = []
    torch.set_num_threads(threads)
    try:
        machine = environment(device, threads, ctranslate2=any(search.uses_ctranslate2 for search in config.searches.values()))
        with ExitStack() as stack:
            entries = _load(inputs, config, device, threads, stack)
            other_work = OtherWork()
            for count, fresh in enumerate(measure(entries, lines, config.rounds, config.batch_sizes), 1):
                timings += fresh
                context.progress(count, config.rounds, "rounds")
            machine["other_processors"] = other_work.processors()
    finally:
        torch.set_num_threads(before)
    return timings, machine


def _system_of(entry: str) -> str:
    return entry.partition("/")[0]


def _reference_entries(config: BenchmarkConfig) -> list[str]:
    """The searches of the baseline's system, and those that run in CTranslate2."""
    system = _system_of(config.baseline)
    return [entry for entry, search in config.searches.items() if _system_of(entry) == system or search.uses_ctranslate2]


def _matched_baselines(config: BenchmarkConfig) -> dict[str, str | None]:
    """For each entry the search of the baseline's system with the same workload."""
    system = _system_of(config.baseline)
    own = {entry: search for entry, search in config.searches.items() if _system_of(entry) == system}
    return {entry: matched_baseline(search, own) for entry, search in config.searches.items()}


def _with_measured_shortlists(config: BenchmarkConfig, inputs: BenchmarkInputs) -> BenchmarkConfig:
    chosen = {entry: with_tuned_options(search, inputs.measured.get(entry)) for entry, search in config.searches.items()}
    return replace(config, searches=chosen)


def _add_memory(
    figures: dict[str, dict[str, Any]], inputs: BenchmarkInputs, config: BenchmarkConfig, context: Context, lines: list[str]
) -> None:
    longest = sized_batches(lines, config.batch_sizes[-1])[-1]
    device = "cuda" if context.resources.gpus else "cpu"
    for entry, search in config.searches.items():
        directory = inputs.systems[_system_of(entry)].path
        figures[entry]["memory_mib"] = peak_memory(directory, search.values(), longest, device, context.resources.threads)


def _check(inputs: BenchmarkInputs, config: BenchmarkConfig) -> None:
    """Raise the errors of `run` for systems, searches and baseline."""
    if missing := sorted({_system_of(entry) for entry in config.searches} - set(inputs.systems)):
        raise DataError(
            f"benchmark: expected systems among {sorted(inputs.systems)}, got {missing}; correct the names of the searches"
        )
    if config.baseline not in config.searches:
        raise DataError(f"benchmark.baseline: expected one of {sorted(config.searches)}, got {config.baseline!r}")
    for search in config.searches.values():
        check_engine(search)


def _load(inputs: BenchmarkInputs, config: BenchmarkConfig, device: str, threads: int, stack: ExitStack) -> dict[str, Translate]:
    """All entries; each system is loaded once. On a CPU CTranslate2 has processes of its own, which end with the stack."""
    systems = {name: load(inputs.systems[name], device) for name in dict.fromkeys(map(_system_of, config.searches))}
    found: dict[str, Translate] = {}
    for entry, search in config.searches.items():
        name = _system_of(entry)
        if device == "cpu" and search.uses_ctranslate2:
            rival = ctranslate2_translator(inputs.systems[name].path, systems[name], cast(StepwiseSearch, search), threads)
            found[entry] = stack.enter_context(rival)
        else:
            found[entry] = timed_translator(systems[name], search)
    return found
