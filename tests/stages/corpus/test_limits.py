"""Text files that would exhaust memory are refused while they are streamed."""

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.commands import translate
from stages.corpus import limits
from stages.corpus.reader import read_lines
from stages.errors import DataError


def bomb(path: Path, megabytes: int, unit: bytes) -> None:
    """Write a compressed file that expands to many times its size."""
    block = unit * ((1 << 20) // len(unit))
    if path.suffix == ".gz":
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(megabytes):
                file.write(block)
    else:
        path.write_bytes(bytes(pa.Codec("zstd").compress(block * megabytes, asbytes=True)))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_expands_without_end_is_refused(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_CHECKED_BYTES", 4 << 20)
    path = tmp_path / f"bomb.en{suffix}"
    bomb(path, 24, b"a\n")
    with pytest.raises(DataError, match=r"bomb.en.*expected at most .* bytes of text from a file of"):
        for _ in read_lines(path):
            pass


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_long_line_is_refused_with_its_number(tmp_path: Path, before: int, end: bytes) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"a\n" * before + b"x" * (limits.MAX_LINE_BYTES + 1) + end)
    with pytest.raises(DataError, match=rf"text.en, line {before + 1}: expected at most 1,048,576 bytes"):
        list(read_lines(path))


def test_the_longest_valid_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"x" * (limits.MAX_LINE_BYTES - 1) + b"\n" + b"y" * limits.MAX_LINE_BYTES)
    assert [len(line) for lines in read_lines(path) for line in lines.to_pylist()] == [limits.MAX_LINE_BYTES] * 2


def test_pipes_and_devices_are_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="pipe, socket or device"):
            list(read_lines(path))


def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """One line of 400 MB, from a file of a few hundred kilobytes, in a process of at most 1 GiB beside its libraries."""
    bomb(tmp_path / "bomb.gz", 400, b"x")
    code = "import sys\nfrom pathlib import Path\nfrom stages.corpus.reader import read_lines\nlist(read_lines(Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "bomb.gz")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20)),
    )
    assert "DataError" in done.stderr
    assert "line 1: expected at most" in done.stderr


class Upper:
    """A translator that returns lines in upper case."""

    def translate(self, lines: list[str], search: object = None, *, first_line: int = 1) -> list[str]:
        return [line.upper() for line in lines]

    def problems(self, search: object) -> list[object]:
        return []


def test_a_long_line_ends_a_translation_after_the_lines_before_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"a\nb\n" + b"x" * (limits.MAX_LINE_BYTES + 5) + b"\nc\n")
    read, write = os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(DataError, match="input, line 3: expected at most 1,048,576 bytes"):
            translate.stream(Upper(), read, write)
    finally:
        os.close(read)
        os.close(write)
    assert target.read_text() == "A\nB\n"
