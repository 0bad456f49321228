"""Print tables, JSON and warnings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from fewstep.text.escape import escaped, escaped_line
from pipeline.run.origins import provenance

COLORS = {"HIT": "green", "FETCH": "green", "MISS": "yellow"}
ORIGINS_SHOWN = 5
"""Number of origins in a message."""


def print_json(value: object) -> None:
    """Print a value as indented JSON on standard output."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    print(text if escaped(text) == text else json.dumps(value, indent=1))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows with colours and folding on a terminal, and in aligned columns elsewhere."""
    rows = [[escaped_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        for row in (header, *rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row))
    Console().print(table)


def warn_of_unknown_licences(directories: Iterable[Path]) -> None:
    """Print a warning if one of these systems was made from text or networks whose licence is unknown, or if its manifests do not
    state it."""
    found = [provenance(directory) for directory in directories]
    unknown = sorted({origin for one in found for origin in one.unlicensed})
    if unknown:
        more = f" and {len(unknown) - ORIGINS_SHOWN} more" if len(unknown) > ORIGINS_SHOWN else ""
        _warn(f"it was made from files whose licence is unknown: {', '.join(unknown[:ORIGINS_SHOWN])}{more}")
    if not all(one.complete for one in found):
        _warn("the store does not have the manifests of all steps that made it, so the licences of its text are unknown")


def _warn(problem: str) -> None:
    remedy = "find out the terms before you pass it on (docs/guide/data.md#licences)"
    print(escaped(f"warning: {problem}; {remedy}"), file=sys.stderr)
