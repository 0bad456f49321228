"""Load a config: read, expand, validate and check it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from fewstep.config.problems import KeyPath
from fewstep.config.search import SearchConfig, SystemParts
from models.family import family_named
from models.training.recipe import part
from pipeline.config.amount import resolve
from pipeline.config.checks.evaluation import evaluation_rules
from pipeline.config.checks.rules import overlap, placed
from pipeline.config.checks.systems import system_rules
from pipeline.config.checks.text import text_rules
from pipeline.config.errors import Complaint, complaints, report
from pipeline.config.expand import expand
from pipeline.config.files.bases import FILE_KEYS
from pipeline.config.files.yaml import read_config, read_value
from pipeline.config.schema import STRICT, RunConfig, WrittenConfig
from pipeline.config.searches import long_form
from pipeline.config.seeds import seed_rules
from pipeline.config.systems import TEACHER_FAMILY
from pipeline.config.tree import Node
from pipeline.errors import ConfigError


@cache
def adapter() -> TypeAdapter[WrittenConfig]:
    """Return pydantic's validator of a config, made on first use."""
    return TypeAdapter(WrittenConfig)


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, merge, expand and check a config. Raises ConfigError with all problems."""
    root, problems = read_config(path, overrides)
    return _build(expand(resolve(root, problems).root), problems)


def automatic_values(path: Path, overrides: Sequence[str] = ()) -> str:
    """Return the values `auto` of a valid config as a line of text with their resolutions; empty if it has none."""
    return resolve(read_config(path, overrides)[0], []).text()


def parse_search(text: str, where: str, family: str = TEACHER_FAMILY) -> SearchConfig:
    """Return a search of a family as a config writes it, such as `greedy` or `{beam: {beam_size: 4}}`, or by its derived label.

    Raises ConfigError that names `where`.
    """
    kind = family_named(family).search
    problems: list[str] = []
    value = read_value(text, where, problems)
    several = Node([long_form(kind, item) for item in (value.value if isinstance(value.value, list) else [value])], where, ())
    kinds: Any = tuple[kind, ...]  # type: ignore[valid-type]
    searches, found = _validate(several, TypeAdapter(kinds, config=STRICT), kinds)
    for search in searches or ():
        found += [rule.complaint for rule in placed((0,), search.problems(None, SystemParts()))]
    if found or problems:
        raise ConfigError([*problems, *report(found, several)])
    if searches is None or len(searches) != 1:
        raise ConfigError([f"{where}: expected one search, got {len(several.value)}"])
    return cast(SearchConfig, searches[0])


def resolved(config: RunConfig) -> dict[str, Any]:
    """Return the config as JSON-like values, which load back to an equal config."""
    written = WrittenConfig(**{f.name: getattr(config, f.name) for f in fields(RunConfig)})
    values: dict[str, Any] = adapter().dump_python(written, mode="json", by_alias=True)
    return {key: value for key, value in values.items() if key not in (*FILE_KEYS, "defaults")}


def _build(root: Node, problems: Sequence[str]) -> RunConfig:
    config, found = _validate(root, adapter(), WrittenConfig)
    pruned: list[KeyPath] = [complaint.path for complaint in found]
    for _ in range(3):  # Invalid values are removed so that the others can be checked in the same pass.
        if config is not None:
            break
        rest = root.without(*pruned) if all(pruned) else root.with_value({})
        config, more = _validate(rest, adapter(), WrittenConfig)
        pruned.extend(complaint.path for complaint in more)
    if config is not None:
        found.extend(check(config, pruned))
    if found or problems:
        raise ConfigError([*problems, *report(found, root)])
    assert config is not None
    return part(config, RunConfig)


def _validate(root: Node, validator: TypeAdapter[Any], kind: Any) -> tuple[Any, list[Complaint]]:
    try:
        return validator.validate_json(json.dumps(root.plain())), []
    except ValidationError as error:
        return None, complaints(error.errors(include_url=False), kind)


def check(config: RunConfig, pruned: Sequence[KeyPath]) -> list[Complaint]:
    """Return the broken rules, except for those that depend on an invalid value, which was taken out of the config (`pruned`)."""
    rules = (*text_rules(config), *system_rules(config, pruned), *evaluation_rules(config), *seed_rules(config))
    return [rule.complaint for rule in rules if not any(overlap(path, wrong) for path in rule.values for wrong in pruned)]
