"""Files that are held in memory, and what they expand to, have bounds."""

import gzip
import os
from pathlib import Path

import pytest

from fewstep import bounded_files
from fewstep.bounded_files import expanded, json_value, read_bounded


def test_files_beyond_the_limit_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    assert read_bounded(tmp_path / "small", 3) == b"abc"
    with pytest.raises(ValueError, match="expected at most 2 bytes, got 3"):
        read_bounded(tmp_path / "small", 2)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="expected at most"):
        read_bounded(tmp_path / "sparse")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="expected a regular file"):
            read_bounded(path)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)


def test_json_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "MAX_JSON_VALUES", 5)
    assert json_value(b'{"a": [1, 2, 3]}') == {"a": [1, 2, 3]}
    for text in (b"[1,2,3,4,5,6]", b"[[[[[[]]]]]]", b'{"a":{"b":{"c":{"d":{"e":{}}}}}}'):
        with pytest.raises(ValueError, match="expected at most 5 values of JSON"):
            json_value(text)


def test_text_that_expands_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "MIN_BYTES", 1 << 20)
    one, two = b"a b\n" * 1000, os.urandom(100_000)
    assert expanded(gzip.compress(one) + gzip.compress(two) + bytes(10)) == one + two
    assert expanded(gzip.compress(b"")) == b""
    with pytest.raises(ValueError, match="expected at most"):
        expanded(gzip.compress(bytes(100 << 20)))
    with pytest.raises(EOFError, match="ended before"):
        expanded(gzip.compress(two)[:-9])
