"""Readers: all formats give the same rows, errors name file, line and byte, and no file exhausts memory."""

import bz2
import gzip
import io
import lzma
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.streams import MAX_LINE_BYTES
from stages.artifacts import ExternalFile
from stages.corpus import TextFiles, limits
from stages.corpus.lines import read_lines
from stages.corpus.readers import parquet as parquet_files
from stages.errors import DataError
from stages.shared import expansion
from stages.shared.members import member_names
from tests.stages.steps import opened, read_parquet_here, tables

SOURCE = ["A man sleeps.", "Über  den Fluss", "", "日本語 text", "last line"]
TARGET = ["Ein Mann schläft.", "over the river", "x", "y\u2028z", "Ende"]


@pytest.fixture(autouse=True)
def _parquet_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_hostile_parquet.py` reads files in the process that has limits."""
    read_parquet_here(monkeypatch)


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def write(path: Path, lines: list[str], end: str = "\n") -> ExternalFile:
    data = "".join(line + end for line in lines).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstd(data)
    path.write_bytes(data)
    return ExternalFile(path, path.name)


def rows(files: TextFiles) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        found = [row for table in tables(files, Path(folder)) for row in table.to_pylist()]
    return [tuple(str(text).strip() for text in row.values()) for row in found]


EXPECTED = list(zip(SOURCE, TARGET, strict=True))


@pytest.mark.parametrize("suffix", ["", ".txt", ".gz", ".zst"])
def test_lines(tmp_path: Path, suffix: str) -> None:
    files = TextFiles(source=(write(tmp_path / f"s{suffix}", SOURCE),), target=(write(tmp_path / f"t{suffix}", TARGET),))
    assert rows(files) == EXPECTED


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz", ".zst"])
def test_tab_separated(tmp_path: Path, suffix: str) -> None:
    assert rows(TextFiles(tsv=(write(tmp_path / f"p{suffix}", [f"{s}\t{t}" for s, t in EXPECTED]),))) == EXPECTED


@pytest.mark.parametrize("names", [("source", "target"), ("en", "de"), ("left", "right")])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet(tmp_path: Path, names: tuple[str, str], kind: pa.DataType) -> None:
    path = tmp_path / "p.parquet"
    sides = [pa.array(side, pa.string()).cast(kind) for side in (SOURCE, TARGET)]
    pq.write_table(pa.table({"number": range(5), names[0]: sides[0], names[1]: sides[1]}), path, row_group_size=2)
    assert rows(TextFiles(parquet=(ExternalFile(path, ""),))) == EXPECTED


def test_a_missing_value_in_parquet_is_an_empty_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"source": ["a", None], "target": ["b", "c"]}), tmp_path / "p.parquet")
    assert rows(TextFiles(parquet=(ExternalFile(tmp_path / "p.parquet", ""),))) == [("a", "b"), ("", "c")]


def test_files_are_concatenated_in_order(tmp_path: Path) -> None:
    source = (write(tmp_path / "s1", SOURCE[:2]), write(tmp_path / "s2.gz", SOURCE[2:]))
    target = (write(tmp_path / "t1", TARGET),)
    text = opened(TextFiles(source=source, target=target), tmp_path)
    assert text.rows == 5
    assert rows(TextFiles(source=source, target=target)) == EXPECTED
    assert [(side, file.file.path.name, file.rows) for side, file in text.counts()] == [
        ("source", "s1", 2),
        ("source", "s2.gz", 3),
        ("target", "t1", 5),
    ]


def test_windows_line_ends_and_a_last_line_without_end(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes("\n".join(TARGET).encode())
    files = TextFiles(source=(write(tmp_path / "s", SOURCE, "\r\n"),), target=(ExternalFile(tmp_path / "t", ""),))
    assert rows(files) == EXPECTED


PLAIN = st.characters(exclude_categories=["Cs"], exclude_characters="\n\0\x1b")
"""Characters of lines; many zeros and escape sequences are signs of other encodings."""


@given(
    lines=st.lists(st.text(PLAIN, max_size=6), min_size=1, max_size=12),
    block=st.integers(1, 9),
)
def test_lines_do_not_depend_on_block_borders(tmp_path_factory: pytest.TempPathFactory, lines: list[str], block: int) -> None:
    path = tmp_path_factory.mktemp("blocks") / "s"
    write(path, lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansion, "BLOCK_BYTES", block)
        assert [line for part in read_lines(path) for line in part.to_pylist()] == [f"{line}\n" for line in lines]


def test_references_are_read_with_the_target(tmp_path: Path) -> None:
    names = ("s", "t", "r1", "r2")
    one = {name: (write(tmp_path / name, [f"{name} {i}" for i in range(3)]),) for name in names}
    files = TextFiles(source=one["s"], target=one["t"], references=(one["r1"], one["r2"]))
    assert rows(files) == [(f"s {i}", f"t {i}", f"r1 {i}", f"r2 {i}") for i in range(3)]


def test_unequal_lines_name_both_numbers_and_files(tmp_path: Path) -> None:
    files = TextFiles(source=(write(tmp_path / "a.en", ["x"] * 40_000),), target=(write(tmp_path / "a.de", ["y"] * 39_999),))
    with pytest.raises(DataError, match=r"source 40000, target 39999.*a\.en.*a\.de"):
        rows(files)


def test_equal_sums_of_files_that_differ_one_by_one_are_unequal(tmp_path: Path) -> None:
    source = (write(tmp_path / "a.en", ["x"] * 3), write(tmp_path / "b.en", ["x"] * 2))
    target = (write(tmp_path / "a.de", ["y"] * 2), write(tmp_path / "b.de", ["y"] * 3))
    with pytest.raises(DataError, match=r"source 3, target 2.*a\.en.*a\.de"):
        rows(TextFiles(source=source, target=target))


def test_unequal_references(tmp_path: Path) -> None:
    sides = {name: (write(tmp_path / name, ["x"] * lines),) for name, lines in {"s": 3, "t": 3, "r": 2}.items()}
    with pytest.raises(DataError, match="reference 2 2"):
        rows(TextFiles(source=sides["s"], target=sides["t"], references=(sides["r"],)))


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_invalid_utf8_names_file_line_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(expansion, "BLOCK_BYTES", block)
    (tmp_path / "s").write_bytes("gut\nüber\nhalb ".encode() + b"\xff kaputt\nrest\n")
    with pytest.raises(DataError, match=r"/s, line 3: expected UTF-8, got byte 0xff at byte 5 of the line \(byte 15 of the text\)"):
        list(read_lines(tmp_path / "s"))


def test_invalid_utf8_in_parquet_names_the_row(tmp_path: Path) -> None:
    bad = pa.array([b"gut", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"source": bad, "target": ["a", "b"]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"column source, row 2: expected UTF-8"):
        rows(TextFiles(parquet=(ExternalFile(tmp_path / "p.parquet", ""),)))


@pytest.mark.parametrize(("line", "columns"), [("one", 1), ("a\tb\tc", 3), ("", 1)])
def test_a_line_without_two_columns_is_named(tmp_path: Path, line: str, columns: int) -> None:
    file = write(tmp_path / "p.tsv", ["a\tb"] * 20_000 + [line])
    with pytest.raises(DataError, match=rf"p\.tsv, line 20001: expected two columns, source<TAB>target, got {columns}"):
        rows(TextFiles(tsv=(file,)))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd)])
def test_concatenated_compressed_files_are_read_to_the_end(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"p.tsv{suffix}"
    path.write_bytes(compress(b"a\tb\n") + compress(b"c\td\n"))
    assert rows(TextFiles(tsv=(ExternalFile(path, ""),))) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("name", ["text", "text.en", "TEXT.{}", "text.{}"])
@pytest.mark.parametrize(
    ("suffix", "compress"), [("GZ", gzip.compress), ("zst", zstd), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_compressed_files_are_known_by_their_content(
    tmp_path: Path, name: str, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / name.format(suffix)
    path.write_bytes(compress(b"eins\nzwei\n"))
    assert [line for part in read_lines(path) for line in part.to_pylist()] == ["eins\n", "zwei\n"]
    (tmp_path / "plain").write_bytes(b"BZh9 is plain text\n")
    assert [line for part in read_lines(tmp_path / "plain") for line in part.to_pylist()] == ["BZh9 is plain text\n"]


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    good = (write(tmp_path / "t", TARGET),)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"line\n" * 1000)[:-12])
    (tmp_path / "cut.zst").write_bytes(zstd(bytes(range(256)) * 1000)[:-12])
    (tmp_path / "foreign.zst").write_bytes(b"no zstd at all")
    (tmp_path / "wide").write_bytes("a text\n".encode("utf-16"))
    (tmp_path / "zipped").write_bytes(b"PK\x03\x04 and more")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing more")
    for name, message in {
        "none": "expected a file, got none",
        "cut.gz": "readable .gz file",
        "cut.zst": "readable .zst file",
        "foreign.zst": "readable .zst file",
        "wide": "expected UTF-8, got UTF-16",
        "zipped": "expected plain text, got a zip archive",
    }.items():
        with pytest.raises(DataError, match=rf"{name}: .*{message}"):
            rows(TextFiles(source=(ExternalFile(tmp_path / name, ""),), target=good))
    with pytest.raises(DataError, match=r"cut\.parquet"):
        rows(TextFiles(parquet=(ExternalFile(tmp_path / "cut.parquet", ""),)))


def test_parquet_without_two_text_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": ["y"], "c": ["z"]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"expected columns source and target, or en and de.*got a \(string\), b"):
        rows(TextFiles(parquet=(ExternalFile(tmp_path / "p.parquet", ""),)))


def test_formats_are_joined_in_order(tmp_path: Path) -> None:
    pairs = (write(tmp_path / "p", [f"{s}\t{t}" for s, t in EXPECTED[:2]]),)
    pq.write_table(pa.table({"en": ["p"], "de": ["q"]}), tmp_path / "p.parquet")
    parquet = (ExternalFile(tmp_path / "p.parquet", ""),)
    source, target = (write(tmp_path / "s", SOURCE),), (write(tmp_path / "t", TARGET),)
    assert rows(TextFiles(source=source, target=target, tsv=pairs, parquet=parquet)) == [*EXPECTED, *EXPECTED[:2], ("p", "q")]


def test_a_text_without_a_side_is_refused(tmp_path: Path) -> None:
    file = (write(tmp_path / "s", SOURCE),)
    for files in (
        TextFiles(),
        TextFiles(target=file, tsv=file),
        TextFiles(source=file),
        TextFiles(tsv=file, parquet=file, references=(file,)),
    ):
        with pytest.raises(DataError, match="corpus files"):
            rows(files)


MEMBERS = {"README": b"a corpus\n", "de-en/c.de": "Ein Haus\nÜber\n".encode(), "de-en/c.en.gz": gzip.compress(b"a house\nover\n")}
Pack = Callable[[Path, dict[str, bytes]], None]


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def tarred(mode: str) -> Pack:
    def pack(path: Path, members: dict[str, bytes]) -> None:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    return pack


PACKERS = {"c.zip": zipped, "c.tar": tarred("w"), "c.tgz": tarred("w:gz"), "c.tar.gz": tarred("w:gz")}


def pair(path: Path, source: str = "de-en/c.en.gz", target: str = "de-en/c.de") -> TextFiles:
    return TextFiles(source=(ExternalFile(path, "", source),), target=(ExternalFile(path, "", target),))


@pytest.mark.parametrize("name", PACKERS)
def test_members_are_read_in_place(tmp_path: Path, name: str) -> None:
    PACKERS[name](tmp_path / name, MEMBERS)
    assert rows(pair(tmp_path / name)) == [("a house", "Ein Haus"), ("over", "Über")]
    assert member_names(tmp_path / name) == list(MEMBERS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", PACKERS)
def test_a_missing_member_is_named_with_those_in_the_archive(tmp_path: Path, name: str) -> None:
    PACKERS[name](tmp_path / name, MEMBERS)
    with pytest.raises(DataError, match=rf"{name}: expected the member de-en/c\.fr in the archive, got de-en/c\.\w+"):
        rows(pair(tmp_path / name, "de-en/c.fr"))


@pytest.mark.parametrize("name", PACKERS)
def test_a_truncated_archive_is_named(tmp_path: Path, name: str) -> None:
    text = "".join(f"{number * 7919 % 10007} x\n" for number in range(20_000)).encode()
    PACKERS[name](tmp_path / name, {"a": text, "b": text})
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(DataError, match=f"{name}: expected an intact archive"):
        rows(pair(tmp_path / name, "a", "b"))


def test_a_text_file_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "c.zip").write_text("text\n" * 1000)
    with pytest.raises(DataError, match=r"c\.zip: expected an intact archive"):
        rows(pair(tmp_path / "c.zip"))


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    with tarfile.open(tmp_path / "c.tar", "w") as archive:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        archive.addfile(link)
    with pytest.raises(DataError, match="expected the member a in the archive"):
        rows(pair(tmp_path / "c.tar", "a", "a"))


def test_bad_bytes_are_placed_in_the_member(tmp_path: Path) -> None:
    zipped(tmp_path / "c.zip", {"a": b"x\ny\n", "b": b"x\n\xff\n"})
    with pytest.raises(DataError, match=r"c\.zip/b, line 2: expected UTF-8"):
        rows(pair(tmp_path / "c.zip", "a", "b"))


def test_columns_of_lines(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("0.9\tEin Haus\ta house\turl\n\n0.1\tÜber\tover\n")
    file = ExternalFile(tmp_path / "c.tsv", "", columns=(3, 2))
    assert rows(TextFiles(tsv=(file,))) == [("a house", "Ein Haus"), ("", ""), ("over", "Über")]
    with pytest.raises(DataError, match=r"c\.tsv, line 3: expected at least 4 columns, got 3"):
        rows(TextFiles(tsv=(ExternalFile(tmp_path / "c.tsv", "", columns=(4, 2)),)))


NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "translation": pa.array([{"de": "Haus", "en": "house"}, None, {"de": None, "en": "over"}]),
        "a.b": ["p", "q", "r"],
        "note": ["x", "y", "z"],
    }
)


def test_columns_inside_structs(tmp_path: Path) -> None:
    pq.write_table(NESTED, path := tmp_path / "c.parquet")
    expected = [("house", "Haus"), ("", ""), ("over", "")]
    assert rows(TextFiles(parquet=(ExternalFile(path, ""),))) == expected
    assert rows(TextFiles(parquet=(ExternalFile(path, "", columns=("translation.en", "translation.de")),))) == expected
    assert rows(TextFiles(parquet=(ExternalFile(path, "", columns=("translation.en", "a.b")),))) == [
        ("house", "p"),
        ("", "q"),
        ("over", "r"),
    ]


def test_wrong_columns_are_named_with_those_of_the_file(tmp_path: Path) -> None:
    pq.write_table(NESTED, path := tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"expected columns translation\.fr and note, got id \(int64\), translation\.de \(string\)"):
        rows(TextFiles(parquet=(ExternalFile(path, "", columns=("translation.fr", "note")),)))
    with pytest.raises(DataError, match="column id: expected strings, got int64"):
        rows(TextFiles(parquet=(ExternalFile(path, "", columns=("id", "note")),)))


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
    monkeypatch.setattr(expansion, "MIN_CHECKED_BYTES", 4 << 20)
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
    monkeypatch.setattr(parquet_files, "row_groups", lambda *_, whole=True: [4000])  # which refuses it before it is read again
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * size]))
    files, before = parquet(tmp_path / "p.parquet", repeated), pa.total_allocated_bytes()
    allocated: list[int] = []
    with pytest.raises(DataError, match=problem):
        allocated.extend(pa.total_allocated_bytes() - before for _ in tables(files, tmp_path))
    assert files.parquet[0].path.stat().st_size < 5000
    assert max(allocated, default=0) < 200 << 20


def test_a_parquet_file_that_expands_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MIN_CHECKED_BYTES", 4 << 20)
    files = parquet(tmp_path / "p.parquet", pa.array([f"{n:04}" + "x" * 9000 for n in range(1000)]))
    with pytest.raises(DataError, match=r"p.parquet: expected at most 4,194,304 bytes of text and"):
        list(tables(files, tmp_path))


def test_rows_of_a_parquet_file_are_the_same_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "PART_BYTES", 64)
    sources = ["a" * 100, None, "b", *"cde" * 30, "f" * 70, "ß" * 40]
    found = tables(parquet(tmp_path / "p.parquet", pa.array(sources)), tmp_path)
    assert [text for table in found for text in table.column("source").to_pylist()] == [text or "" for text in sources]
