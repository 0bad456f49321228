"""Choose the length penalty of a search by what it scores on the validation text."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.search import SearchConfig
from stages.artifacts import System, Text, Tuned
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class TuneInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """What is tried, and how it is compared."""

    search: SearchConfig
    """The search, which penalises length; its own length penalty is not read."""
    length_penalties: tuple[float, ...]
    """Length penalties to try; of equally good ones the first is taken."""
    target_language: str
    """Language code of the hypotheses; chooses the tokeniser."""
    task: TaskName = "translation"
    """What is learnt; chooses the metric."""
    tokenizer: str = "auto"
    """sacreBLEU tokeniser; auto follows the target language."""
    lowercase: bool = False
    """Compare without case?"""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


STAGE: Stage[TuneInputs, TuneConfig, Tuned] = Stage(
    name="tune", version=2, run=Implementation(__name__), output=Tuned, distributes=True
)
