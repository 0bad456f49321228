"""Parts of the report that stages write of their own artifacts: results, tables and figures.

The report shows the part of each stage that has a module `report` with a function `show`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from stages.artifacts import Artifact
from stages.shared.figures.drawing import Colours, Drawing, Figure, Panel

Json = dict[str, Any]

Artifacts = Mapping[str, Mapping[str, Artifact]]
"""Artifacts of a stage by text and system, or by text and entry `system/search` where they depend on the search. The text is empty
for a stage that reads none."""


@dataclass(frozen=True)
class Table:
    """A table, whose first `text_columns` columns hold text and the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text_columns: int = 1


@dataclass(frozen=True)
class Part:
    """The part of the report that a stage gives."""

    results: Json = field(default_factory=dict)
    """Entries of `analyses` in `results.json`. They are deterministic; empty ones are left out."""
    metrics: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """Metrics by text and system, each with `score` and `signature`, which all rows of the system have."""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    sections: Mapping[str, Sequence[Figure]] = field(default_factory=dict)
    """Figures with a section of their own, by heading."""


def part_of(stage: str, artifacts: Artifacts, colours: Colours) -> Part:
    """Return the part of a stage, from `show(artifacts, colours)` of `stages.<stage>.report`.

    The module is imported when it is called, since the report imports no other stage.
    """
    part: Part = import_module(f"stages.{stage}.report").show(artifacts, colours)
    return part


def read(artifacts: Artifacts, name: str) -> dict[str, dict[str, Json]]:
    """Return the content of the JSON file `name` by text and system or entry, without artifacts that do not have it."""
    found = {
        text: {key: read_json(path) for key, artifact in group.items() if (path := artifact.path / name).is_file()}
        for text, group in artifacts.items()
    }
    return {text: group for text, group in found.items() if group}


def read_json(path: Path) -> Json:
    """Return the content of a JSON file."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def recorded_tables(artifact: Artifact) -> Iterator[Table]:
    """Yield the tables in the records of an artifact: `tables/*.json` with title, columns, rows and an optional caption."""
    for path in sorted(artifact.records.glob("tables/*.json")):
        yield Table(**read_json(path))


def recorded_figures(artifact: Artifact, prefix: str = "") -> Iterator[Figure]:
    """Yield the figures in the records of an artifact, `figures/*.svg` with an optional caption in the JSON file of this name.

    `prefix` is put before their names.
    """
    for path in sorted(artifact.records.glob("figures/*.svg")):
        described = path.with_suffix(".json")
        caption = str(read_json(described)["caption"]) if described.is_file() else path.stem
        panel = Panel(caption.partition(". ")[0], path.read_text(encoding="utf-8"))
        yield Figure(f"{prefix}{path.stem}", Drawing((panel,)), caption, "page")


def share(part: float, whole: float, digits: int = 1) -> str:
    """Return a part of a whole in per cent for a table; a dash if there is no whole."""
    return number(100 * part / whole if whole else None, digits)


def number(value: float | None, digits: int) -> str:
    """Return a number for a table; a missing one is a dash."""
    return "-" if value is None else f"{value:,.{digits}f}"
