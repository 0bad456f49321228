"""Checkpoints that were made to exhaust their reader: they are refused before anything of them is built."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.imports import pickles
from models.imports.fairseq_checkpoint import ALLOWED, read_checkpoint
from models.imports.files import ForeignModelError, shown
from models.imports.pickles import check_checkpoint
from models.imports.tensors import load_pickle, read_tensors
from tests.shared import rest_exhaustive

NAMES = [one[1] if isinstance(one, tuple) else f"{one.__module__}.{one.__qualname__}" for one in ALLOWED]
MAGIC = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
"""Pickles in front of the content of an old file."""
FLOATS = b"ctorch\nFloatStorage\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def archive(path: Path, content: bytes, data: bytes = b"", compression: int = zipfile.ZIP_STORED) -> Path:
    """Write a file in the format of today."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, part in (("data.pkl", content), ("byteorder", b"little"), ("data/0", data), ("version", b"3\n")):
            file.writestr(f"archive/{name}", part)
    return path


def old(path: Path, content: bytes, keys: list[str] | None = None) -> Path:
    """Write a file in the format of old versions."""
    path.write_bytes(b"".join(pickle.dumps(part, 2) for part in MAGIC) + content + pickle.dumps(keys or [], 2))
    return path


def word(text: str) -> bytes:
    """Return the operation that makes a text."""
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def number(value: int) -> bytes:
    """Return the operation that makes a number."""
    digits = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(digits)]) + digits


def dictionary(*parts: bytes) -> bytes:
    """Return the operations that make a dictionary of keys and values."""
    return b"}(" + b"".join(parts) + b"u"


def checkpoint(option: bytes, model: bytes = b"}", before: bytes = b"") -> bytes:
    """Return a pickle of a checkpoint with this option; `before` are operations that leave nothing."""
    return b"\x80\x02" + before + dictionary(word("model"), model, word("args"), dictionary(word("arch"), option)) + b"."


def tensor(count: int, size: tuple[int, ...], stride: tuple[int, ...], *, old: bool = False) -> bytes:
    """Return a pickle of a checkpoint with a tensor whose storage claims `count` floats."""
    sizes, strides = (b"(" + b"".join(map(number, values)) + b"t" for values in (size, stride))
    storage = b"(" + word("storage") + FLOATS + word("0") + word("cpu") + number(count) + (b"N" if old else b"") + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    one = REBUILD + b"(" + storage + number(0) + sizes + strides + b"\x89" + hooks + b"tR"
    return checkpoint(word("x"), dictionary(word("a"), one))


def doubled(levels: int, begin: bytes) -> bytes:
    """Return operations that leave a pair which holds the pair below it twice, `levels` times."""
    return begin + b"".join(b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86" for level in range(levels))


def shared(levels: int) -> bytes:
    """Return a pickle of a checkpoint with an option of 2^levels entries."""
    return checkpoint(doubled(levels, b"]"))


def shared_key(levels: int) -> bytes:
    """Return a pickle of a dictionary whose key has a hash of 2^levels steps."""
    return b"\x80\x02" + dictionary(doubled(levels, b"K\x01"), b"K\x01") + b"."


def filled_later(levels: int) -> bytes:
    """Return a pickle of lists that hold one another twice, where the outer ones are put together before the inner ones."""
    made = b"".join(b"]q" + bytes([level]) + b"0" for level in range(levels + 1))
    linked = b"".join(
        b"h" + bytes([level]) + b"(h" + bytes([level + 1]) + b"h" + bytes([level + 1]) + b"e0" for level in range(levels)
    )
    return checkpoint(b"h\x00", before=made + linked)


BYTEARRAY = b"\x80\x02c__builtin__\nbytearray\n(" + number(1 << 40) + b"tR."
ITSELF = b"\x80\x02]q\x00h\x00a."
DEEP = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
DIGITS = checkpoint(b"L" + b"9" * 100_000 + b"L\n")


@pytest.mark.parametrize("write", [archive, old])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (shared(60), "expected at most 10000000 values, with repeated ones written out"),
        (shared(250), "expected at most 10000000 values, with repeated ones written out"),
        (shared_key(60), "expected at most 10000000 values"),
        (filled_later(60), "expected at most 10000000 values"),
        (ITSELF, "expected values that do not hold themselves"),
        (DEEP, "in 200 levels"),
        (DIGITS, "expected a file of torch.save, got"),
        (BYTEARRAY, "refused global (__builtin__|builtins).bytearray; only tensors and settings are read"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.", "expected a file of torch.save, got"),
        (b"\x80\x02" + b"(" * 1000, "expected a file of torch.save, got"),
        (b"\x80\x02h\x07.", "expected a file of torch.save, got"),
        (b"\x80\x02.", "expected a file of torch.save, got"),
        (b"", "expected a file of torch.save, got"),
    ],
)
def test_values_without_end_are_refused(write: Callable[..., Path], content: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt", content)
    assert path.stat().st_size < 300_000
    with pytest.raises(ForeignModelError, match=message) as caught:
        read_checkpoint(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("count", [10**6, 1 << 31, 1 << 40, 1 << 62])
def test_storages_that_a_file_does_not_hold_are_refused(count: int, tmp_path: Path) -> None:
    files = [
        archive(tmp_path / "new.pt", tensor(count, (4, 4), (4, 1)), b"0" * 64),
        old(tmp_path / "old.pt", tensor(count, (4, 4), (4, 1), old=True), ["0"]),
    ]
    for path in files:
        with pytest.raises(ForeignModelError, match=r"expected tensors of at most its [0-9]+ bytes, got"):
            read_checkpoint(path)


def test_tensors_larger_than_their_storage_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", tensor(16, (1 << 20, 1 << 20), (0, 0)), b"0" * 64)
    with pytest.raises(ForeignModelError, match=r"model\.pt: 'a': expected at most as many elements as its storage has"):
        read_checkpoint(path)


def test_a_storage_that_many_tensors_share_is_refused(tmp_path: Path) -> None:
    table = torch.zeros(100, 100)
    torch.save({f"layer{number}": table for number in range(1000)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ForeignModelError, match="expected tensors of at most 4 times the bytes that are stored"):
        read_tensors(tmp_path / "pytorch_model.bin")
    torch.save({f"tied{number}": table for number in range(3)}, tmp_path / "pytorch_model.bin")
    assert len(read_tensors(tmp_path / "pytorch_model.bin")) == 3


def test_records_that_expand_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", tensor(1 << 24, (4, 4), (4, 1)), bytes(1 << 26), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 100_000
    with pytest.raises(ForeignModelError, match="expected records that are stored, got compressed ones"):
        read_checkpoint(path)


def test_records_that_pytorch_alone_reads_are_refused(tmp_path: Path) -> None:
    """It takes DATA.PKL for data.pkl, and a directory at the place that the end of the archive states."""
    hostile, harmless = shared_key(40), tensor(16, (4, 4), (4, 1))
    path = archive(tmp_path / "model.pt", hostile)
    path.write_bytes(path.read_bytes().replace(b"data.pkl", b"DATA.PKL"))
    with pytest.raises(ForeignModelError, match="expected at most 10000000 values"):
        read_checkpoint(path)
    with zipfile.ZipFile(path, "w") as file:
        for name in ("DATA.PKL", "data.pkl", "version"):
            file.writestr(f"archive/{name}", harmless)
    with pytest.raises(ForeignModelError, match="expected each record once"):
        read_checkpoint(path)
    inner, whole = (archive(tmp_path / name, content).read_bytes() for name, content in (("a", hostile), ("b", harmless)))
    size, place = struct.unpack("<II", inner[-10:-2])
    # zipfile finds the second directory, in front of the end, and PyTorch the first one.
    other = struct.unpack("<I", whole[-10:-6])[0]
    path.write_bytes(inner[: size + place] + whole[:-22] + whole[-22:-10] + struct.pack("<IIH", other, place, 0))
    with zipfile.ZipFile(path) as file:
        assert file.getinfo("archive/data.pkl").file_size == len(harmless)
    with pytest.raises(ForeignModelError, match="expected one directory, at the end of the archive"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (dictionary(*(number(count * ((1 << 61) - 1)) + b"K\x01" for count in range(1, 6000))), "at most 5000 keys"),
        (b"c__builtin__\nset\n](" + b"".join(number(count << 64) for count in range(6000)) + b"e\x85R", "at most 5000 keys"),
        (b"](" + (b"}" + doubled(12, b"K\x01") + b"K\x01s") * 20 + b"e", "keys of at most 100000 values"),
    ],
)
def test_keys_with_equal_or_long_hashes_are_refused(values: bytes, message: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "model.pt", b"\x80\x02" + values + b".")
    with pytest.raises(ForeignModelError, match=message):
        read_checkpoint(path)


@pytest.mark.parametrize("limit", rest_exhaustive([10_000, pickles.MAX_OPERATIONS], [10_000]))
def test_many_operations_are_refused(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_OPERATIONS", limit)
    path = archive(tmp_path / "model.pt", b"\x80\x02](" + b"N" * limit + b"e.")
    with pytest.raises(ForeignModelError, match=f"at most 67108864 bytes and {limit} operations"):
        read_checkpoint(path)


def test_a_header_of_millions_of_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 17 << 20) + b" " * (17 << 20))
    with pytest.raises(ForeignModelError, match="expected a header of at most 16,777,216 bytes"):
        read_tensors(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForeignModelError, match=r"model\.safetensors"):
        read_tensors(path)


def test_an_old_file_is_no_archive_because_one_follows(tmp_path: Path) -> None:
    """PyTorch goes by the first bytes, and other readers of archives by the last ones."""
    harmless = archive(tmp_path / "harmless.pt", tensor(16, (4, 4), (4, 1)), b"0" * 64).read_bytes()
    path = old(tmp_path / "model.pt", shared(60))
    path.write_bytes(path.read_bytes() + harmless)
    with pytest.raises(ForeignModelError, match="expected at most 10000000 values"):
        read_checkpoint(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_what_checkpoints_hold_is_read(legacy: bool, tmp_path: Path) -> None:
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
    table = torch.arange(12.0).reshape(3, 4)
    content: Any = {
        "tensors": [torch.ones(3, 2, dtype=kind) for kind in kinds], "parameter": torch.nn.Parameter(table),
        "views": [table.t(), table[1:], table[:, 1]], "words": {"a", "b"}, "bytes": b"x" * 300, "size": torch.Size([2, 3]),
        "kind": torch.float16, "numbers": [1, -1, 2.5, 10**30, None, True, (1, (2, [3]))], "long": [0] * 5000,
    }  # fmt: skip
    torch.save(content, tmp_path / "model.pt", _use_new_zipfile_serialization=not legacy)
    check_checkpoint(tmp_path / "model.pt", NAMES, "tensors")
    found = load_pickle(tmp_path / "model.pt")
    assert all(torch.equal(one, other) for one, other in zip(found["tensors"], content["tensors"], strict=True))
    assert torch.equal(found["parameter"], table)
    assert {key: found[key] for key in ("words", "bytes", "numbers")} == {
        key: content[key] for key in ("words", "bytes", "numbers")
    }


def test_truncated_and_altered_files_are_refused_or_read(tmp_path: Path) -> None:
    for legacy in (False, True):
        buffer = io.BytesIO()
        torch.save({"model": {"a": torch.ones(4, 4)}, "args": {"arch": "x"}}, buffer, _use_new_zipfile_serialization=not legacy)
        whole = buffer.getvalue()
        for place in range(0, len(whole), max(1, len(whole) // 150)):
            for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
                (tmp_path / "model.pt").write_bytes(damaged)
                with contextlib.suppress(ForeignModelError):
                    read_checkpoint(tmp_path / "model.pt")


def test_values_are_shown_shortly() -> None:
    nested: Any = []
    for _ in range(60):
        nested = [nested, nested]
    assert shown(nested) == "list of 2 entries"
    assert shown(10**5000) == "a number of 16610 bits"
    assert shown("\x1b[2J" + "x" * 1000) == "\\x1b[2J" + "x" * 96
    assert [shown(one) for one in (None, True, 3, 0.5, "ü")] == ["none", "True", "3", "0.5", "ü"]
