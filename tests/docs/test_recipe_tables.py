"""The tables of papers' settings hold the values of the resolved configs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.config.load import load_config, resolved

METHODS = Path(__file__).resolve().parents[2] / "docs/methods"
HEADING = "### Settings of the paper, the authors' code and the recipe"
PAGES = sorted(path.stem for path in METHODS.glob("*.md") if HEADING in path.read_text(encoding="utf-8"))
DECIDED = {"initial_weights", "label_smoothing", "num_averaged"}
"""Settings that every recipe states a reason or a source for."""


def tables(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the config that each table of a page is about, with the recipe's values by key."""
    for part in (METHODS / f"{page}.md").read_text(encoding="utf-8").split(HEADING)[1:]:
        link = re.search(r"\]\(\.\./\.\./(configs/papers/[\w./-]+\.yaml)\)", part)
        assert link is not None
        lines = part[: part.index("\n#")].splitlines()
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
        yield link[1], {row[0].strip("`"): row[3].strip("`") for row in cells}


def value(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


def test_the_methods_of_papers_have_a_table() -> None:
    assert PAGES == ["aggressive", "dag", "double-token", "interleaved", "lattice"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_hold_the_values_of_the_resolved_config(page: str) -> None:
    for config, stated in tables(page):
        found: Mapping[str, Any] = resolved(load_config(METHODS.parents[1] / config))
        assert len(stated) >= 10
        assert {key: value(found, key) for key in stated} == {key: yaml.safe_load(text) for key, text in stated.items()}


@pytest.mark.parametrize("page", PAGES)
def test_tables_name_initial_weights_smoothing_and_averaging(page: str) -> None:
    for _, stated in tables(page):
        assert {key.rpartition(".")[2] for key in stated} >= DECIDED - (
            {"label_smoothing", "num_averaged"} if page == "aggressive" else set()
        )
