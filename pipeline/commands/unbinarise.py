"""`fewstep unbinarise`: write the text of a folder of fairseq-preprocess."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from fewstep.access import access_problem
from fewstep.bounded_files import MAX_VOCABULARY_BYTES, read_bounded
from fewstep.text.escape import escaped
from pipeline.commands.new_directory import new_directory
from pipeline.errors import DataError
from stages.shared.data_bin import open_binarised, sentences
from stages.shared.dictionary import symbols

NAME = re.compile(r"(?P<split>[^.]+)\.(?P<source>[^.-]+)-(?P<target>[^.-]+)\.(?P<language>[^.]+)\.idx")
"""Names of indexes, such as `train.en-de.en.idx`."""
MAX_FILES = 1000
"""Indexes in a folder."""


def unbinarise(
    folder: Annotated[Path, typer.Argument(metavar="DATA_BIN", help="Folder with dictionaries and binarised text.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIRECTORY", help="A new directory.", show_default=False)],
) -> None:
    """Write the text of a folder of fairseq-preprocess (format mmap), split into tokens as it was, a sentence a line."""
    with new_directory("unbinarise", output) as fresh:
        fresh.mkdir()
        rows = write_text(folder, fresh)
    for name, count in rows.items():
        print(escaped(f"{output / name}: {count:,} sentences"))


def write_text(folder: Path, output: Path) -> dict[str, int]:
    """Write each text of a folder to a directory; return the numbers of sentences by file. Raises DataError, OSError."""
    found = sorted(match.groups() for path in _indexes(folder) if (match := NAME.fullmatch(path.name)) is not None)
    if not found:
        raise DataError(
            f"{folder}: expected indexes such as train.en-de.en.idx, got none; name the folder that fairseq-preprocess wrote"
        )
    rows: dict[str, int] = {}
    for split, source, target, language in found:
        tokens = _dictionary(folder / f"dict.{language}.txt")
        text = open_binarised(folder / f"{split}.{source}-{target}.{language}")
        if f"{split}.{language}" in rows:
            raise DataError(f"{folder}: expected one text {split}.{language}, got several; move one pair to another folder")
        with (output / f"{split}.{language}").open("x", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in sentences(text, tokens))
        rows[f"{split}.{language}"] = len(text.sizes)
    for split, source, target, _ in found:
        sides = [rows.get(f"{split}.{language}") for language in (source, target)]
        if None not in sides and sides[0] != sides[1]:
            raise DataError(
                f"{folder}: {split}: expected as many sentences in {target} as in {source}, {sides[0]:,}, got {sides[1]:,}; "
                "binarise both sides again"
            )
    return rows


def _indexes(folder: Path) -> list[Path]:
    try:
        found = list(folder.glob("*.idx"))
    except OSError as error:
        raise DataError(access_problem(folder, error)) from error
    if len(found) > MAX_FILES:
        raise DataError(f"{folder}: expected at most {MAX_FILES} indexes, got {len(found)}; move some to another folder")
    return found


def _dictionary(path: Path) -> list[str]:
    try:
        found = symbols(str(path), read_bounded(path, MAX_VOCABULARY_BYTES), split=True)
    except (OSError, ValueError) as error:
        raise DataError(f"unbinarise: {path}: {error}") from error
    if wrong := [symbol for symbol in found if symbol.split() != [symbol]]:
        raise DataError(f"{path}: expected symbols without white space, since spaces separate tokens, got {wrong[0]!r}")
    return found
