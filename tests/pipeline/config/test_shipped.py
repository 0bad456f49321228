"""The files of configs/, their schema, and the pages that are generated from the config's classes."""

import json
from pathlib import Path

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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_shipped_files_suit_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads((ROOT / "configs/schema.json").read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_shipped_configs_name_their_schema_for_editors(path: Path) -> None:
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("=")[2]).resolve() == ROOT / "configs/schema.json"


def test_the_schema_knows_short_forms_and_refuses_wrong_ones() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(config_docs.schema())
    text = {"corpus": {"train": {"source": "a", "target": ["b"]}, "test": {"x": {"tsv": "a"}}}}
    for search in ("greedy", ["greedy", {"beam": {"beam_size": 4}}], {"strategy": "beam"}):
        jsonschema.validate({**text, "teacher": {"from": "x"}, "systems": {"a": {"search": search}}}, schema)
    jsonschema.validate({"base": "b.yaml", "systems": {"a": None}}, schema)
    for bad in ({"corups": {}}, {"systems": {"a": {"search": "gredy"}}}, {"corpus": {"train": {"source": 3}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_headings_distinguish_the_forms_of_a_key() -> None:
    headings = [line.removeprefix("## ") for line in config_docs.documentation().splitlines() if line.startswith("## ")]
    assert {"`teacher` with `marian`", "`teacher` with `command`", "`systems.<name>` with `use`"} <= set(headings)
    assert {"`systems.<name>`, family `dag`", "`systems.<name>.search.<name>`, family `dag`"} <= set(headings)
    assert [heading for heading in set(headings) if headings.count(heading) > 1] == ["`distillation`"]


def test_generated_pages_are_up_to_date() -> None:
    """`make docs` writes them."""
    assert (ROOT / "docs/reference/config.md").read_text(encoding="utf-8") == config_docs.documentation()
    assert (ROOT / "configs/schema.json").read_text(encoding="utf-8") == config_docs.schema()
