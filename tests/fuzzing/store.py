"""A small store with an artifact of every format that is read from elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from kernels import NgramModel, fast_align
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.manifest import Manifest
from stages.shared.shards import shard_path
from tests.kernels.candidate_tables import SMALL, build

ROWS = 300


def write_store(root: Path) -> Path:
    """Write the store, and return its folder."""
    store = Store(root)
    for number, write in enumerate((write_text, write_tokens, write_links, write_tables, write_ngram)):
        directory = store.directory("toy", f"{number:032x}")
        made = manifest(directory.name)
        partial = partial_directory(directory, made.attempt)
        partial.mkdir(parents=True)
        write(partial)
        store.commit(directory, made)
    return root


def manifest(fingerprint: str) -> Manifest:
    """Return the manifest of a step that was made by hand."""
    return Manifest(
        stage="toy", version=1, step="toy:a", fingerprint=fingerprint, config={"size": 3}, inputs={"text": "0" * 32},
        environment={}, code_digest="c", git_revision="g", run_id="r", attempt="1", seconds=1.0, finished=2.0,
    )  # fmt: skip


def _write_shard(directory: Path, **columns: pa.Array) -> None:
    table = pa.table({"id": np.arange(ROWS), **columns})
    shard_path(directory, 0).parent.mkdir()
    with pa.OSFile(str(shard_path(directory, 0)), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_text(directory: Path) -> None:
    """Write a shard of text with references."""
    lines = [f"zeile {number} über straße" * (number % 3) for number in range(ROWS)]
    _write_shard(directory, source=pa.array(lines), target=pa.array(lines), references=pa.array([[line, "x"] for line in lines]))


def write_tokens(directory: Path) -> None:
    """Write a shard of tokens."""
    rows = [list(range(number % 9)) for number in range(ROWS)]
    _write_shard(directory, source=pa.array(rows, pa.list_(pa.uint16())), target=pa.array(rows, pa.list_(pa.uint16())))


def write_links(directory: Path) -> None:
    """Write a shard of links, and an alignment model."""
    _write_shard(directory, forward=pa.array([[number % 4, -1] for number in range(ROWS)], pa.list_(pa.int16())))
    fast_align([(["a", "b", "c"], ["x", "y"]), (["b", "d"], ["z", "y"])]).model.save(directory / "forward.align")


def write_tables(directory: Path) -> None:
    """Write counts and candidate tables."""
    build([SMALL], directory)


def write_ngram(directory: Path) -> None:
    """Write an n-gram model."""
    NgramModel.estimate([["a", "b", "c"], ["b", "c"]], 3, discount_fallback=(0.5, 1.0, 1.5)).save(directory / "model.ngram")
