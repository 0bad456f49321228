"""Time systems against each other, interleaved in one process."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.search import SearchConfig
from stages.artifacts import System, Text, Timings
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class BenchmarkInputs:
    systems: dict[str, System]
    text: Text


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """The protocol."""

    searches: dict[str, SearchConfig]
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


STAGE: Stage[BenchmarkInputs, BenchmarkConfig, Timings] = Stage(
    name="benchmark", version=8, run=Implementation(__name__), output=Timings, exclusive=True
)
