"""The upstream fast_align program as an engine: both directions run at once, each on one thread.

With more threads the program loses counts, and its links change from run to run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stages.align.text import DIRECTIONS, Direction, Job, fit_record, load_json, report_pass
from stages.context import StepContext
from stages.errors import DataError, StageError, TransientError
from stages.shared.shards import read_shard, rows_of

PATTERNS = {
    "length_ratio": r"expected target length = source length \* (\S+)", "log_likelihood": r"log_e likelihood: (\S+)",
    "perplexity": r"perplexity: (\S+)", "null_posterior": r"posterior p0: (\S+)", "feature": r"posterior al-feat: (\S+)",
    "step": r"model al-feat: \S+ \(tension=(\S+)\)", "tension": r"final tension: (\S+)",
}  # fmt: skip
"""Patterns of values on the program's stderr."""

FORBIDDEN = {"|||": "it separates the sides", "<eps>": "it is the null word"}
"""Words that have another meaning for the program."""

WORD = re.compile(r"[^ \t]+")


def align_upstream(job: Job, context: StepContext) -> dict[str, Any]:
    """Write the links of both directions, and return their entries of `align.json`.

    Raises DataError for text with one of the words `FORBIDDEN`, StageError when the program is missing or fails.
    """
    finished = all(job.state(direction, "fitted.json").exists() for direction in DIRECTIONS)
    for _ in context.workers.map(make_runner, job, [] if finished else [find_executable(job.config.executable)]):
        context.progress(1, 1, "runs of both directions")
    fitted: dict[str, Any] = {direction: load_json(job.state(direction, "fitted.json")) for direction in DIRECTIONS}
    for number in range(job.config.iterations):
        report_pass(context, number, {direction: fitted[direction]["passes"][number] for direction in DIRECTIONS})
    return fitted


def find_executable(name: str) -> str:
    """Return the path of the program. Raises StageError if it is not found."""
    if found := shutil.which(name):
        return found
    raise StageError(
        f"alignment.executable: expected the fast_align program as {name}, found no such program; install it and give its path, "
        "or set alignment.engine to native"
    )


def make_runner(job: Job) -> Callable[[str], None]:
    """Return a function that runs a program on the whole text in both directions."""
    return partial(_run, job)


def _run(job: Job, executable: str) -> None:
    lines = _own(job, "pairs.txt")
    lines.parent.mkdir(parents=True, exist_ok=True)
    counts = _write_text(job, lines)
    _run_both(job, executable, lines)
    for direction in DIRECTIONS:
        target_words = _keep_links(job, direction, counts["pairs"])
        parsed = parse_log(_log(job, direction).read_text(encoding="utf-8", errors="replace"))
        if len(parsed["passes"]) != job.config.iterations:
            raise StageError(
                f"{executable}: expected the messages of {job.config.iterations} iterations, got those of "
                f"{len(parsed['passes'])} ({_log(job, direction)}); check that alignment.executable is fast_align"
            )
        record = fit_record(
            parsed["passes"],
            tension=parsed["tension"] or job.config.tension,
            length_ratio=parsed["length_ratio"],
            counts={"target_words": target_words, "empty": counts["empty"], "too_long": counts["too_long"]},
        )
        job.save_json(job.state(direction, "fitted.json"), record)


def _rows(job: Job, shard: int) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield the id of each row of a shard, and the words or pieces of both sides as text."""
    table = read_shard(job.shards[shard])
    for number, source, target in zip(*(table[name].to_pylist() for name in ("id", "source", "target")), strict=True):
        if job.sizes:
            yield number, list(map(str, source)), list(map(str, target))
        else:
            yield number, WORD.findall(source), WORD.findall(target)


def _usable(job: Job, source: list[str], target: list[str]) -> bool:
    """Whether a pair is aligned. (A pair with an empty source would make every tension of the program NaN.)"""
    return 0 < len(source) <= job.config.max_length and 0 < len(target) <= job.config.max_length


def _write_text(job: Job, path: Path) -> dict[str, int]:
    counts = {"pairs": 0, "empty": 0, "too_long": 0}
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for shard in range(len(job.shards)):
            for number, source, target in _rows(job, shard):
                if sign := next((word for word in (*source, *target) if word in FORBIDDEN), None):
                    raise DataError(
                        f"{job.shards[shard]}: pair {number}: fast_align cannot take the word {sign} ({FORBIDDEN[sign]}); "
                        "remove the pair, or set alignment.engine to native"
                    )
                if _usable(job, source, target):
                    file.write(f"{' '.join(source)} ||| {' '.join(target)}\n")
                    counts["pairs"] += 1
                else:
                    counts["too_long" if source and target else "empty"] += 1
    if not counts["pairs"]:
        raise DataError(
            f"align: expected pairs with words on both sides, got none ({counts['empty']} with an empty side, "
            f"{counts['too_long']} longer than alignment.max_length = {job.config.max_length}); check the text, or increase "
            "alignment.max_length"
        )
    return counts


def command(executable: str, direction: Direction, job: Job, lines: Path) -> list[str]:
    """Return the arguments of the program."""
    config = job.config
    flags = ["-d", "-v", *(["-o"] if config.optimize_tension else []), *(["-r"] if direction == "reverse" else [])]
    values = {"-I": config.iterations, "-T": config.tension, "-q": config.p0, "-a": config.alpha}
    return [executable, "-i", str(lines), *flags, *(text for flag, value in values.items() for text in (flag, str(value)))]


def _own(job: Job, name: str) -> Path:
    """A file of this attempt, to which a program of an earlier attempt that is still running does not write."""
    return job.state("upstream", job.context.attempt, name)


def _log(job: Job, direction: Direction) -> Path:
    return job.context.records("logs", f"fast_align.{direction}.{job.context.attempt}.txt")


def _output(job: Job, direction: Direction) -> Path:
    return _own(job, f"{direction}.txt")


def _run_both(job: Job, executable: str, lines: Path) -> None:
    running: dict[Direction, subprocess.Popen[bytes]] = {}
    try:
        for direction in DIRECTIONS:
            with _output(job, direction).open("wb") as out, _log(job, direction).open("wb") as log:
                running[direction] = subprocess.Popen(
                    command(executable, direction, job, lines),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    # With more threads the program loses counts.
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
        while any(process.poll() is None for process in running.values()):
            for direction, process in running.items():
                if process.poll():
                    _fail(job, direction, executable, process.returncode)
            if job.context.stop_requested():
                raise TransientError("asked to stop while fast_align was running; it starts again from the beginning")
            time.sleep(0.05)
        for direction, process in running.items():
            if process.returncode:
                _fail(job, direction, executable, process.returncode)
    except OSError as error:
        raise StageError(
            f"{executable}: expected the fast_align program, but it cannot be run: {error}; check alignment.executable"
        ) from error
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _fail(job: Job, direction: Direction, executable: str, code: int) -> None:
    lines = _log(job, direction).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise StageError(
        f"{executable}: the {direction} run {ended}; its last message: {lines[-1] if lines else 'none'} ({_log(job, direction)})"
    )


def parse_log(text: str) -> dict[str, Any]:
    """Return length_ratio, tension (None if it was not fitted) and the passes from the program's stderr."""
    parsed: dict[str, Any] = {"length_ratio": 1.0, "tension": None, "passes": []}
    passes: list[dict[str, Any]] = parsed["passes"]
    for line in text.splitlines():
        for key, pattern in PATTERNS.items():
            if not (found := re.search(pattern, line)):
                continue
            value = float(found[1])
            if key == "log_likelihood":
                passes.append({"tensions": []})
            if key == "length_ratio":
                parsed[key] = value
            elif key in ("step", "tension") and passes:
                passes[-1]["tensions"].append(value)
                parsed["tension"] = value if key == "tension" else parsed["tension"]
            elif passes:
                passes[-1][key] = value
    return parsed


def _keep_links(job: Job, direction: Direction, pairs: int) -> int:
    """Write the program's links by shard, without links for the pairs that it was not given.

    Returns the number of words on the explained side.
    """
    lines = _output(job, direction).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    if len(lines) != pairs:
        raise StageError(
            f"{job.config.executable}: expected a line for each of {pairs} pairs from the {direction} run, got {len(lines)} lines "
            f"({_log(job, direction)}); check that alignment.executable is fast_align"
        )
    found = iter(lines)
    words = 0
    line_number = 0
    for shard, path in enumerate(job.shards):
        rows = []
        for number, source, target in _rows(job, shard):
            explaining, explained = (source, target) if direction == "forward" else (target, source)
            row = np.full(len(explained), -1, np.int32)
            if _usable(job, source, target):
                line_number += 1
                where = f"{job.config.executable}: the {direction} run, line {line_number} (pair {number})"
                _fill(row, next(found), len(explaining), direction, where)
                words += len(row)
            rows.append(row)
        if len(rows) != rows_of(path):
            raise StageError(f"{path}: expected {rows_of(path)} rows, got {len(rows)}; run the step again")
        job.save(job.links(direction, shard, "sources"), np.concatenate([np.zeros(0, np.int32), *rows]))
        job.save(job.links(direction, shard, "starts"), np.cumsum([0, *map(len, rows)], dtype=np.int64))
    return words


def _fill(row: Any, line: str, explaining: int, direction: Direction, where: str) -> None:
    for link in line.split():
        left, dash, right = link.partition("-")
        if not (dash and left.isdecimal() and right.isdecimal()):
            raise StageError(
                f"{where}: expected links such as 0-0 1-2, got {link!r:.40}; check that alignment.executable is fast_align"
            )
        other, own = (int(left), int(right)) if direction == "forward" else (int(right), int(left))
        if own >= len(row) or other >= explaining or row[own] >= 0:
            raise StageError(
                f"{where}: expected a link within a pair of {explaining} and {len(row)} words, got {link}; "
                "check that alignment.executable is fast_align"
            )
        row[own] = other
