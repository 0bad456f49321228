"""Cross-field validation: rules between the sections of a config. The rules of one object are its own (`problems`)."""

from __future__ import annotations

from collections.abc import Sequence

from fewstep.config.problems import KeyPath
from pipeline.config.checks.evaluation import evaluation_rules
from pipeline.config.checks.rules import overlap
from pipeline.config.checks.systems import system_rules
from pipeline.config.checks.text import text_rules
from pipeline.config.derived.seeds import seed_rules
from pipeline.config.errors import Complaint
from pipeline.config.schema import RunConfig


def check(config: RunConfig, pruned: Sequence[KeyPath]) -> list[Complaint]:
    """Return the broken rules, except for those that depend on an invalid value, which was taken out of the config (`pruned`)."""
    rules = (*text_rules(config), *system_rules(config, pruned), *evaluation_rules(config), *seed_rules(config))
    return [rule.complaint for rule in rules if not any(overlap(path, wrong) for path in rule.values for wrong in pruned)]
