"""Mutated artifacts: manifests, Arrow shards, alignment models, counts, candidate tables and n-gram models."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from pipeline.store.artifacts import Store
from stages.artifacts import MANIFEST
from stages.errors import FewstepError
from stages.shared.shards import read_shard
from tests.fuzzing.mutations import mutate

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
