"""`fewstep gc`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.commands.options import STORE, StorePath
from pipeline.commands.output import print_table
from pipeline.errors import DataError
from pipeline.store import garbage
from pipeline.store.artifacts import Store


def gc(
    store: StorePath = STORE,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; otherwise they are only listed.")] = False,
    shards: Annotated[
        bool, typer.Option("--shards", help="Include decoded shards, which save work when text is appended.")
    ] = False,
) -> None:
    """List artifacts that can be deleted: those that no run uses, and leftovers of crashes."""
    if not store.is_dir():
        raise DataError(f"{store}: expected the directory of a store, got none; name it with --store")
    found = (garbage.remove if delete else garbage.collect)(Store(store), shards=shards)
    print_table(("bytes", "path", "reason"), [(f"{item.bytes:,}", str(item.path), item.reason) for item in found])
    total = f"{sum(item.bytes for item in found) / 2**20:,.1f} MiB in {len(found)} places"
    print(f"{total} removed" if delete else f"{total} can be deleted; give --delete to delete them")
