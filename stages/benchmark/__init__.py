"""Compare the speed of systems in interleaved rounds in one process."""

from __future__ import annotations

from dataclasses import dataclass, field

from fewstep.config.search import SearchConfig
from stages.artifacts import System, Text, Timings, Tuned
from stages.shared.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class BenchmarkInputs:
    systems: dict[str, System]
    text: Text
    measured: dict[str, Tuned] = field(default_factory=dict)
    """Options that were chosen for searches whose shortlists follow from a recall, by entry."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """Protocol of the benchmark."""

    searches: dict[str, SearchConfig]
    """Searches by entry (`system/search`); the part before the slash is the name of the system."""
    baseline: str
    """Entry that the ratios refer to."""
    sentences: int = 100
    """Number of timed sentences, evenly spaced over the test set."""
    rounds: int = 3
    """Rounds in which all entries are timed; at least 2."""
    batch_sizes: tuple[int, ...] = (8, 32)
    """Sentences in a batch of the throughput measurements. Short tables show the last size."""
    memory: bool = True
    """Measure the peak memory of each entry in a separate process."""
    task: TaskName = "translation"
    """Task of the systems."""


STAGE: Stage[BenchmarkInputs, BenchmarkConfig, Timings] = Stage(
    name="benchmark", version=10, run=Implementation(__name__), output=Timings, exclusive=True
)
