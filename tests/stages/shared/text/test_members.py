"""Members of archives and chosen columns: read in place, with errors that name what the file holds."""

import gzip
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.errors import DataError
from stages.shared.text.members import member_names
from tests.stages.corpus.texts import tables

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


def rows(files: TextFiles) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        found = [row for table in tables(files, Path(folder)) for row in table.to_pylist()]
    return [tuple(str(text).strip("\n") for text in row.values()) for row in found]


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
