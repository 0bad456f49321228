"""Write a first config for a user's own parallel text."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fewstep.access import name_problem
from pipeline.config.held_out import Pair, take_blocks, take_files
from pipeline.config.unit_files import UnitFiles, UnitText, unit_format
from stages.errors import DataError

LANGUAGE = re.compile(r"\.([a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)(?:\.(?:gz|zst|bz2|xz|txt))*$")
CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
"""A language code: ISO 639 with script or region, such as pt-BR."""
MAX_NAME = 64
"""Characters of the name of a run."""
NO_LINES = {".csv", ".tsv", ".parquet", ".json", ".jsonl", ".xml", ".html", ".docx", ".pdf"}
"""Suffixes of files that hold neither one sentence a line nor units of a format that is read."""

PLACEHOLDERS = """\
  # Tokens of the vocabulary stand for these kinds of placeholders, such as %s, and for the terms of a glossary.
  placeholders: [code, url, tag, reference, role, directive, term]
"""
"""The key for text of localisations, whose translations have to keep placeholders."""


class Starter(NamedTuple):
    """The config of a starter, and the pairs that were taken for its texts."""

    config: Path
    pairs: int
    """Pairs of the training text."""
    held_out: dict[str, int]
    """Pairs that were taken for each text."""
    way: str
    """How they were taken."""


def write_starter(
    train: Pair | UnitFiles,
    directory: Path,
    *,
    languages: tuple[str, str] | None = None,
    validation: Pair | None = None,
    test: Pair | None = None,
) -> Starter:
    """Write `config.yaml` into a new directory, which appears when it is complete.

    Where no validation or test text is given, pairs of the training text are taken for it: of several files of units whole files,
    which stay where they are; otherwise blocks of pairs that pass the filters of a run, which are written beside the config. A run
    drops pairs from its training text that occur in one of them. Raises DataError for a directory that exists, for files that
    cannot be read, that differ in their number of lines or that are the same, and for languages that are unknown or equal.
    """
    if directory.exists():
        raise DataError(f"init: expected a new directory, got {directory}, which exists; remove it or name another with --output")
    paths = [directory, *(train if isinstance(train, Pair) else ()), *(validation or ()), *(test or ())]
    if problem := next((f"{str(path)!a}: {found}" for path in paths if (found := name_problem(path.absolute()))), None):
        raise DataError(f"init: {problem}")
    if isinstance(train, Pair):
        _check_files(train)
    codes = _checked(languages or (_languages_of(train) if isinstance(train, Pair) else train.languages()))
    text = train if isinstance(train, Pair) else train.read(codes)
    count = text.size()
    wanted = [name for name, given in (("validation", validation), ("test", test)) if given is None]
    texts = {name: _pair_entry(given) for name, given in (("validation", validation), ("test", test)) if given is not None}
    if isinstance(text, UnitText) and len(text.pairs) > len(wanted):
        taken = take_files(text.pairs, wanted)
        files = dict[str, str]()
        way = "in whole files"
        texts |= {name: text.entry(found) for name, found in taken.items()}
        held_out = {name: sum(map(text.pairs.__getitem__, found)) for name, found in taken.items()}
    else:
        blocks = take_blocks(text.rows, str(text), codes, count, wanted)
        way = "in blocks that pass the filters"
        made = {name: Pair(*(directory.absolute() / f"{name}.{code}" for code in codes)) for name in wanted}
        sides = [(path, side, blocks[name]) for name in wanted for side, path in enumerate(made[name])]
        files = {path.name: "".join(f"{pair[side]}\n" for pair in pairs) for path, side, pairs in sides}
        texts |= {name: _pair_entry(pair) for name, pair in made.items()}
        held_out = {name: len(found) for name, found in blocks.items()}
    texts["train"] = text.entry() if isinstance(text, UnitText) else _pair_entry(text)
    placeholders = PLACEHOLDERS if isinstance(text, UnitText) else ""
    _write(directory, files | {"config.yaml": _config(directory.name, codes, texts, count, placeholders)})
    return Starter(directory / "config.yaml", count, held_out, way)


def _pair_entry(pair: Pair) -> dict[str, Any]:
    return {"source": str(pair.source.absolute()), "target": str(pair.target.absolute())}


def _write(directory: Path, files: dict[str, str]) -> None:
    """Write files into a new directory, all or none."""
    temporary = None
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".init-", dir=directory.parent))
        for name, text in files.items():
            (temporary / name).write_text(text, encoding="utf-8", newline="\n")
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes a directory for its user alone
        os.rename(temporary, directory)
    except OSError as error:
        raise DataError(
            f"init: expected a directory that can be written, got {directory}: {error.strerror or error}; nothing is left of it"
        ) from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check_files(train: Pair) -> None:
    for path in train:
        suffixes = {suffix.lower() for suffix in path.suffixes}
        if found := suffixes & NO_LINES:
            raise DataError(
                f"init: expected text files with one sentence a line, got {path} ({', '.join(found)}); extract its sentences first"
                " (tables with columns are read by a config: corpus.train: {tsv: FILE} or {parquet: FILE})"
            )
        if unit_format(path):
            raise DataError(f"init: expected two files with one sentence a line, got {path}, which has both sides; name it alone")
    if train.source.exists() and train.target.exists() and train.source.samefile(train.target):
        raise DataError(f"init: expected two files, got {train.source} for both sides; name the translations as the second file")


def _languages_of(train: Pair) -> tuple[str, str]:
    found = [LANGUAGE.search(path.name) for path in train]
    if not all(found):
        names = " and ".join(path.name for path in train)
        raise DataError(
            f"init: expected file names that end with a language, such as train.en, got {names}; give --languages en fr"
        )
    source, target = (match[1] for match in found if match)
    return source, target


def _checked(codes: tuple[str, str]) -> tuple[str, str]:
    for code in codes:
        if not CODE.fullmatch(code):
            raise DataError(f"init: expected a language code such as en, de or pt-BR, got {code!r}; give --languages en fr")
    if codes[0] == codes[1]:
        raise DataError(f"init: expected two languages, got {codes[0]} for both sides; give --languages en fr")
    return codes


def _config(name: str, codes: tuple[str, str], texts: dict[str, dict[str, Any]], count: int, placeholders: str) -> str:
    files = {text: _flow(entry) for text, entry in texts.items()}
    return f"""\
# A run on {count:,} pairs of your own text. `fewstep plan` lists its steps, `fewstep run` runs them.
# Every other key has a default; docs/reference/config.md describes all of them.
name: {re.sub("[^A-Za-z0-9_-]", "-", name)[:MAX_NAME]}
languages: {_flow({"source": codes[0], "target": codes[1]})}

# `source` and `target` have one sentence a line; `po`, `tmx` and `xliff` have units with both sides. Files may be compressed with
# gzip, zstd, bzip2 or xz; a list of files, or the files that match a pattern, are joined in order.
# Pairs that also occur in the validation or test text are dropped from the training text.
corpus:
  train: {files["train"]}
  validation: {files["validation"]}
  test:
    test: {files["test"]}
{placeholders}
# `auto` follows from the number of training pairs, and the precision from the device; `fewstep plan` prints the numbers.
vocabulary: {{size: auto}}  # pieces of the SentencePiece vocabulary

defaults:
  size: auto  # tiny: 4 + 4 layers of width 128; base and big: those of Vaswani et al. (2017)
  dropout: auto
  training:
    {{updates: auto, batch_tokens: auto, learning_rate: auto, warmup_updates: auto, validate_every: auto, precision: auto}}

# The teacher learns from your text and translates it again. The students below start from its weights and learn from both.
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
    data: mixed
    initial_weights: teacher
    search: [{{greedy: {{precision: int8, shortlist: {{recall: 0.999}}}}}}, greedy, beam]
  # Two tokens in each decoding step, from both ends of the sentence.
  interleaved: {{order: interleaved, data: mixed, initial_weights: teacher}}

# With a GPU:
# cluster: {{resources: {{train: {{gpus: 1}}}}}}
"""


def _flow(values: dict[str, Any]) -> str:
    """Return a map in one line of YAML, quoted where needed."""
    return yaml.safe_dump(values, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**9).strip()
