"""Put everything that decoding needs into one directory."""

from __future__ import annotations

from dataclasses import dataclass

from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Trained, Vocabulary
from stages.stage import Stage, Work


@dataclass(frozen=True)
class SystemInputs:
    trained: Trained
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """What a system says of itself."""

    name: str
    """Name of the system."""
    family: str
    """Family of its network."""
    source_language: str
    """Language code of what it reads."""
    target_language: str
    """Language code of what it writes."""
    search: StepwiseSearch
    """Its default search."""


def run(inputs: SystemInputs, config: SystemConfig, work: Work) -> None: ...


STAGE = Stage(name="system", version=1, run=run, output=System)
