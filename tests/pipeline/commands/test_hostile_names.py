"""Names of files from elsewhere with line feeds: none looks like a line of its own."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path

import pytest

from fewstep.access import access_problem
from pipeline.__main__ import main
from pipeline.store.marker import open_store
from stages.errors import DataError
from stages.shared.members import matching_members, read_member

NAME = "x\nforged: all is well\t\x1b[31m"
SHOWN = "x\\nforged: all is well\\t\\x1b[31m"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    output = capsys.readouterr()
    assert "\nforged" not in output.out + output.err
    return output.err


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_folder_with_such_a_name_in_it_is_refused_by_init(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "po" / (f"{NAME}.po" if place == "file" else f"{NAME}/a.po")
    path.parent.mkdir(parents=True)
    path.write_text('msgid "a"\nmsgstr "b"\n')
    error = refused(capsys, "init", str(tmp_path / "po"), "--output", str(tmp_path / "out"))
    assert f"{SHOWN}" in error
    assert "expected a path without control characters; rename the file or folder" in error
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_matches_such_a_name_is_refused_by_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("en", "de"):
        (tmp_path / f"{NAME}.{side}").write_text("a\n" * 100)
    text = {"source": f"{tmp_path}/*.en", "target": f"{tmp_path}/*.de"}
    corpus = {"train": text, "validation": text, "test": {"a": text}}
    config = {"corpus": corpus, "systems": {"s": {"family": "stepwise"}}, "store": {"path": str(tmp_path / "store")}}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    error = refused(capsys, "plan", str(tmp_path / "c.yaml"))
    assert f"{SHOWN}.en" in error
    assert "expected a path without control characters" in error


def test_a_new_directory_has_no_such_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr "b"\n')
    assert SHOWN in refused(capsys, "init", str(tmp_path / "a.po"), "--output", str(tmp_path / NAME))


def test_members_of_archives_are_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(NAME, "text")
    for found in (lambda: matching_members(path, ["*.en"]), lambda: list(read_member(path, "other", lambda file: iter([b""])))):
        with pytest.raises(DataError) as caught:
            found()
        assert SHOWN in str(caught.value)


def test_places_of_a_store_are_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(tmp_path / "store").root
    run = store / "runs" / NAME
    run.mkdir(parents=True)
    (run / "run.json").write_text("{")
    for command in ("gc", "runs"):
        main([command, "--store", str(store)])
        output = capsys.readouterr()
        assert "\nforged" not in output.out + output.err
        assert SHOWN in output.out + output.err


def test_a_file_that_cannot_be_read_is_named_in_one_line() -> None:
    for write in (False, True):
        assert access_problem(f"/a/{NAME}", OSError(errno.EIO, "fault"), write=write).startswith(f"/a/{SHOWN}: ")
