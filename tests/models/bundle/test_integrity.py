"""Sizes and checksums: they agree with zlib, sizes are checked first, and every bit of a description is covered."""

from __future__ import annotations

import errno
import json
import os
import random
import zlib
from pathlib import Path

import pytest

from fewstep.system import integrity
from fewstep.system.description import read_description
from fewstep.system.format import BundleError, write_json
from fewstep.system.integrity import BLOCK, check_parts, measure, seal
from tests.stages.test_dag_analysis import make_system


@pytest.mark.parametrize("size", [0, 1, BLOCK, 2 * BLOCK + 17])
def test_the_checksum_is_that_of_zlib(tmp_path: Path, size: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "part").write_bytes(content[:size])
    assert measure(tmp_path / "part") == {"bytes": size, "crc32": format(zlib.crc32(content[:size]), "08x")}


def test_a_single_bit_of_a_description_counts(tmp_path: Path) -> None:
    directory = make_system(tmp_path).path
    path = directory / "system.json"
    intact, content = read_description(directory), path.read_bytes()
    silent = []
    for bit in random.Random(0).sample(range(8 * len(content)), 400):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            if read_description(directory) != intact:
                silent.append(bit)
        except BundleError:
            pass
    assert not silent


def test_a_description_may_be_laid_out_otherwise(tmp_path: Path) -> None:
    directory = make_system(tmp_path).path
    description = read_description(directory)
    (directory / "system.json").write_text(json.dumps(dict(reversed(description.items())), indent=4, ensure_ascii=True))
    assert read_description(directory) == description
    write_json(directory / "system.json", {**description, "name": "other"})
    with pytest.raises(BundleError, match=r"system.json: expected content of sha256 [0-9a-f]{64}, got [0-9a-f]{64}; .*damaged"):
        read_description(directory)
    write_json(directory / "system.json", seal({**description, "name": "other"}))
    assert read_description(directory)["name"] == "other"


def test_all_sizes_come_before_the_first_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).write_text("part")
    description = {"parts": {name: measure(tmp_path / name) for name in "ab"}}
    check_parts(tmp_path, description)
    os.truncate(tmp_path / "b", 3)
    monkeypatch.setattr(integrity, "measure", lambda path: pytest.fail("read a file"))
    with pytest.raises(BundleError, match=r"b: expected 4 bytes, got 3 bytes"):
        check_parts(tmp_path, description)


def test_a_disk_that_cannot_be_read_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("part")
    description = {"parts": {"a": measure(tmp_path / "a")}}

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(integrity, "measure", broken)
    with pytest.raises(BundleError, match=r"a: expected a readable file, got: Input/output error"):
        check_parts(tmp_path, description)
