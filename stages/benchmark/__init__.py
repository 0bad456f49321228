"""Time systems against each other, interleaved in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Text, Timings
from stages.benchmark.matched_baseline import peer
from stages.decoding.ctranslate2 import check_engine, foreign
from stages.errors import DataError
from stages.families import Search
from stages.score.tasks import TASKS, TaskName
from stages.stage import Stage, Work

if TYPE_CHECKING:
    import models.bundle.system
    from stages.benchmark.timing import Translate, Turn


@dataclass(frozen=True)
class BenchmarkInputs:
    systems: dict[str, System]
    text: Text


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """The protocol."""

    searches: dict[str, Search]
    """Search of each entry of the table, by the entry's name (`system/search`); the part before the slash is the system."""
    baseline: str
    """Entry that the ratios refer to."""
    sentences: int = 100
    """Sentences timed, evenly spaced over the test set."""
    rounds: int = 3
    """Rounds in which all entries take their turn; at least 2."""
    batch_sizes: tuple[int, ...] = (8, 32)
    """Sentences in a batch of the throughput measurements, of which the last is the one that short tables show."""
    memory: bool = True
    """Also the peak memory of each entry, in a process of its own?"""
    task: TaskName = "translation"
    """What the systems do."""


def run(inputs: BenchmarkInputs, config: BenchmarkConfig, work: Work) -> None:
    """Write `systems.json` (what was timed), `records/benchmark.json` (the figures) and tables for the report.

    Raises DataError for a search of a system that is not there and for a test set without text, StageError where the engine of a
    search is not installed.
    """
    from stages.benchmark.tables import length_table, table, table_of_parts, yardstick_table
    from stages.benchmark.timing import by_length, by_sentence, evenly_spaced, summarise
    from stages.decoding.sentences import read_sentences

    sentences = [sentence for sentence in read_sentences(inputs.text.path) if sentence.source.strip()]
    if not sentences:
        raise DataError(f"benchmark: expected a sentence to translate, got none in {inputs.text.path}")
    _check(inputs, config)
    chosen = [sentences[index] for index in evenly_spaced(len(sentences), config.sentences)]
    lines = [sentence.source for sentence in chosen]
    turns, where = _measured(inputs, config, work, lines)
    figures = summarise(turns, config.baseline, _yardsticks(config))
    if config.memory:
        _add_memory(figures, inputs, config, work, lines)
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
    work.write_json(work.records("benchmark.json"), record)
    work.write_json(work.records("tables", "benchmark.json"), table(len(sentences), protocol, figures, task))
    work.write_json(work.records("tables", "benchmark-yardsticks.json"), yardstick_table(protocol, figures))
    work.write_json(work.records("tables", "benchmark-lengths.json"), length_table(lengths, config.baseline, task))
    if (parts := table_of_parts(turns)) is not None:
        work.write_json(work.records("tables", "parts.json"), parts)
    searches = {entry: asdict(search) for entry, search in config.searches.items()}
    ids = [sentence.id for sentence in chosen]
    work.write_json(work.directory / "systems.json", {"baseline": config.baseline, "searches": searches, "sentences": ids})


def _measured(inputs: BenchmarkInputs, config: BenchmarkConfig, work: Work, lines: list[str]) -> tuple[list[Turn], dict[str, Any]]:
    """All turns, and where they were taken."""
    import torch

    from stages.benchmark.timing import environment, measure

    threads, device = work.resources.threads, "cuda" if work.resources.gpus else "cpu"
    before, turns = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        where = environment(device, threads, ctranslate2=any(map(foreign, config.searches.values())))
        rounds = measure(_load(inputs, config, device), lines, config.rounds, config.batch_sizes)
        for count, fresh in enumerate(rounds, 1):
            turns += fresh
            work.progress(count, config.rounds, "rounds")
    finally:
        torch.set_num_threads(before)
    return turns, where


def _yardsticks(config: BenchmarkConfig) -> list[str]:
    """The baseline, the other searches of its system, and what CTranslate2 decodes."""
    system = config.baseline.partition("/")[0]
    return [entry for entry, search in config.searches.items() if entry.partition("/")[0] == system or foreign(search)]


def _peers(config: BenchmarkConfig) -> dict[str, str | None]:
    """Of each entry the search of the baseline's system that it is compared with like for like."""
    system = config.baseline.partition("/")[0]
    own = {entry: search for entry, search in config.searches.items() if entry.partition("/")[0] == system}
    return {entry: peer(search, own) for entry, search in config.searches.items()}


def _add_memory(
    figures: dict[str, dict[str, Any]], inputs: BenchmarkInputs, config: BenchmarkConfig, work: Work, lines: list[str]
) -> None:
    from stages.benchmark.peak_memory import peak_memory
    from stages.benchmark.timing import batches

    longest = batches(lines, config.batch_sizes[-1])[-1]
    device = "cuda" if work.resources.gpus else "cpu"
    for entry, search in config.searches.items():
        directory = inputs.systems[entry.partition("/")[0]].path
        figures[entry]["memory_mib"] = peak_memory(directory, asdict(search), longest, device, work.resources.threads)


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
    from stages.decoding.driver import load

    names = {entry: entry.partition("/")[0] for entry in config.searches}
    systems = {name: load(inputs.systems[name], device) for name in dict.fromkeys(names.values())}
    return {entry: entrant(systems[names[entry]], search) for entry, search in config.searches.items()}


def entrant(system: models.bundle.system.System, search: Search) -> Translate:
    """A loaded system with one search, from lines to text as one batch. CTranslate2 is timed as others use it, without another
    pass for scores."""
    from stages.benchmark.timing import Output

    search = replace(search, rescore=False) if isinstance(search, StepwiseSearch) else search
    clock = time.perf_counter

    def translate(lines: Sequence[str]) -> Output:
        began, decoder = clock(), system.decoder
        before = seconds(decoder)
        sources = system.encode(lines)
        encoded = clock()
        best = [ranked[0] for ranked in decoder.decode(decoder.prepare(sources, search), search)]
        decoded = clock()
        system.decode_ids([hypothesis.ids for hypothesis in best])
        return Output(
            sum(len(hypothesis.ids) for hypothesis in best),
            sum(hypothesis.steps for hypothesis in best),
            sum(len(source) for source in sources),
            encoded - began,
            clock() - decoded,
            spent(decoder, before),
        )

    return translate


def seconds(decoder: Any) -> dict[str, float]:
    """What a decoder's parts have taken so far, where it tells of them."""
    record = getattr(decoder, "record", None)
    return {} if record is None else dict(record.seconds)


def spent(decoder: Any, before: dict[str, float]) -> dict[str, float]:
    """And since then."""
    return {part: value - before.get(part, 0.0) for part, value in seconds(decoder).items()}


STAGE = Stage(name="benchmark", version=7, run=run, output=Timings, exclusive=True)
