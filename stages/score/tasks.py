"""What a task changes: how quality is measured, and the words for what is read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TaskName = Literal["translation", "summarization"]


@dataclass(frozen=True)
class Task:
    """One thing that systems can learn."""

    name: TaskName
    metric: str
    """What candidates of a training, systems and searches are compared by (`stages.score.metrics`)."""
    shown: tuple[str, ...]
    """Metrics that stand beside the speed of each entry."""
    unit: str
    """What one source is."""
    per_second: str
    """Head of a column of speeds."""
    outputs: str
    """What systems write."""

    @property
    def units(self) -> str:
        """Several sources."""
        return f"{self.unit}s"


TRANSLATION = Task("translation", "bleu", ("bleu", "chrf"), "sentence", "sent/s", "translations")
SUMMARIZATION = Task("summarization", "rougeL", ("rouge1", "rouge2", "rougeL"), "document", "doc/s", "summaries")
TASKS: dict[str, Task] = {task.name: task for task in (TRANSLATION, SUMMARIZATION)}
