"""Time systems against each other, interleaved in one process."""

from __future__ import annotations

from dataclasses import dataclass

from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Text, Timings
from stages.stage import Stage, Work


@dataclass(frozen=True)
class BenchmarkInputs:
    systems: dict[str, System]
    text: Text


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """The protocol."""

    searches: dict[str, StepwiseSearch]
    """Search of each entry of the table, by the entry's name (`system/search`); the part before the slash is the system."""
    baseline: str
    """Entry that the ratios refer to."""
    sentences: int = 100
    """Sentences timed, evenly spaced over the test set."""
    rounds: int = 3
    """Rounds in which all entries take their turn; at least 2."""
    batch_size: int = 32
    """Sentences in a batch of the throughput measurement."""


def run(inputs: BenchmarkInputs, config: BenchmarkConfig, work: Work) -> None: ...


STAGE = Stage(name="benchmark", version=1, run=run, output=Timings)
