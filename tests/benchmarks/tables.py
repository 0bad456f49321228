"""A small table of measurements."""

from typing import Any

from benchmarks.record import Table


def example(**changes: Any) -> Table:
    """Return a table with all fields of its origin, but for `changes`."""
    fields: dict[str, Any] = {
        "section": "Speed",
        "explanation": "The speed of systems.",
        "columns": ("system", "speed"),
        "rows": (("a", "1"),),
        "shown": None,
        "command": "python -m benchmarks.x",
        "commit": "abc1234",
        "machine": "2 cores",
        "versions": {"torch": "2.0"},
        "seed": 1,
        "rounds": (5, 7),
        "spread": "1 %",
        "note": None,
        "figures": None,
    }
    return Table(**{**fields, **changes})
