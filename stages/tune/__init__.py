"""Choose options of a search on the validation text: the length penalty by its score, and the size of a shortlist by its recall."""

from __future__ import annotations

from dataclasses import dataclass

from fewstep.config.search import SearchConfig
from stages.artifacts import System, Text, Tuned
from stages.shared.scoring.options import ComparisonOptions
from stages.shared.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class TuneInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class TuneConfig(ComparisonOptions):
    """The search, candidate length penalties, and the metric that compares them."""

    search: SearchConfig
    """A search with a length penalty, which is replaced by the candidates, or with a shortlist whose size follows from a recall."""
    length_penalties: tuple[float, ...]
    """Candidates. The first of the best ones is chosen. Empty: the penalty stays."""
    target_language: str
    """Language code of the hypotheses; determines the tokeniser."""
    task: TaskName = "translation"
    """Task of the system; determines the metric."""
    tokenized: bool = False
    """Compare by BLEU of the tokens of Moses in place of BLEU."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch, EOS included."""


STAGE: Stage[TuneInputs, TuneConfig, Tuned] = Stage(
    name="tune", version=2, run=Implementation(__name__), output=Tuned, distributes=True
)
