"""Text files of a config: patterns stand for the files that match them, in an order that is the same for all sides."""

from pathlib import Path

import pytest

from pipeline.config.texts import TextConfig
from pipeline.data.access import DataAccess
from pipeline.plan.text_files import text_files
from pipeline.store.artifacts import Store
from stages.errors import DataError


def names(text: TextConfig, folder: Path) -> list[list[str]]:
    files = text_files(text, DataAccess(Store(folder / "store"), ("en", "de")))
    return [[file.path.name for file in side] for side in (files.source, files.target, files.tsv)]


def test_a_pattern_stands_for_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.en.zst", "a.en.zst", "b.de.zst", "a.de.zst", "other.txt", "deep/c.en.zst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "folder.en.zst").mkdir()
    sides = TextConfig(source=(tmp_path / "*.en.zst", tmp_path / "other.txt"), target=(tmp_path / "[ab].de.zst",))
    assert names(sides, tmp_path) == [["a.en.zst", "b.en.zst", "other.txt"], ["a.de.zst", "b.de.zst"], []]
    assert names(TextConfig(tsv=(tmp_path / "**" / "*.en.zst",)), tmp_path)[2] == ["a.en.zst", "b.en.zst", "c.en.zst"]


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    for name in ("a[1].tsv", "a1.tsv"):
        (tmp_path / name).write_text(name)
    assert names(TextConfig(tsv=(tmp_path / "a[1].tsv",)), tmp_path)[2] == ["a[1].tsv"]


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none-\*\.tsv: expected files that match the pattern, got none"):
        names(TextConfig(tsv=(tmp_path / "none-*.tsv",)), tmp_path)
