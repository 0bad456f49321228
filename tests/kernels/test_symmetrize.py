"""Symmetrised alignments, and texts as arrays."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import NgramModel, symmetrize
from kernels.fast_align import command_line
from kernels.reference.symmetrize import symmetrize as reference
from kernels.symmetrize import METHODS, Method, symmetrize_arrays
from tests.shared import public_data

# ---- symmetrisation: worked examples, the slow reference, and the command line


ROOT = Path(__file__).resolve().parents[2]


def parse(text: str) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in (link.split("-") for link in text.split())]


@pytest.mark.parametrize(
    ("method", "expected", "exchanged"),
    [
        ("intersect", "0-0", "0-0"),
        ("union", "0-0 3-2 3-3", "0-0 3-2 3-3"),
        ("grow-diag", "0-0", "0-0"),
        ("grow-diag-final", "0-0 3-2 3-3", "0-0 3-2 3-3"),
        ("grow-diag-final-and", "0-0 3-3", "0-0 3-2"),
    ],
)
def test_by_hand(method: Method, expected: str, exchanged: str) -> None:
    a, b = parse("3-3 0-0"), parse("0-0 3-2")
    assert symmetrize([a, []], [b, []], method) == [parse(expected), []]
    assert symmetrize([b], [a], method) == [parse(exchanged)]


def test_growth_counts_at_once() -> None:
    a, b = parse("0-0 1-1 3-2"), parse("0-0 2-1 3-3")
    assert symmetrize([a], [b], "grow-diag") == [parse("0-0 1-1 2-1 3-2 3-3")]


LINKS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@given(LINKS, LINKS, st.sampled_from(METHODS))
def test_the_slow_reference_agrees(a: list[tuple[int, int]], b: list[tuple[int, int]], method: Method) -> None:
    assert symmetrize([a], [b], method) == [reference(a, b, method)]


@st.composite
def rows_of_links(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The links of each target word to a source word of the pair, and of each source word to a target word."""
    sources, targets = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    sides = [
        st.lists(st.integers(-1, end - 1), min_size=size, max_size=size) for size, end in ((targets, sources), (sources, targets))
    ]
    return draw(sides[0]), draw(sides[1])


@given(st.lists(rows_of_links(), max_size=4), st.sampled_from(METHODS), st.sampled_from([1, 3]))
def test_arrays_are_the_same(rows: list[tuple[list[int], list[int]]], method: Method, threads: int) -> None:
    forward, reverse = [f for f, _ in rows], [r for _, r in rows]
    arrays = []
    for lists in (forward, reverse):
        arrays.append(np.cumsum([0, *map(len, lists)], dtype=np.int64))
        arrays.append(np.array([value for row in lists for value in row], np.int32))
    starts, sources, targets = symmetrize_arrays(*arrays, method, threads=threads)
    got = [list(zip(sources[a:b].tolist(), targets[a:b].tolist(), strict=True)) for a, b in pairwise(starts)]
    pairs = [
        ([(i, j) for j, i in enumerate(f) if i >= 0], [(i, j) for i, j in enumerate(r) if j >= 0])
        for f, r in zip(forward, reverse, strict=True)
    ]
    assert got == symmetrize([f for f, _ in pairs], [r for _, r in pairs], method)


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="no method is called grow-all; choose one of intersect, union"):
        symmetrize([[]], [[]], "grow-all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="zip"):
        symmetrize([[]], [], "union")
    one, none = np.array([0, 1], np.int64), np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="starts do not fit the positions"):
        symmetrize_arrays(one, none, one, none, "union")
    with pytest.raises(ValueError, match="directions of unequal numbers of pairs"):
        symmetrize_arrays(one, np.zeros(1, np.int32), one[:1], none, "union")


def command(folder: Path, first: str, second: str, method: str) -> subprocess.CompletedProcess[str]:
    (folder / "a").write_text(first)
    (folder / "b").write_text(second)
    arguments = [sys.executable, "-m", "kernels.symmetrize", "-i", str(folder / "a"), "-j", str(folder / "b"), "-c", method]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)


def test_command_line(tmp_path: Path) -> None:
    ran = command(tmp_path, "0-0 3-3\n\n1-1 ||| -3.5\n", "0-0 3-2\r\n0-1\na b ||| c d ||| 1-1 ||| -2\n", "grow-diag-final-and")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0-0 3-3\n0-1\n1-1\n", "")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("0-0\n", "expected files of equally many lines, got 1 and 2"),
        ("0-0\n0-x\n", "a, line 2: expected links such as 0-0 1-2, got '0-x'"),
        ("0-0\na ||| 0-0 ||| 3\n", "a, line 2: expected links, `links ||| score` or"),
        ("0-0\n0-99999999999\n", "a, line 2: expected links such as 0-0 1-2"),
    ],
)
def test_command_line_with_bad_files(tmp_path: Path, first: str, message: str) -> None:
    ran = command(tmp_path, first, "0-0\n0-0\n", "union")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert message in ran.stderr


def test_joined_links_are_upstreams() -> None:
    golden = public_data("golden")
    forward, reverse, joined = (
        [parse(line) for line in (golden / f"fast_align.{name}.links").read_text().splitlines()]
        for name in ("forward", "reverse", "grow-diag-final-and")
    )
    assert symmetrize(forward, reverse) == joined


# ---- files that are no plain text are refused by the tools that read text, not counted as words


PAIRS = "ein haus ||| a house\nein hund ||| a dog\n" * 9
FILES = {
    "gzip": gzip.compress(PAIRS.encode()),
    "zstd": b"\x28\xb5\x2f\xfd" + PAIRS.encode(),
    "UTF-16": PAIRS.encode("utf-16"),
    "UTF-16 or UTF-32": PAIRS.encode("utf-16-be"),
}


@pytest.mark.parametrize("kind", FILES)
def test_tools_refuse_what_is_no_plain_text(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, plain = tmp_path / "text", tmp_path / "plain"
    path.write_bytes(FILES[kind])
    plain.write_text(PAIRS)
    options = {"order": 2, "discount_fallback": (0.5, 1.0, 1.5)}
    with pytest.raises(ValueError, match=f"text: expected .*, got (an? )?{kind}"):
        NgramModel.estimate(path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"text: expected .*, got (an? )?{kind}"):
        NgramModel.estimate(plain, **options).perplexity(path)  # type: ignore[arg-type]
    assert command_line.main(["-i", str(path), "-d"]) == 1
    assert f"{path}: expected " in capsys.readouterr().err


@pytest.mark.parametrize("packed", [True, False])
def test_the_standard_input_of_the_aligner_is_looked_at(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = tmp_path / "plain"
    text.write_text(PAIRS * 2000)  # more than a pipe holds
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert command_line.main(["-i", str(text), "-d"]) == 0
    expected = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    given = tmp_path / "given"
    given.write_bytes(gzip.compress(text.read_bytes()) if packed else text.read_bytes())
    kept = os.dup(0)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    try:
        with given.open("rb") as file:
            os.dup2(file.fileno(), 0)
        code = command_line.main(["-i", "-", "-d"])
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    found = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert (code, found) == ((1, b"") if packed else (0, expected))
    assert (b"standard input: expected plain text, got a gzip file" in capfdbinary.readouterr().err) == packed
