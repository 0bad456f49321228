"""A small store with an artifact of every format that is read from elsewhere, and copies of it whose files are mutated: manifests,
Arrow shards, alignment models, counts, candidate tables and n-gram models."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from kernels import NgramModel, fast_align
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.manifest import Manifest
from stages.artifacts import MANIFEST
from stages.errors import FewstepError
from stages.shared.shards import read_shard, shard_path
from tests.fuzzing.mutations import mutate
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


READ = (".align", ".arrow", ".bin", ".ngram", ".run")
"""Suffixes of files that are read without their manifest."""


class ArtifactTarget:
    """A copy of a store, of which one file is mutated at a time."""

    refusals: tuple[type[BaseException], ...] = (FewstepError, ValueError)

    def __init__(self, origin: Path, scratch: Path) -> None:
        self.store = Store(scratch)
        shutil.copytree(origin, scratch, dirs_exist_ok=True)
        found = (path for path in scratch.rglob("*") if path.is_file() and _artifact_of(path) is not None)
        self.files = sorted(path for path in found if path.name == MANIFEST or path.suffix in READ)
        self.contents = {path: path.read_bytes() for path in self.files}

    def trial(self, seed: int) -> str:
        """Read a mutated file: in a third of the trials after a comparison with the manifest."""
        draw = random.Random(seed)
        path, other = draw.choice(self.files), draw.choice(self.files)
        kind, changed = mutate(self.contents[path], self.contents[other], seed)
        path.write_bytes(changed)
        try:
            if path.name == MANIFEST or draw.random() < 0.33:
                self.store.verify(_artifact_of(path) or path.parent)
            if path.suffix in READ:
                read(path)
        finally:
            path.write_bytes(self.contents[path])
        return f"{path.suffix or path.name}: {kind}"


def _artifact_of(path: Path) -> Path | None:
    return next((parent for parent in path.parents if (parent / MANIFEST).exists()), None)


def read(path: Path) -> None:
    """Read everything in a file, as its users do."""
    from fewstep import CandidateTables, NgramModel, lattice_candidates
    from kernels.candidates import merge_candidates
    from kernels.fast_align.model import AlignmentModel

    if path.suffix == ".arrow":
        read_shard(path).to_pylist()
    elif path.suffix == ".align":
        model = AlignmentModel.load(path)
        model.align([(["a", "b"], ["c", "d", "e"])])
        for row in range(-1, 50):
            model.row(row)
    elif path.suffix == ".ngram":
        NgramModel.load(path).score(["a", "b", "c"])
    elif path.suffix == ".run":
        merge_candidates([path], path.with_suffix(".merged"))
    else:
        tables = CandidateTables.load(path)
        sources = [[7 + number % 20 for number in range(30)]]
        lattice_candidates(tables, sources, [30], num_slots=[min(60, tables.length_range(30, 3)[1])])
