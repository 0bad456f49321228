"""Large text on Ray: a worker and a driver die while it is cleaned, and the result is that of one process without Ray."""

import os
import re
import signal
from pathlib import Path

import pytest

from stages.corpus.job import PIECE_ROWS
from tests.end_to_end.runs import ALONE, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray]

PAIRS = 3 * PIECE_ROWS + 1000


def write_text(path: Path) -> None:
    """Write pairs of which some are repeated far from their first copy."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(PAIRS):
            value = number % 150_000 if number % 3 else number
            file.write(f"The man with number {value} sleeps here.\tDer Mann mit der Nummer {value} schläft da.\n")


def processes(run: Watched) -> list[int]:
    """Return the process of the step and its workers, in the order in which they first wrote to the log."""
    return [int(pid) for pid in dict.fromkeys(re.findall(r" \[(\d+)\] ", run.log("corpus:train")))]


@pytest.mark.exhaustive
def test_text_is_cleaned_on_workers_that_die(tmp_path: Path) -> None:
    write_text(tmp_path / "text.tsv")
    text = {"corpus.train.embedded": 0, "corpus.train.tsv": tmp_path / "text.tsv"}
    options = ("--until", "corpus:train", *(word for key, value in text.items() for word in ("--set", f"{key}={value}")))
    alone = Watched(tmp_path / "alone", *ALONE, *options)
    alone.finish()

    run = Watched(tmp_path / "store", *options, "--set", "cluster.cpus=2")
    process = run.start()
    try:
        run.wait(lambda: run.progress("corpus:train") > 0 and len(processes(run)) > 2, process)
        os.kill(processes(run)[-1], signal.SIGKILL)  # a worker whose first piece has just begun
        run.wait(lambda: "which is given to another worker" in run.log("corpus:train"), process)
        run.wait(lambda: run.progress("corpus:train") >= PIECE_ROWS, process)
    finally:
        end(process)
    directory = next((run.store / "corpus").glob("*.partial*/checkpoints"))
    finished = {path.name: path.stat().st_mtime_ns for path in directory.glob("*-ledger-*")}
    assert len(finished) >= 2
    run.finish()
    assert run.agrees_with(alone)
    assert run.started("corpus:train") == 2
