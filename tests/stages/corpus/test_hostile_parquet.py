"""Parquet files that expand against their footer, or overflow the stack of the library, are refused by a process of its own."""

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.readers import READERS, parquet, parquet_check
from stages.errors import DataError
from stages.shared import expansion
from tests.stages.steps import tables

MIB = 1 << 20


def varint(value: int, size: int = 0) -> bytes:
    """Return a number of Thrift's compact protocol, of at least `size` bytes."""
    found = bytearray()
    while value or not found or len(found) < size:
        found.append(value & 127 | 128)
        value >>= 7
    found[-1] &= 127
    return bytes(found)


def text(name: bytes, kind: int | None = None, children: int | None = None) -> bytes:
    """Return an element of a schema: a column of bytes, or a group."""
    head = b"" if kind is None else b"\x15" + varint(2 * kind) + b"\x25" + varint(0)
    head += b"\x18" if kind is not None else b"\x48"
    return head + varint(len(name)) + name + (b"" if children is None else b"\x15" + varint(2 * children)) + b"\0"


def nested(path: Path, depth: int) -> None:
    """Write a file without rows, whose column lies in groups that lie in each other."""
    elements = [text(b"schema", children=1), *[text(b"a", children=1)] * depth, text(b"x", kind=6)]
    footer = b"\x15\2\x19\xfc" + varint(len(elements)) + b"".join(elements) + b"\x16\0\x19\x0c\0"
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


def lie(path: Path, number: int, other: int) -> None:
    """Replace a number of the footer, wherever it stands, by another one of as many bytes."""
    content = path.read_bytes()
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    old = varint(2 * number)
    assert old in content[start:]
    path.write_bytes(content[:start] + content[start:].replace(old, varint(2 * other, len(old))))


def use(path: Path) -> None:
    list(tables(TextFiles(parquet=(ExternalFile(path, ""),)), path.parent))


def test_the_footer_is_read_once_for_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of 12,000 row groups it was read again, in quadratic time."""
    path, opened = tmp_path / "p.parquet", list[Path]()
    pq.write_table(pa.table({"source": ["a"] * 50, "target": ["b"] * 50}), path, row_group_size=1)
    read = pq.ParquetFile
    monkeypatch.setattr(parquet.pq, "ParquetFile", lambda *arguments, **options: opened.append(path) or read(*arguments, **options))
    assert parquet.checked_groups(path, ("en", "de"), (), whole=True) == [1] * 50
    assert len(opened) == 1


def test_a_text_that_a_dictionary_repeats_beyond_the_ratio_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MIN_CHECKED_BYTES", MIB)
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20_000, pa.int32()), pa.array(["x" * 900, "y" * 900]))
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"source": texts, "target": texts}), path)
    with pytest.raises(DataError, match=r"expected at most 2,[0-9,]+ bytes of text from a file .* which its dictionaries repeat"):
        parquet.checked_groups(path, ("en", "de"), (), whole=True)


@pytest.mark.parametrize("depth", [3, 20_000, 300_000])
def test_a_schema_that_is_nested_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    """A footer of 80 kB overflowed the stack of the library, which ended the process."""
    nested(tmp_path / "p.parquet", depth)
    with pytest.raises(DataError, match=r"p\.parquet: expected"):
        use(tmp_path / "p.parquet")
    if depth > 10:
        with pytest.raises(DataError, match=r"p\.parquet: expected a Parquet file that can be read in"):
            READERS["parquet"].rows(ExternalFile(tmp_path / "p.parquet", ""), None)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("page", [MIB, 1 << 30])
def test_pages_that_expand_against_the_footer_are_refused(
    tmp_path: Path, encoding: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of 170 MB in a file of some kB, whose footer states a few bytes."""
    monkeypatch.setattr(parquet_check, "MEMORY", 64 << 20)
    path, rows = tmp_path / "p.parquet", 200
    column = pa.array(["x" * (850_000)] * rows)
    pq.write_table(
        pa.table({"source": column, "target": pa.array(["y"] * rows)}), path,
        compression="zstd", use_dictionary=False, column_encoding={"source": encoding, "target": "PLAIN"}, data_page_size=page,
    )  # fmt: skip
    stated = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    lie(path, stated, 1000)
    assert path.stat().st_size < 200_000
    with pytest.raises(DataError, match=r"p\.parquet: expected"):
        use(path)


@pytest.mark.parametrize("rows", [301, 1 << 20, (1 << 34) - 1])
def test_rows_that_are_not_there_are_refused(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "p.parquet"
    column = pa.array(["x"] * 300)
    pq.write_table(pa.table({"source": column, "target": column}), path, write_statistics=False)
    content = path.read_bytes()
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    footer = content[start:-8].replace(varint(600), varint(2 * rows))
    path.write_bytes(content[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")
    with pytest.raises(DataError, match=r"p\.parquet"):
        use(path)


def test_lists_without_end_are_no_text(tmp_path: Path) -> None:
    """A row of a list of ten million texts, of which the dictionary holds one."""
    values = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()).take(pa.array([0] * 1_000_000)), ["x"])
    lists = pa.ListArray.from_arrays([0, len(values)], values)
    pq.write_table(pa.table({"source": lists, "target": pa.array(["y"])}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match="column source: expected strings, got list<"):
        use(tmp_path / "p.parquet")


def test_an_honest_file_is_read_as_before(tmp_path: Path) -> None:
    sources = [f"text {number}" for number in range(10_000)]
    pq.write_table(pa.table({"source": sources, "target": sources}), tmp_path / "p.parquet", row_group_size=3000)
    assert parquet_check.row_groups(tmp_path / "p.parquet", ("de", "en"), ()) == [3000, 3000, 3000, 1000]
    assert READERS["parquet"].rows(ExternalFile(tmp_path / "p.parquet", ""), None) == 10_000
