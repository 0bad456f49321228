"""Write a first config for a user's own parallel text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stages.corpus.lines import read_lines
from stages.errors import DataError

HELD_OUT_PAIRS = 1000
"""Pairs of a validation or test text that is taken from the training text, if it is large enough."""
HELD_OUT_SHARE = 0.05
"""Largest share of the training text that is taken for one of them."""
LANGUAGE = re.compile(r"\.([a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)(?:\.(?:gz|zst|txt))*$")


class Pair(NamedTuple):
    """The two files of a parallel text."""

    source: Path
    target: Path


def write_starter(
    train: Pair,
    directory: Path,
    *,
    languages: tuple[str, str] | None = None,
    validation: Pair | None = None,
    test: Pair | None = None,
) -> Path:
    """Write `config.yaml` into a new directory and return its path.

    Where no validation or test text is given, evenly spaced pairs of the training text are written beside the config. A run drops
    pairs from its training text that occur in one of them. Raises DataError for a directory that exists, for files that cannot be
    read or differ in their number of lines, and for file names without a language.
    """
    if directory.exists():
        raise DataError(f"init: expected a new directory, got {directory}, which exists; remove it or name another with --output")
    codes = languages or _languages_of(train)
    count = _count_pairs(train)
    taken = min(HELD_OUT_PAIRS, int(HELD_OUT_SHARE * count))
    if taken == 0 and (validation is None or test is None):
        raise DataError(f"{train.source}: expected at least {round(1 / HELD_OUT_SHARE)} pairs to take test pairs from, got {count}")
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"init: expected a directory that can be created, got {directory}: {error.strerror}") from error
    wanted = [name for name, given in (("validation", validation), ("test", test)) if given is None]
    made = _take(train, directory, {name: _spread(count, taken, place) for place, name in enumerate(wanted)}, codes)
    texts = {"train": train, "validation": validation or made["validation"], "test": test or made["test"]}
    path = directory / "config.yaml"
    path.write_text(_config(directory.name, codes, texts, count), encoding="utf-8")
    return path


def _languages_of(train: Pair) -> tuple[str, str]:
    found = [LANGUAGE.search(path.name) for path in train]
    if not all(found):
        names = " and ".join(path.name for path in train)
        raise DataError(
            f"init: expected file names that end with a language, such as train.en, got {names}; give --languages en fr"
        )
    source, target = (match[1] for match in found if match)
    return source, target


def _lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\n") for block in read_lines(path) for line in block.to_pylist())


def _count_pairs(train: Pair) -> int:
    counts = [sum(1 for _ in _lines(path)) for path in train]
    if counts[0] != counts[1]:
        raise DataError(f"init: expected as many lines in {train.target} as in {train.source} ({counts[0]}), got {counts[1]}")
    return counts[0]


def _spread(count: int, taken: int, place: int) -> set[int]:
    """Return `taken` evenly spaced rows of `count`; different `place`s give different rows."""
    return {(2 * row + 1 + place) * count // (2 * taken + 1) for row in range(taken)}


def _take(train: Pair, directory: Path, rows: dict[str, set[int]], codes: Sequence[str]) -> dict[str, Pair]:
    made = {name: Pair(*(directory / f"{name}.{code}" for code in codes)) for name in rows}
    for side, path in enumerate(train):
        texts: dict[str, list[str]] = {name: [] for name in rows}
        for number, line in enumerate(_lines(path)):
            for name in (name for name, chosen in rows.items() if number in chosen):
                texts[name].append(f"{line}\n")
        for name, lines in texts.items():
            made[name][side].write_text("".join(chain(lines)), encoding="utf-8")
    return made


def _config(name: str, codes: Sequence[str], texts: dict[str, Pair], count: int) -> str:
    files = {text: f"{{source: {_quoted(pair.source)}, target: {_quoted(pair.target)}}}" for text, pair in texts.items()}
    return f"""\
# A run on {count:,} pairs of your own text. `fewstep plan` lists its steps, `fewstep run` runs them.
# Every other key has a default; docs/reference/config.md describes all of them.
name: {re.sub("[^A-Za-z0-9_-]", "-", name)}
languages: {{source: {codes[0]}, target: {codes[1]}}}

# Two files each, one sentence a line. Plain text, gzip (.gz) and zstd (.zst) are read, and a list of files is joined in order.
# Pairs that also occur in the validation or test text are dropped from the training text.
corpus:
  train: {files["train"]}
  validation: {files["validation"]}
  test:
    test: {files["test"]}

# `auto` follows from the number of training pairs, and the precision from the device; `fewstep plan` prints the numbers.
vocabulary: {{size: auto}}  # pieces of the SentencePiece vocabulary

defaults:
  size: auto  # tiny: 4 + 4 layers of width 128; base and big: those of Vaswani et al. (2017)
  dropout: auto
  training:
    {{updates: auto, batch_tokens: auto, learning_rate: auto, warmup_updates: auto, validate_every: auto, precision: auto}}

# The teacher learns from your text and translates it again; its translations train the students below.
teacher: {{}}

systems:
  # The teacher itself, as the baseline of the report.
  autoregressive: {{use: teacher}}
  # A deep encoder and one decoder layer: much less work for each target token.
  # Its first search, the default, ranks for each token only those that its shortlist holds: as many as 99.9 % of its outputs
  # consist of.
  shallow:
    encoder_layers: 6
    decoder_layers: 1
    data: distilled
    search: [{{greedy: {{precision: int8, shortlist: {{recall: 0.999}}}}}}, greedy, beam]
  # Two tokens in each decoding step, from both ends of the sentence.
  interleaved: {{order: interleaved, data: distilled}}

# With a GPU:
# cluster: {{resources: {{train: {{gpus: 1}}}}}}
"""


def _quoted(path: Path) -> str:
    """Return a path as YAML reads it back, whatever characters it holds."""
    text = str(path)
    return text if re.fullmatch(r"[\w./-]+", text) else "'" + text.replace("'", "''") + "'"
