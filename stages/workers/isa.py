"""The instruction-set levels with which the processes of a step computed."""

from __future__ import annotations

from pathlib import Path

from stages.artifacts import RECORDS

ISA = Path(RECORDS) / "isa"
"""The folder of a step in which each process leaves an empty file with the name of its level."""


def isa_level() -> str:
    """Return the level of the compiled extension in this process, or `none` if the extension cannot be loaded."""
    try:
        from fewstep.native import fewstep_native
    except ImportError:
        return "none"
    return fewstep_native.LEVEL


def record_isa_level(folder: Path) -> None:
    """Leave the level of this process in `folder`, if the extension can be loaded."""
    if (level := isa_level()) != "none":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / level).touch()


def recorded_isa_levels(folder: Path) -> list[str]:
    """Return the levels in `folder`, sorted by name."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
