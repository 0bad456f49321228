"""The files of configs/, their schema, and the pages that are generated from the config's classes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config import docs as config_docs
from pipeline.config.load import load_config
from tests.pipeline.config.config_text import ROOT

PARTS = ("cluster", "corpora", "settings", "systems")
"""Folders of files that others extend."""
FILES = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.name != "runtime-env.yaml")
SHIPPED = [path for path in FILES if path.parent.name not in PARTS]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_shipped_configs_load(path: Path) -> None:
    load_config(path, ["corpus.pairs=29000"])  # no file has to be counted


def validator() -> Any:
    """Return a validator of the schema; building it takes longer than validating a file."""
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(json.loads(config_docs.schema()))


def test_shipped_files_suit_the_schema_that_they_name_for_editors() -> None:
    check = validator()
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        errors = [error.message for error in check.iter_errors(yaml.safe_load(text))]
        assert not errors, f"{path}: {errors}"
        first = text.splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema="), path
        assert (path.parent / first.partition("=")[2]).resolve() == ROOT / "configs/schema.json", path


def test_the_schema_knows_short_forms_and_refuses_wrong_ones() -> None:
    check = validator()
    text = {"corpus": {"train": {"source": "a", "target": ["b"]}, "test": {"x": {"tsv": "a"}}}}
    for search in ("greedy", ["greedy", {"beam": {"beam_size": 4}}], {"strategy": "beam"}):
        check.validate({**text, "teacher": {"from": "x"}, "systems": {"a": {"search": search}}})
    check.validate({"base": "b.yaml", "systems": {"a": None}})
    for bad in ({"corups": {}}, {"systems": {"a": {"search": "gredy"}}}, {"corpus": {"train": {"source": 3}}}):
        assert not check.is_valid(bad)


def test_headings_distinguish_the_forms_of_a_key() -> None:
    headings = [line.removeprefix("## ") for line in config_docs.documentation().splitlines() if line.startswith("## ")]
    assert {"`teacher` with `marian`", "`teacher` with `command`", "`systems.<name>` with `use`"} <= set(headings)
    assert {"`systems.<name>`, family `dag`", "`systems.<name>.search.<name>`, family `dag`"} <= set(headings)
    assert [heading for heading in set(headings) if headings.count(heading) > 1] == ["`distillation`"]


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` writes them."""
    assert (ROOT / "docs/reference/config.md").read_text(encoding="utf-8") == config_docs.documentation()
