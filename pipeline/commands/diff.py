"""`fewstep diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.commands.options import STORE, Json, StorePath
from pipeline.commands.output import print_json, print_table
from pipeline.run.compare import Difference, compare
from pipeline.run.run_directory import find_run

First = Annotated[str, typer.Argument(metavar="RUN", help="Run id or run directory.", show_default=False)]
Second = Annotated[str, typer.Argument(metavar="RUN", help="The run to compare it with.", show_default=False)]


def diff(first: First, second: Second, store: StorePath = STORE, as_json: Json = False) -> None:
    """Compare two runs: config, data, scores with their significance, and speed."""
    runs = find_run(store, first), find_run(store, second)
    found = compare(*runs)
    if as_json:
        print_json(found.to_json())
        return
    one, other = (str(run.spec["run_id"]) for run in runs)
    if one == other:  # runs of two stores
        one, other = first, second
    _print(found, one, other)


def _print(found: Difference, first: str, second: str) -> None:
    print_table(("config", first, second), found.config or [("no difference", "", "")])
    print()
    print_table(("data", first, second), found.data or [("no difference", "", "")])
    print()
    rows = [
        (
            pair.test, pair.entry, pair.metric, f"{pair.first:.2f}", f"{pair.second:.2f}", f"{pair.second - pair.first:+.2f}",
            "" if pair.p is None else f"{pair.p:.3f}",
        )
        for pair in found.scores
    ]  # fmt: skip
    print_table(("test", "system/search", "metric", first, second, "difference", "p"), rows or [("nothing in common",) + ("",) * 6])
    print()
    speed = [
        (pair.test, pair.entry, f"{pair.first:.2f}", f"{pair.second:.2f}", f"{pair.first / pair.second:.2f}x")
        for pair in found.speed
    ]
    print_table(("test", "system/search", f"{first} ms", f"{second} ms", "speed-up"), speed or [("nothing in common",) + ("",) * 4])
    if found.speed:
        print("the two runs were timed apart; compare speeds within one run to publish them")
