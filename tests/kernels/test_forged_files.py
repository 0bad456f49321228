"""Files with chosen fields and right checksums: what a reader must refuse although nothing is damaged."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fewstep import CandidateTables
from kernels import NgramModel, fast_align, symmetrize
from kernels.candidates import merge_candidates, read_counts
from kernels.fast_align import shards
from kernels.fast_align.model import AlignmentModel
from kernels.fast_align.options import AlignOptions
from kernels.fast_align.shards import Counts, Part
from kernels.symmetrize import symmetrize_arrays
from tests.kernels.candidate_tables import SMALL, build

RUN_HEADER, TABLE_HEADER, MODEL_HEADER = 144, 296, 104
"""Sizes of headers, in bytes; the last 8 are the checksum of the others."""

RUN_FIELDS = {"source_size": (16, "I"), "target_size": (20, "I"), "max_offset": (24, "I"), "max_length": (28, "I")}
RUN_FIELDS |= {name: (32 + 8 * n, "Q") for n, name in enumerate(("pairs", "source", "target", "squared", "product"))}
RUN_FIELDS |= {name: (72 + 8 * n, "Q") for n, name in enumerate(("empty", "too_long", "linked", "unlinked", "dropped"))}
RUN_FIELDS |= {"lexical": (112, "Q"), "prior": (120, "Q"), "body": (128, "Q")}
TABLE_FIELDS = {**RUN_FIELDS, "top": (32, "I"), "id_bytes": (40, "I"), "max_source": (44, "I"), "rows": (48, "I")}
TABLE_FIELDS |= {"entries": (52, "I"), "slope": (64, "d"), "intercept": (72, "d"), "tension": (80, "d"), "backoff": (88, "d")}
TABLE_FIELDS |= {"file_bytes": (184, "Q")}
MODEL_FIELDS = {name: (8 + 8 * n, "Q") for n, name in enumerate(("rows", "cells", "words", "letters"))}
MODEL_FIELDS |= {"tension": (40, "d"), "length_ratio": (48, "d"), "p0": (56, "d"), "alpha": (64, "d"), "max_length": (72, "q")}
MODEL_FIELDS |= {"diagonal": (80, "B"), "body": (88, "Q")}
"""Places and types of fields."""


def checksum(content: bytes, before: int = 0) -> int:
    """Return FNV-1a over little-endian words of 8 bytes, as the files use it."""
    value = before ^ 14695981039346656037
    for start in range(0, len(content), 8):
        word = int.from_bytes(content[start : start + 8], "little")
        value = (value ^ word) * 1099511628211 % (1 << 64)
    return value


def forged(content: bytes, header: int, places: Mapping[str, tuple[int, str]], **values: float) -> bytes:
    """Return the content with these fields and the checksum of the altered header."""
    changed = bytearray(content)
    for name, value in values.items():
        place, kind = places[name]
        struct.pack_into(f"<{kind}", changed, place, value)
    struct.pack_into("<Q", changed, header - 8, checksum(bytes(changed[: header - 8])))
    return bytes(changed)


def forged_run(content: bytes, **values: float) -> bytes:
    """Return a file of counts with these fields."""
    return forged(content, RUN_HEADER, RUN_FIELDS, **values)


def forged_tables(content: bytes, **values: float) -> bytes:
    """Return a file of candidate tables with these fields."""
    return forged(content, TABLE_HEADER, TABLE_FIELDS, **values)


def forged_model(content: bytes, sections: list[bytes], **values: float) -> bytes:
    """Return an alignment model with these sections (starts, probabilities, columns, ends, text) and fields."""
    body = 0
    for section in sections:
        body = checksum(section, body)
    padding = [b""] * 2 + [b"\0" * (-len(sections[2]) % 8)] + [b""] * 2
    content = content[:MODEL_HEADER] + b"".join(a + b for a, b in zip(sections, padding, strict=True))
    return forged(content, MODEL_HEADER, MODEL_FIELDS, **{"body": body, **values})


# ---- files whose checksums agree but whose contents cannot be are refused, and files that change in use do no harm


# ---- forged files


PAIRS = [(["a", "b"], ["x", "y", "z"]), (["b"], ["z"])]


def events_of(content: bytes) -> tuple[int, int]:
    return struct.unpack_from("<QQ", content, 112)


def with_events(content: bytes, lexical: list[int], prior: list[int], counts: tuple[list[int], list[int]]) -> bytes:
    """A run with these events and counts."""
    sections = [struct.pack(f"<{len(part)}Q", *part) for part in (lexical, prior)]
    sections += [struct.pack(f"<{len(part)}I", *part) for part in counts]
    body = 0
    for section in sections:
        body = checksum(section, body)
    return forged_run(content[:RUN_HEADER] + b"".join(sections), lexical=len(lexical), prior=len(prior), body=body)


def refused_counts(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    for read in (lambda: read_counts(path), lambda: merge_candidates([path], path.with_name("out.bin"))):
        with pytest.raises(ValueError, match=rf"{path.name}: expected the counts of a shard, got {message}"):
            read()


def test_forging_is_right(tmp_path: Path) -> None:
    build([SMALL], tmp_path)
    content = (tmp_path / "0.run").read_bytes()
    assert forged_run(content) == content
    tables = (tmp_path / "tables.bin").read_bytes()
    assert forged_tables(tables) == tables


def test_numbers_of_events_that_overflow_are_refused(tmp_path: Path) -> None:
    build([SMALL], tmp_path)
    content = (tmp_path / "0.run").read_bytes()
    lexical, prior = events_of(content)
    for values in ({"lexical": (1 << 64) - 1, "prior": lexical + prior + 1}, {"lexical": lexical + 1}, {"prior": 0}):
        refused_counts(tmp_path / "bad.run", forged_run(content, **values), "a file that was cut off")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source_size": 0}, "impossible limits .source_size"),
        ({"target_size": (1 << 24) + 1}, "impossible limits .target_size"),
        ({"max_offset": 1 << 31}, "impossible limits .max_offset"),
        ({"max_length": 0}, "impossible limits .max_length"),
        ({"pairs": 1 << 63}, "impossible numbers of pairs"),
        ({"squared": (1 << 64) - 1}, "impossible numbers of pairs"),
        ({"linked": (1 << 64) - 1, "dropped": 1}, "impossible numbers of pairs"),
        ({"source_size": 11}, "impossible events"),
        ({"target_size": 21}, "impossible events"),
        ({"max_length": 2, "max_offset": 0}, "impossible events"),
    ],
)
def test_limits_and_totals_that_do_not_fit_the_events_are_refused(tmp_path: Path, values: dict[str, int], message: str) -> None:
    build([SMALL], tmp_path)
    refused_counts(tmp_path / "bad.run", forged_run((tmp_path / "0.run").read_bytes(), **values), message)


@pytest.mark.parametrize(
    ("lexical", "prior", "counts"),
    [
        ([1 << 63], [2 << 32], ([6], [6])),  # a row beyond all source pieces: writes out of bounds in a merge
        ([31], [1 << 60], ([6], [6])),  # a source of 2^28 pieces
        ([31], [2 << 32 | 2], ([6], [6])),  # a position behind the source
        ([31], [2 << 32 | 3 << 16], ([5], [6])),  # counts that are no sum of links
        ([31], [2 << 32], ([6], [0])),
        ([32, 31], [2 << 32], ([3, 3], [6])),  # not ascending
        ([31, 31], [2 << 32], ([3, 3], [6])),
    ],
)
def test_impossible_events_are_refused(
    tmp_path: Path, lexical: list[int], prior: list[int], counts: tuple[list[int], list[int]]
) -> None:
    build([SMALL], tmp_path)
    content = (tmp_path / "0.run").read_bytes()
    refused_counts(tmp_path / "bad.run", with_events(content, lexical, prior, counts), "impossible events")


def test_possible_events_are_accepted(tmp_path: Path) -> None:
    build([SMALL], tmp_path)
    content = with_events((tmp_path / "0.run").read_bytes(), [31], [2 << 32], ([6], [6]))
    (tmp_path / "good.run").write_bytes(content)
    assert merge_candidates([tmp_path / "good.run"], tmp_path / "out.bin").linked == 6


@pytest.mark.parametrize(
    "values",
    [
        {"id_bytes": 0},
        {"id_bytes": 1},
        {"id_bytes": 4},
        {"id_bytes": 1 << 31, "entries": 1 << 31},  # the product is 2^62, and wraps with more bytes
        {"source_size": (1 << 32) - 1},
        {"target_size": 0},
        {"max_length": 1 << 16},
        {"max_source": (1 << 32) - 1},
        {"top": 0},
        {"slope": float("nan")},
        {"intercept": 1e300},
        {"tension": -1.0},
        {"backoff": float("inf")},
    ],
)
def test_tables_with_an_impossible_header_are_refused(tmp_path: Path, values: dict[str, float]) -> None:
    build([SMALL], tmp_path)
    path = tmp_path / "bad.bin"
    path.write_bytes(forged_tables((tmp_path / "tables.bin").read_bytes(), **values))
    with pytest.raises(ValueError, match=r"bad\.bin: expected candidate tables, got a file with an impossible header"):
        CandidateTables.load(path)


def test_tables_whose_sections_do_not_add_up_are_refused(tmp_path: Path) -> None:
    build([SMALL], tmp_path)
    path = tmp_path / "bad.bin"
    content = (tmp_path / "tables.bin").read_bytes()
    path.write_bytes(forged_tables(content, entries=(1 << 32) - 1, file_bytes=len(content)))
    with pytest.raises(ValueError, match="was cut off or added to"):
        CandidateTables.load(path)


# ---- alignment models


def saved_model(tmp_path: Path) -> tuple[bytes, list[bytes]]:
    """The file of a model, and its sections."""
    fast_align(PAIRS).model.save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    rows, cells, words, letters = struct.unpack_from("<4Q", content, 8)
    sizes = [8 * (rows + 1), 8 * cells, 4 * cells, 8 * words, letters]
    sections, place = [], MODEL_HEADER
    for size in sizes:
        sections.append(content[place : place + size])
        place += size + -size % 8
    return content, sections


def refused_model(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.align").write_bytes(content)
    with pytest.raises(ValueError, match=rf"bad\.align: expected an alignment model of format FSALIGN2, got {message}"):
        AlignmentModel.load(tmp_path / "bad.align")


def test_every_altered_byte_of_a_model_is_noticed(tmp_path: Path) -> None:
    content, sections = saved_model(tmp_path)
    assert forged_model(content, sections) == content
    padding = MODEL_HEADER + sum(map(len, sections[:3]))
    skipped = range(padding, padding + -len(sections[2]) % 8)
    for place in set(range(len(content))) - set(skipped):
        altered = content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]
        refused_model(tmp_path, altered, "")


@pytest.mark.parametrize(
    ("section", "place", "value", "kind"),
    [
        (0, 1, 1 << 40, "Q"),  # a row that ends behind the file
        (0, 0, 1, "Q"),
        (1, 0, float("nan"), "d"),
        (1, 1, -1.0, "d"),
        (1, 0, float("inf"), "d"),
        (2, 0, 1 << 31, "I"),  # a column that is no word
        (2, 1, 0, "I"),  # not ascending
        (3, 0, 1 << 50, "Q"),  # a word that ends behind the text
    ],
)
def test_models_that_point_outside_are_refused(tmp_path: Path, section: int, place: int, value: float, kind: str) -> None:
    content, sections = saved_model(tmp_path)
    changed = bytearray(sections[section])
    struct.pack_into(f"<{kind}", changed, place * struct.calcsize(kind), value)
    refused_model(tmp_path, forged_model(content, [*sections[:section], bytes(changed), *sections[section + 1 :]]), "rows or words")


@pytest.mark.parametrize(
    "values",
    [{"rows": 1 << 63}, {"cells": (1 << 64) - 8}, {"p0": 1.0}, {"tension": float("nan")}, {"alpha": -1.0}, {"diagonal": 2}],
)
def test_models_with_an_impossible_header_are_refused(tmp_path: Path, values: dict[str, float]) -> None:
    content, sections = saved_model(tmp_path)
    refused_model(tmp_path, forged_model(content, sections, **values), "")


# ---- checkpointed arrays and links


def test_offsets_beyond_their_row_are_refused_and_write_nothing() -> None:
    text = shards.numbered_text(*[(np.array([0, 2, 3]), np.array([0, 1, 1], np.uint32))] * 2, 2, 2)
    options = AlignOptions()
    aligner = shards.shard_aligner(text, options, 4.0)
    cells = shards.cells_of(aligner)
    whole = shards.merge_cells([cells])
    offsets = shards.cell_offsets(whole, cells)
    t = np.full(len(whole.columns), 0.5)
    counts = Counts(np.ones(len(offsets), np.uint64), np.zeros(len(offsets), np.uint32))
    shards.take(aligner, whole.starts, offsets, t)
    for place, bad in ((0, 1 << 31), (len(offsets) - 1, 7)):
        altered = offsets.copy()
        altered[place] = bad
        with pytest.raises(ValueError, match="offsets of cells within their merged row"):
            shards.take(aligner, whole.starts, altered, t)
        with pytest.raises(ValueError, match="offsets of cells within their merged row"):
            shards.maximise(whole.starts, [Part(cells.starts, altered, counts)], options, t)
    backwards = whole.starts.copy()
    backwards[1] = 1 << 40
    for call in (
        lambda: shards.take(aligner, backwards, offsets, t),
        lambda: shards.merge_cells([shards.Cells(backwards, whole.columns)]),
        lambda: shards.cell_offsets(shards.Cells(backwards, whole.columns), cells),
    ):
        with pytest.raises(ValueError, match="the starts of rows are not ascending"):
            call()
    with pytest.raises(ValueError, match="expected finite probabilities"):
        shards.take(aligner, whole.starts, offsets, np.full(len(whole.columns), np.nan))


@pytest.mark.parametrize("method", ["intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"])
@pytest.mark.parametrize("position", [(1 << 32) - 1, 1 << 24])
def test_positions_that_wrap_are_refused(method: str, position: int) -> None:
    for link in ((position, 0), (0, position)):
        with pytest.raises(ValueError, match="expected positions below 16777216, got "):
            symmetrize([[link]], [[(0, 0)]], method)


def test_links_to_words_of_other_sentences_are_refused() -> None:
    starts, none = np.array([0, 1, 2]), np.array([-1, -1], np.int32)
    for forward, reverse in ((np.array([0, 1], np.int32), none), (none, np.array([0, 1 << 30], np.int32))):
        with pytest.raises(ValueError, match=r"pair 1: a link leads to position .* of 1 words"):
            symmetrize_arrays(starts, forward, starts, reverse, "union")


# ---- files in use


PROGRAM = """
import os, sys
from fewstep import CandidateTables, NgramModel
from kernels.fast_align.model import AlignmentModel
tables, ngram, model = CandidateTables.load("tables.bin"), NgramModel.load("m.ngram"), AlignmentModel.load("m.align")
def answers():
    return tables.row(10, 0), tables.prior(2, 0), ngram.score(["a", "b"]), model.probability("a", "x"), tables.verify()
before = answers()
for name in ("tables.bin", "m.ngram", "m.align"):
    os.truncate(name, 0)
assert answers() == before
"""


def test_a_file_that_is_truncated_under_its_reader_does_no_harm(tmp_path: Path) -> None:
    """Before files were read, this process ended with SIGBUS."""
    build([SMALL], tmp_path)
    NgramModel.estimate([["a", "b"], ["b"]], 2, discount_fallback=(0.5, 1.0, 1.5)).save(tmp_path / "m.ngram")
    fast_align([(["a", "b"], ["x", "y"])]).model.save(tmp_path / "m.align")
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    assert found.returncode == 0


@pytest.mark.parametrize("load", [NgramModel.load, AlignmentModel.load])
def test_pipes_and_devices_are_refused_without_waiting(tmp_path: Path, load: object) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises((OSError, ValueError), match=path.name):
            load(path)  # type: ignore[operator]
