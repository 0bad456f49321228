"""Mutated system directories: they are loaded and translate some lines, or are refused."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fewstep
from fewstep.config.search import SearchConfig
from fewstep.decoding import DecodingMemoryError
from fewstep.families.table import family_named
from fewstep.system.format import write_json
from fewstep.system.integrity import seal
from tests.fuzzing.mutations import mutate
from tests.fuzzing.numbers import at, changes, places, replaced

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
            use(fewstep.load(self.directory, verify=draw.random() < 0.33))
        finally:
            path.write_bytes(self.contents[path])
        return f"{path.relative_to(self.directory)}: {kind}"


def use(system: fewstep.System) -> None:
    """Translate with all searches. A search that is not valid for the system is refused."""
    for search in system.searches.values():
        translate(system, search)


def translate(system: fewstep.System, search: SearchConfig) -> None:
    """Translate with a search, unless it is not valid for the system."""
    if any(system.problems(search)):
        return
    try:
        system.translate(LINES, search, threads=1)
    except ValueError as error:
        if DAMAGED in str(error):  # tables are checked where they are read: loading them reads only their header
            raise fewstep.BundleError(str(error)) from error
        raise


class NumberTarget:
    """A copy of a system directory, of whose descriptions one value is changed at a time, with digests that agree: each number, and
    each option of its searches, by each number at a border. Weights do not store the config that they were trained with."""

    refusals: tuple[type[BaseException], ...] = (fewstep.BundleError,)

    def __init__(self, origin: Path, scratch: Path) -> None:
        self.directory = scratch
        shutil.copytree(origin, scratch, dirs_exist_ok=True)
        for path in scratch.rglob("model.safetensors"):
            _without_config(path)
        self.system = fewstep.load(scratch, verify=False)
        self.descriptions = {path: _whole(json.loads(path.read_text())) for path in sorted(scratch.rglob("system.json"))}
        self.single = [
            (file, path, number)
            for file, description in self.descriptions.items()
            for path in places({key: description[key] for key in CHANGED})
            for number, _ in enumerate(changes(at(description, path)))
        ]

    def trial(self, seed: int) -> str:
        """Load and use the system with one changed value, or with several where `seed` is beyond the number of these."""
        draw = random.Random(seed)
        chosen = [self.single[seed]] if seed < len(self.single) else draw.sample(self.single, draw.choice([2, 3, 5]))
        file = chosen[0][0]
        description = self.descriptions[file]
        for other, path, number in chosen:
            if other == file:
                options = list(changes(at(self.descriptions[file], path)))
                description = replaced(description, path, options[number])
        text = f"{file.relative_to(self.directory)}: {', '.join('.'.join(map(str, path)) for _, path, _ in chosen)}"
        if len(chosen) == 1 and chosen[0][1][0] == "searches" and file.parent == self.directory:
            self._search(description["searches"][chosen[0][1][1]])
            return text
        original = file.read_bytes()
        try:
            write_json(file, seal(description))
            use(fewstep.load(self.directory, verify=False))
        except UnicodeEncodeError:
            return f"{text}: no text of a file"
        finally:
            file.write_bytes(original)
        return text

    def _search(self, values: Mapping[str, Any]) -> None:
        try:
            search = type(self.system.search).from_values(values)
        except ValueError as error:
            raise fewstep.BundleError(str(error)) from error
        translate(self.system, search)


CHANGED = ("network", "sizes", "searches", "max_source_tokens", "source_prefix", "unmapped_pieces", "format")
"""Keys of descriptions whose values are changed."""


def _whole(description: dict[str, Any]) -> dict[str, Any]:
    """Return a description with all keys that it may have."""
    kind = family_named(description["family"]).network
    network = asdict(kind(**description["network"]))
    more = {"max_source_tokens": 20, "source_prefix": [7], "unmapped_pieces": {"source": 0, "target": 0}}
    return {**more, **description, "network": network, "format": 5}


def _without_config(path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    save_file(load_file(path), path)
