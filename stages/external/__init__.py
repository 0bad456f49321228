"""Translate the training source with a program of the user: distillation from a teacher outside this project."""

from __future__ import annotations

from dataclasses import dataclass, field

from stages.artifacts import ExternalFile, Text
from stages.stage import OPERATIONAL, Implementation, Stage


@dataclass(frozen=True)
class ExternalInputs:
    text: Text
    files: tuple[ExternalFile, ...]
    """Files of the program, which are linked into its working directory."""


@dataclass(frozen=True, kw_only=True)
class ExternalConfig:
    """A program that reads source lines and writes one translation for each."""

    command: tuple[str, ...]
    """Program and arguments."""
    version: str
    """Version of the program and its models."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the program sees."""
    shards_per_process: int = field(default=16, metadata=OPERATIONAL)
    """Shards that one process translates."""
    timeout_seconds: float = field(default=1800.0, metadata=OPERATIONAL)
    """Seconds without a line after which the process is killed."""


STAGE: Stage[ExternalInputs, ExternalConfig, Text] = Stage(
    name="external", version=1, run=Implementation(__name__), output=Text, distributes=True
)
