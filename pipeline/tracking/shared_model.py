"""Directories of systems to pass on: the files of the system, a card, the runtime, and what MLflow needs to serve it."""

from __future__ import annotations

import shutil
from pathlib import Path

from fewstep.system.description import read_description
from fewstep.system.integrity import check_parts
from pipeline.run.model_card import CARD, model_card
from pipeline.tracking.models import WHEELS, save, use_own_folder

DESCRIPTION = "system.json"
EXAMPLE = "A sentence."


def write_shared(directory: Path, output: Path, *, verify: bool = True) -> None:
    """Write the system in `directory` into the new directory `output`, with `README.md`, the runtime's wheel, and the files of an
    MLflow model whose artifact is `output` itself.

    With `verify`, the system's files are compared with their digests first. Raises BundleError for a directory that does not hold a
    complete system, ImportError where the runtime's extension is missing.
    """
    description = read_description(directory, verify)
    if verify:
        check_parts(directory, description)
    described = output.parent / "described"  # MLflow copies what it is given, so the weights come later
    described.mkdir()
    shutil.copyfile(directory / DESCRIPTION, described / DESCRIPTION)
    save(output, described.absolute(), EXAMPLE)
    use_own_folder(output)
    for part in (DESCRIPTION, *description["parts"]):
        (output / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory / part, output / part)
    (wheel,) = (output / WHEELS).iterdir()
    (output / CARD).write_text(model_card(directory, f"{WHEELS}/{wheel.name}"), encoding="utf-8")
