"""Files and directories survive a power cut at any moment."""

import errno
import os
from pathlib import Path

import pytest

import durable
from tests.simulated_disk import SimulatedDisk, Survivors


def whole(survivors: Survivors) -> None:
    for path, content in survivors.items():
        assert path.split("/")[0].endswith(".tmp") or content in (b"first", b"second"), path


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDisk:
    return SimulatedDisk(tmp_path, monkeypatch, whole)


def test_a_file_is_old_or_new_at_every_cut(disk: SimulatedDisk) -> None:
    path = disk.root / "file"
    durable.write_whole(path, lambda temporary: temporary.write_text("first"), disk.root / "a.tmp")
    assert disk.survivors() == {"file": b"first"}
    durable.write_whole(path, lambda temporary: temporary.write_text("second"), disk.root / "a.tmp")
    assert disk.survivors() == {"file": b"second"}
    assert disk.cuts > 10


def test_a_directory_gets_its_name_with_everything_in_it(disk: SimulatedDisk) -> None:
    made = disk.root / "made.tmp"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "one").write_text("first")
    (made / "deep" / "er" / "two").write_text("second")
    durable.make_directory(disk.root / "new" / "folder")
    durable.rename(made, disk.root / "new" / "folder" / "directory")
    place = "new/folder/directory"
    named = {path: content for path, content in disk.survivors().items() if not path.startswith("made.tmp/")}
    assert named == {f"{place}/one": b"first", f"{place}/deep/er/two": b"second"}


def test_a_directory_that_another_process_did_not_sync_lasts(disk: SimulatedDisk) -> None:
    (disk.root / "new").mkdir()
    made = disk.root / "made.tmp"
    made.write_text("first")
    durable.make_directory(disk.root / "new" / "folder")
    durable.rename(made, disk.root / "new" / "folder" / "file")
    assert disk.survivors()["new/folder/file"] == b"first"


class WithoutRight(durable.RealDisk):
    """A disk on which directories may be entered and not listed."""

    def sync(self, path: Path) -> None:
        raise PermissionError(errno.EACCES, "no right to read", str(path))


def test_parents_that_may_not_be_listed_stay_as_they_are(tmp_path: Path) -> None:
    """Whoever set them up answers for them. A directory that is made there has no lasting name: that is an error."""
    disk = WithoutRight()
    durable.make_directory(tmp_path, disk)
    with pytest.raises(PermissionError):
        durable.make_directory(tmp_path / "new", disk)


def test_a_read_only_file_system_has_nothing_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "fsync", refuse)
    durable.make_directory(tmp_path / "new", durable.RealDisk())
    assert (tmp_path / "new").is_dir()


def test_the_simulation_loses_what_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk(tmp_path, monkeypatch, whole)
    (tmp_path / "a.tmp").write_text("first")
    with pytest.raises(AssertionError, match="file"):
        os.replace(tmp_path / "a.tmp", tmp_path / "file")
    assert disk.survivors() == {}


def test_what_was_not_written_whole_leaves_nothing(tmp_path: Path) -> None:
    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        durable.write_whole(tmp_path / "file", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_a_file_system_that_cannot_sync_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if raised:
        with pytest.raises(OSError, match="Input/output error"):
            durable.sync(tmp_path)
    else:
        durable.sync(tmp_path)
