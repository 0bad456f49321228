"""Archives whose headers claim what they do not hold: they are refused in little memory and time."""

import gzip
import io
import lzma
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stages.errors import DataError
from stages.shared import expansion
from stages.shared.members import member_names, read_member

GIB = 1 << 30


def header(name: bytes = b"x", size: int = 0, kind: bytes = b"0") -> bytes:
    """Return a header of GNU's format. Sizes beyond 8 GiB are bits."""
    octal = b"%011o\0" % size if size < 8 << 30 else b"\x80" + size.to_bytes(11, "big")
    block = name.ljust(100, b"\0") + b"0000644\0" * 3 + octal + b"0" * 11 + b"\0" + b" " * 8 + kind + b"\0" * 100 + b"ustar  \0"
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 512)


def record(key: bytes, value: bytes) -> bytes:
    """Return a record of an extended header, whose length counts itself."""
    size = len(key) + len(value) + 3
    size += len(str(size + len(str(size))))
    return b"%d %s=%s\n" % (size, key, value)


HOSTILE = {
    "a name of 8 GB": header(size=8 * 10**9, kind=b"L"),
    "a link of 2^80 bytes": header(size=1 << 80, kind=b"K"),
    "an extended header of 4 GB": header(size=4 << 30, kind=b"x"),
    "a global header of 4 GB": header(size=4 << 30, kind=b"g"),
    "a name of 5,000 bytes": header(size=5000, kind=b"L") + padded(b"n" * 5000) + header(),
    "a name of 5,000 bytes in records": header(size=5015, kind=b"x") + padded(record(b"path", b"n" * 5000)) + header(),
    "a sparse file of GNU": header(size=0, kind=b"S"),
    "a sparse file of pax": header(size=25, kind=b"x") + padded(record(b"GNU.sparse.major", b"1")[:25]) + header(),
    "records without lengths": header(size=500_000, kind=b"x") + padded(b"1" * 500_000) + header(),
    "a record that is longer than its header": header(size=10, kind=b"x") + padded(b"9999 a=bc\n") + header(),
    "a size that is no number": header()[:124] + b"x" * 12 + header()[136:],
    "a size of digits that are no octal ones": header()[:124] + b"99999999999\0" + header()[136:],
    "a size of 20 digits": header(size=29, kind=b"x") + padded(record(b"size", b"9" * 20)) + header(size=5) + padded(b"hello"),
    "a member that is not there": header(size=1 << 70),
    "headers without members": header(size=0, kind=b"L") * 5000 + header()[:100],
}


def read(path: Path) -> list[bytes]:
    return list(blocks(path, "x"))


def blocks(path: Path, member: str) -> Iterator[bytes]:
    return read_member(path, member, lambda stream: iter(lambda: stream.read(1 << 16), b""))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("attack", HOSTILE)
@pytest.mark.parametrize("use", [member_names, read])
def test_a_hostile_header_is_refused(
    tmp_path: Path, attack: str, compress: Callable[[bytes], bytes], use: Callable[[Path], object]
) -> None:
    path = tmp_path / "c.tar"
    path.write_bytes(compress(HOSTILE[attack]))
    with pytest.raises(DataError, match=r"c\.tar: expected an intact archive"):
        use(path)


CODE = """
import resource, sys
from pathlib import Path
from stages.shared.members import member_names, read_member
from stages.errors import DataError
resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))
path = Path(sys.argv[1])
blocks = lambda stream: iter(lambda: stream.read(1 << 16), b"")
for use in (lambda: member_names(path), lambda: list(read_member(path, "x", blocks))):
    try:
        print(len(use()))
    except DataError as error:
        print(error)
"""


def sparse_tar(path: Path) -> None:
    """A name of 8 GB, in a file that takes no space."""
    with path.open("wb") as file:
        file.write(header(size=8 * 10**9, kind=b"L"))
        file.truncate(8 * GIB)


def expanding_tar(path: Path) -> None:
    """A member of 100 GB to be passed over, of which 200 MB are there."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header(b"y", 100 * GIB))
        for _ in range(12):
            file.write(bytes(16 << 20))


def names_without_end(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(11):
            file.write(header(b"z") * 10_000)


def sparse_zip(path: Path) -> None:
    """A directory of 3 GB, in a file that takes no space."""
    with path.open("wb") as file:
        file.truncate(3 * GIB)
        file.seek(0, io.SEEK_END)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65_535, 65_535, 3 * GIB, 0, 0))


def expanding_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x", "w") as file:
        for _ in range(12):
            file.write(bytes(16 << 20))


def dictionary_of_xz(path: Path) -> None:
    """A small archive that needs a dictionary of 1 GiB."""
    large = {"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "preset": 0}
    path.write_bytes(lzma.compress(header() + bytes(1024), filters=[large]))


@pytest.mark.parametrize("write", [sparse_tar, names_without_end, sparse_zip])
def test_an_archive_is_refused_in_bounded_memory(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "c.tar")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "c.tar")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("expected") == 2, done.stdout


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_the_library_expands_without_bound_is_refused(tmp_path: Path, method: int) -> None:
    """A kilobyte of bzip2 took 1.2 GB, since the library expands all of it at the first read."""
    with zipfile.ZipFile(tmp_path / "c.zip", "w", method) as archive:
        archive.writestr("x", "text\n")
    with pytest.raises(DataError, match=r"expected an intact archive .*, got: x: a compression other than deflate"):
        list(blocks(tmp_path / "c.zip", "x"))


def test_long_names_are_compared_in_part(tmp_path: Path) -> None:
    """Names of 64 KB, each of which took seconds to compare with the one that is missing."""
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for number in range(30):
            archive.writestr("ted/en.x" * 8000 + str(number), "")
    with pytest.raises(DataError, match=r"expected the member x/text.de in the archive, got (ted/en.x){12}ted/, .* \(30 files\)"):
        list(blocks(tmp_path / "c.zip", "x/text.de"))


@pytest.mark.parametrize("write", [expanding_tar, expanding_zip, dictionary_of_xz])
def test_an_archive_that_expands_is_refused(tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_RATIO", 2)
    write(tmp_path / "c.tar")
    with pytest.raises(DataError, match=r"expected (at most .* bytes of text|an intact archive)"):
        sum(map(len, expansion.within_ratio(tmp_path / "c.tar", blocks(tmp_path / "c.tar", "x"))))


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_and_contents_are_those_of_tarfile(tmp_path: Path, kind: int) -> None:
    folders = "long/" * 40
    members = {"a": b"1" * 600, f"{folders[:140]}name": b"22", "ü/" + "b" * 60: b"", "empty/c": b"x" * 1024}
    with tarfile.open(tmp_path / "c.tar", "w", format=kind) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for kind_, name in ((tarfile.DIRTYPE, "folder"), (tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "hard")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind_, "a"
            archive.addfile(info)
    for compress in (bytes, gzip.compress, lzma.compress):
        path = tmp_path / "packed.tar"
        path.write_bytes(compress((tmp_path / "c.tar").read_bytes()))
        assert member_names(path) == list(members)
        for name, content in members.items():
            assert b"".join(blocks(path, name)) == content
