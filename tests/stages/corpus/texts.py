"""Texts in files, for tests of the corpus stage."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from stages.context import StepContext
from stages.corpus import TextFiles
from stages.corpus.indexed_text import IndexedText, open_text
from stages.corpus.phases import Phases
from stages.workers import LocalWorkers, Resources, Workers


def context_in(directory: Path, attempt: str = "a1", workers: Workers | None = None) -> StepContext:
    """Return the context of a step that writes to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    return StepContext(
        directory=directory,
        attempt=attempt,
        workers=workers or LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=directory / "cache",
    )


def opened(files: TextFiles, folder: Path) -> IndexedText:
    """Return a text of English and German files, which are decompressed below a folder."""
    return open_text(files, ("en", "de"), folder / "unpacked", Phases(context_in(folder / "step")))


def tables(files: TextFiles, folder: Path) -> Iterator[pa.Table]:
    """Yield all rows of a text."""
    text = opened(files, folder)
    return text.read(0, text.rows)
