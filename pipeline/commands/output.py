"""Print tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

COLORS = {"HIT": "green", "FETCH": "green", "MISS": "yellow"}


def print_json(value: object) -> None:
    """Print a value as indented JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows with colours and folding on a terminal, and in aligned columns elsewhere."""
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
