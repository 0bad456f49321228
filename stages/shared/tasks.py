"""The tasks of systems, with their metrics and the words of reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.training.config import TrainingConfig

TaskName = Literal["translation", "summarization"]


@dataclass(frozen=True)
class Task:
    """A task that systems are trained for."""

    name: TaskName
    metric: str
    """Metric that compares candidates of a training, systems and searches (`stages.shared.scoring.metrics`)."""
    shown: tuple[str, ...]
    """Metrics in the main table of results."""
    unit: str
    """Word for a source."""
    per_second: str
    """Head of the column of throughput."""
    outputs: str
    """Word for outputs, in the plural."""

    @property
    def units(self) -> str:
        """Word for sources, in the plural."""
        return f"{self.unit}s"


TRANSLATION = Task("translation", "bleu", ("bleu", "chrf"), "sentence", "sent/s", "translations")
SUMMARIZATION = Task("summarization", "rougeL", ("rouge1", "rouge2", "rougeL"), "document", "doc/s", "summaries")
TASKS: dict[str, Task] = {task.name: task for task in (TRANSLATION, SUMMARIZATION)}


def validation_quality(recipe: TrainingConfig, task: TaskName) -> str:
    """Return the name of the metric of decoded validation outputs in a training: the task's, or tokens a pass for a drafter."""
    return "tokens_per_pass" if recipe.validation_metric == "tokens_per_pass" else TASKS[task].metric
