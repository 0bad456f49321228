"""Tables of measurements, each a JSON file that names where its figures come from.

A program of this folder writes its table with `--json FILE`. The tables of docs/results.md are the files below benchmarks/results,
so `--json benchmarks/results/NAME.json` replaces one and `make results` shows it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from benchmarks.origin import command, commit, machine, versions
from stages.report.page.markdown import table as markdown

ORIGIN = ("command", "commit", "machine", "versions", "seed", "rounds", "spread")
"""Fields of a table that name where its figures come from. A field that was not recorded is null, and the note gives the reason."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Table:
    """A table of measurements. All keys are required; unknown ones are refused."""

    section: str
    """The heading of the page. Tables that follow each other with the same heading share it."""
    explanation: str
    """A sentence on how to read the figures."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells [rows, columns] as text. The first cell of a row is its name."""
    shown: tuple[str, ...] | None
    """Names of the rows on the page; null for all."""
    command: str | None
    commit: str | None
    machine: str | None
    versions: dict[str, str] | None
    seed: int | None
    rounds: tuple[int, ...] | None
    """The rounds of each run."""
    spread: str | None
    """The variation of the figures over rounds or runs, or the name of the column that has it."""
    note: str | None
    figures: Any
    """Further figures of the run, such as all single times, in the program's own form; null if they were not kept."""

    def __post_init__(self) -> None:
        """Raise ValueError for rows of another length, for unknown names in `shown`, and for a missing origin without a note."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row[:1]}: expected {len(self.columns)} cells, one a column, found {len(row)}")
        if unknown := set(self.shown or ()) - {row[0] for row in self.rows}:
            raise ValueError(f"shown: expected names of rows, found {sorted(unknown)}")
        missing = [name for name in ORIGIN if getattr(self, name) is None]
        if missing and not self.note:
            raise ValueError(f"{', '.join(missing)}: expected a value, found null; record it, or give the reason in `note`")

    @property
    def visible(self) -> list[tuple[str, ...]]:
        """The rows of the page."""
        return [row for row in self.rows if self.shown is None or row[0] in self.shown]


def load(path: Path) -> Table:
    """Read a table; raise ValueError if a key is missing, unknown or of another type."""
    try:
        return TypeAdapter(Table).validate_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save(path: Path, table: Table) -> None:
    """Write a table as JSON, a row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = ",\n".join(f" {json.dumps(name)}: {_json(name, value)}" for name, value in asdict(table).items())
    path.write_text(f"{{\n{keys}\n}}\n", encoding="utf-8")


def publish(
    arguments: argparse.Namespace,
    *,
    section: str,
    explanation: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    seed: int | None,
    rounds: int | None,
    spread: str | None,
    note: str | None = None,
    figures: Any = None,
) -> None:
    """Print a table as Markdown and write it to `arguments.json` if that is given, with the origin of its figures.

    A file that is replaced keeps its selection of rows if they still exist.
    """
    print(markdown(columns, rows, 1))
    if arguments.json is None:
        return
    revision = commit()
    if revision is None:
        note = f"{note or ''} The commit is not known: the program did not run in a git checkout.".lstrip()
    made = Table(
        section=section,
        explanation=explanation,
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        shown=_selection(arguments.json, [row[0] for row in rows]),
        command=command(),
        commit=revision,
        machine=machine(),
        versions=versions(),
        seed=seed,
        rounds=None if rounds is None else (rounds,),
        spread=spread,
        note=note,
        figures=figures,
    )
    save(arguments.json, made)


def spread(samples: Iterable[Sequence[float]]) -> str:
    """Return the widest range of measured values relative to their median, over all samples."""
    ratios = [value / statistics.median(sample) for sample in samples for value in sample]
    return f"rounds are {min(ratios):.0%} to {max(ratios):.0%} of their medians"


def _selection(path: Path, names: Sequence[str]) -> tuple[str, ...] | None:
    shown = load(path).shown if path.exists() else None
    return shown if shown and set(shown) <= set(names) else None


def _json(name: str, value: Any) -> str:
    if name != "rows":
        return json.dumps(value, ensure_ascii=False, default=str)
    return "[\n" + ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value) + "\n ]"
