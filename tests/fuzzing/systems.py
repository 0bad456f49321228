"""Mutated system directories: they are loaded and translate some lines, or are refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import fewstep
from fewstep.decoding import DecodingMemoryError
from tests.fuzzing.mutations import mutate

LINES = ["A man rides a red bicycle .", "", "two dogs", "ein hund läuft schnell"]
DAMAGED = "of the candidate tables is damaged; build them again"


class SystemTarget:
    """A copy of a system directory, of which one file is mutated at a time."""

    refusals: tuple[type[BaseException], ...] = (fewstep.BundleError, DecodingMemoryError)

    def __init__(self, origin: Path, scratch: Path) -> None:
        self.directory = scratch
        shutil.copytree(origin, scratch, dirs_exist_ok=True)
        self.files = sorted(path for path in scratch.rglob("*") if path.is_file())
        self.contents = {path: path.read_bytes() for path in self.files}

    def trial(self, seed: int) -> str:
        """Load and use the directory with one mutated file: in a third of the trials with a comparison of digests."""
        draw = random.Random(seed)
        descriptions = [path for path in self.files if path.suffix == ".json"]
        path, other = draw.choice(descriptions if draw.random() < 0.4 else self.files), draw.choice(self.files)
        kind, changed = mutate(self.contents[path], self.contents[other], seed)
        path.write_bytes(changed)
        try:
            system = fewstep.load(self.directory, verify=draw.random() < 0.33)
            self.use(system)
        finally:
            path.write_bytes(self.contents[path])
        return f"{path.relative_to(self.directory)}: {kind}"

    def use(self, system: fewstep.System) -> None:
        """Translate with all searches. A search that is not valid for the system is refused."""
        for search in system.searches.values():
            if any(system.problems(search)):
                continue
            try:
                system.translate(LINES, search, threads=1)
            except ValueError as error:
                if DAMAGED in str(error):  # tables are checked where they are read: loading them reads only their header
                    raise fewstep.BundleError(str(error)) from error
                raise
