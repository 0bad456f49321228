"""The command `translate` of the pipeline, as a function."""

from pathlib import Path
from typing import Any

from fewstep.commands.translate import OPTIONS
from pipeline.commands.translate import translate_files


def translated(
    directory: Path,
    source: Path | None = None,
    output: Path | None = None,
    search: str | None = None,
    *,
    device: str = "cpu",
    **options: Any,
) -> None:
    """Run the command with default options but these."""
    values = {option.name: option.default for option in OPTIONS}
    translate_files(directory, device=device, options=values | {"input": source, "output": output, "search": search} | options)
