"""Text files that would exhaust memory are refused while they are streamed."""

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewstep.streams import MAX_LINE_BYTES
from stages.artifacts import ExternalFile
from stages.corpus import TextFiles, limits
from stages.corpus.lines import read_lines
from stages.corpus.readers import parquet as parquet_files
from stages.errors import DataError
from tests.stages.corpus.texts import tables


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
    path.write_bytes(b"a\n" * before + b"x" * (MAX_LINE_BYTES + 1) + end)
    with pytest.raises(DataError, match=rf"text.en, line {before + 1}: expected at most 1,048,576 bytes"):
        list(read_lines(path))


def test_the_longest_valid_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"x" * (MAX_LINE_BYTES - 1) + b"\n" + b"y" * MAX_LINE_BYTES)
    assert [len(line) for lines in read_lines(path) for line in lines.to_pylist()] == [MAX_LINE_BYTES] * 2


def test_pipes_and_devices_are_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="pipe, socket or device"):
            list(read_lines(path))


def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """One line of 200 MB, from a file of 200 kB, in a process of at most 300 MiB of data."""
    bomb(tmp_path / "bomb.gz", 200, b"x")
    code = "import sys\nfrom pathlib import Path\nfrom stages.corpus.lines import read_lines\nlist(read_lines(Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "bomb.gz")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20)),
    )
    assert "DataError" in done.stderr
    assert "line 1: expected at most" in done.stderr


def parquet(path: Path, sources: pa.Array) -> TextFiles:
    pq.write_table(pa.table({"source": sources, "target": pa.array(["y"] * len(sources))}), path, compression="zstd")
    return TextFiles(parquet=(ExternalFile(path, ""),))


@pytest.mark.parametrize(
    ("size", "problem"), [(8 << 20, "line 1: expected at most 1,048,576 bytes"), (1 << 20, "in 16,384 consecutive lines")]
)
def test_a_text_that_a_parquet_file_repeats_in_each_row_is_refused_in_bounded_memory(
    tmp_path: Path, size: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_BATCH_BYTES", 100 << 20)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * size]))
    files, before = parquet(tmp_path / "p.parquet", repeated), pa.total_allocated_bytes()
    allocated: list[int] = []
    with pytest.raises(DataError, match=problem):
        allocated.extend(pa.total_allocated_bytes() - before for _ in tables(files, tmp_path))
    assert files.parquet[0].path.stat().st_size < 5000
    assert max(allocated, default=0) < 200 << 20


def test_a_parquet_file_that_expands_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_CHECKED_BYTES", 4 << 20)
    files = parquet(tmp_path / "p.parquet", pa.array([f"{n:04}" + "x" * 9000 for n in range(1000)]))
    with pytest.raises(DataError, match=r"p.parquet: expected at most 4,194,304 bytes of text and"):
        list(tables(files, tmp_path))


def test_rows_of_a_parquet_file_are_the_same_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "PART_BYTES", 64)
    sources = ["a" * 100, None, "b", *"cde" * 30, "f" * 70, "ß" * 40]
    found = tables(parquet(tmp_path / "p.parquet", pa.array(sources)), tmp_path)
    assert [text for table in found for text in table.column("source").to_pylist()] == [text or "" for text in sources]
