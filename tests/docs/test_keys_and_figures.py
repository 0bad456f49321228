"""Keys and figures that pages name exist."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.docs import schema
from tests.docs.pages import PAGES, ROOT, name, prose

# ---- keys


METHODS = [page for page in PAGES if name(page).startswith("docs/methods/")]


def properties(schema: Any) -> Iterator[str]:
    """Yield the keys of all sections of a schema."""
    values = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield from schema["properties"]
    for value in values:
        yield from properties(value)


KEYS = frozenset(properties(json.loads(schema())))


def named(text: str) -> Iterator[str]:
    """Yield the keys in the first column of tables of keys, and those of options such as `glancing: none`."""
    in_table = False
    for line in text.splitlines():
        first = line.split("|")[1].strip() if line.startswith("|") else ""
        in_table = bool(first) and (in_table or first.split()[0] == "key")
        options = re.findall(r"`([a-z]\w*): [^`]*`", line)
        cells = re.findall(r"`([^`]+)`", first) if in_table else []
        yield from options + [cell.partition(":")[0].rpartition(".")[2] for cell in cells]


@pytest.mark.parametrize("page", METHODS, ids=name)
def test_keys_on_the_pages_of_methods_exist(page: Path) -> None:
    assert set(named(prose(page))) <= KEYS


def test_a_key_that_no_config_has_is_found() -> None:
    text = (
        "| key of a search | effect |\n|---|---|\n| `beam_size`, `prefix` | x |\n\n| word | y |\n|---|---|\n| `z` | `sampled: 1` |"
    )
    assert set(named(text)) - KEYS == {"prefix", "sampled"}


# ---- figures


FIGURES = ROOT / "docs/methods/figures"


def test_figures_of_methods_are_those_that_the_program_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FIGURES / "draw.py"), str(tmp_path)], check=True)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
