"""What no single field can tell: rules between the parts of a config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config.problems import Complaint
from pipeline.config.rules_drafting import verifiers
from pipeline.config.rules_evaluation import analyses, minima, names
from pipeline.config.rules_systems import systems, teacher
from pipeline.config.rules_text import corpus, counts, mirror
from pipeline.config.tree import Path

if TYPE_CHECKING:
    from pipeline.config.schema import RunConfig

PARTS = (corpus, counts, teacher, systems, verifiers, names, minima, analyses, mirror)


def check(config: RunConfig, pruned: Sequence[Path]) -> list[Complaint]:
    """All broken rules, save those that rest on a value which was wrong by itself (`pruned`) and was taken out."""
    rules = (rule for part in PARTS for rule in part(config))
    return [rule.complaint for rule in rules if not any(_touch(path, wrong) for path in rule.values for wrong in pruned)]


def _touch(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
