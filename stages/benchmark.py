"""Time systems against each other, interleaved in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from stages.artifacts import System, Text, Timings
from stages.errors import DataError
from stages.families import Search
from stages.stage import Stage, Work
from stages.tasks import TASKS, TaskName

if TYPE_CHECKING:
    import models.system
    from stages.timing import Translate


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
    batch_size: int = 32
    """Sentences in a batch of the throughput measurement."""
    task: TaskName = "translation"
    """What the systems do."""


def run(inputs: BenchmarkInputs, config: BenchmarkConfig, work: Work) -> None:
    """Write `systems.json` (what was timed), `records/benchmark.json` (the figures) and a table for the report.

    Raises DataError for a search of a system that is not there and for a test set without text.
    """
    import torch

    from stages.sentences import read_sentences
    from stages.timing import environment, evenly_spaced, measure, summarise, table

    sentences = [sentence for sentence in read_sentences(inputs.text.path) if sentence.source.strip()]
    if not sentences:
        raise DataError(f"benchmark: expected a sentence to translate, got none in {inputs.text.path}")
    chosen = [sentences[index] for index in evenly_spaced(len(sentences), config.sentences)]
    threads, device = work.resources.threads, "cuda" if work.resources.gpus else "cpu"
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        where = environment(device, threads)
        turns = []
        lines = [sentence.source for sentence in chosen]
        for count, fresh in enumerate(measure(_load(inputs, config, device), lines, config.rounds, config.batch_size), 1):
            turns += fresh
            work.progress(count, config.rounds, "rounds")
    finally:
        torch.set_num_threads(before)
    figures = summarise(turns, config.baseline)
    protocol = {"sentences": len(chosen), "rounds": config.rounds, "batch_size": config.batch_size, "baseline": config.baseline}
    record = {"protocol": protocol, "environment": where, "entries": figures, "turns": [asdict(turn) for turn in turns]}
    work.write_json(work.records("benchmark.json"), record)
    work.write_json(work.records("tables", "benchmark.json"), table(len(sentences), protocol, figures, TASKS[config.task]))
    searches = {entry: asdict(search) for entry, search in config.searches.items()}
    ids = [sentence.id for sentence in chosen]
    work.write_json(work.directory / "systems.json", {"baseline": config.baseline, "searches": searches, "sentences": ids})


def _load(inputs: BenchmarkInputs, config: BenchmarkConfig, device: str) -> dict[str, Translate]:
    """All entries, each system loaded once."""
    from stages.decoding import load

    names = {entry: entry.partition("/")[0] for entry in config.searches}
    if missing := sorted(set(names.values()) - set(inputs.systems)):
        raise DataError(f"benchmark: expected systems among {sorted(inputs.systems)}, got {missing}")
    if config.baseline not in names:
        raise DataError(f"benchmark.baseline: expected one of {sorted(names)}, got {config.baseline!r}")
    systems = {name: load(inputs.systems[name], device) for name in dict.fromkeys(names.values())}
    return {entry: entrant(systems[names[entry]], search) for entry, search in config.searches.items()}


def entrant(system: models.system.System, search: Search) -> Translate:
    """A loaded system with one search, from lines to text as one batch."""
    from stages.timing import Output

    def translate(lines: Sequence[str]) -> Output:
        decoder = system.decoder
        best = [ranked[0] for ranked in decoder.decode(decoder.prepare(system.encode(lines), search), search)]
        system.decode_ids([hypothesis.ids for hypothesis in best])
        return Output(sum(len(hypothesis.ids) for hypothesis in best), sum(hypothesis.steps for hypothesis in best))

    return translate


STAGE = Stage(name="benchmark", version=3, run=run, output=Timings, exclusive=True)
