"""Filters that compare what both sides of a pair contain, and programs that judge pairs."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fewstep.text.placeholders import placeholders
from stages.corpus import FilterCommand
from stages.corpus.ledger import Mask
from stages.errors import DataError, StageError
from stages.shared.programs import PASSED, run_to_end

NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
"""A number with the separators of any language."""
LAST_LINES = 3
"""Lines of a program's messages that an error quotes."""


def numbers(text: str) -> Counter[str]:
    """Return the numbers of a text as their digits, from 0 to 9, without separators: 1,000.5 and 1.000,5 are equal."""
    found = ("".join(str(unicodedata.decimal(c)) for c in match[0] if c.isdecimal()) for match in NUMBER.finditer(text))
    return Counter(found)


def urls(text: str) -> Counter[str]:
    """Return the addresses of a text."""
    return Counter(match[0] for match in placeholders(text) if match["url"])


def judged(command: FilterCommand, sources: Sequence[str], targets: Sequence[str]) -> Mask:
    """Return which pairs [N] a program drops. It reads a pair on each line, with a tab between source and target.

    With `min_score` it writes a line for each, whose last column is a score; otherwise it writes the lines that are kept.

    Raises DataError for another number of lines, a last column that is no number, and a line that is not in the input; StageError
    for a program that cannot be run or fails.
    """
    lines = ["\t".join(pair) for pair in zip(sources, targets, strict=True)]
    written = _run(command, lines)
    if command.min_score is None:
        return _left_out(command, lines, written)
    if len(written) != len(lines):
        raise DataError(f"{command.place}: expected {len(lines)} lines with a score, got {len(written)}")
    return np.array([_score(command, line) < command.min_score for line in written], bool)


def _left_out(command: FilterCommand, lines: Sequence[str], written: Sequence[str]) -> Mask:
    dropped = np.ones(len(lines), bool)
    position = 0
    for line in written:
        while position < len(lines) and lines[position] != line:
            position += 1
        if position == len(lines):
            raise DataError(
                f"{command.place}: expected lines of the input, in their order, got {line!r:.200}; set min_score for scores"
            )
        dropped[position] = False
        position += 1
    return dropped


def _score(command: FilterCommand, line: str) -> float:
    text = line.rpartition("\t")[2]
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise DataError(f"{command.place}: expected a number in the last column, got {text!r:.80}")
    return score


def _run(command: FilterCommand, lines: Sequence[str]) -> list[str]:
    """Return the lines that the program writes, with few variables of the environment."""
    environment = {name: os.environ[name] for name in PASSED if name in os.environ} | {"LANG": "C.UTF-8"}
    given = "".join(f"{line}\n" for line in lines).encode()
    try:
        done = run_to_end(command.command, given, command.place, timeout_seconds=command.timeout_seconds, environment=environment)
    except OSError as error:
        raise StageError(f"{command.place}: could not be run: {error}; check the program") from error
    if done.code:
        last = " ".join(done.messages[-LAST_LINES:])
        raise StageError(f"{command.place}: expected status 0, got {done.code}; its last messages: {last or 'none'}")
    try:
        return done.output.decode().removesuffix("\n").split("\n") if done.output else []
    except UnicodeDecodeError as error:
        raise DataError(f"{command.place}: expected UTF-8, got: {error}") from error
