"""Outputs that cannot be written and inputs that cannot be read: one line that names the place and the remedy."""

import errno
import os
import sys
from pathlib import Path

import pytest

from fewstep import streams
from fewstep.access import OutputError, access_problem, name_problem, named_output, permission_problem, use_utf8, utf8_name
from fewstep.streams import StreamError, open_streams, stream
from tests.unprivileged import unprivileged


def echo(lines: list[str], first: int) -> list[str]:
    return [line.upper() for line in lines]


def translated(source: Path, output: Path | None) -> None:
    with open_streams(source, output, lambda: None) as (_, read, write):
        stream(echo, read, write, batch=1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    return path


def test_a_whole_output_replaces_a_file_with_its_mode(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    output.write_text("before")
    output.chmod(0o640)
    (tmp_path / "link").symlink_to(output)
    seen: list[str] = []

    def looking(lines: list[str], first: int) -> list[str]:
        seen.append(output.read_text())
        return echo(lines, first)

    with open_streams(source, tmp_path / "link", lambda: None) as (_, read, write):
        stream(looking, read, write, batch=1)
    assert (seen, output.read_text()) == (["before", "before"], "ONE\nTWO\n")
    assert (output.stat().st_mode & 0o777, (tmp_path / "link").is_symlink()) == (0o640, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "link", "out.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_leaves_no_half_file_under_the_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    output = tmp_path / "out.txt"
    written = os.write
    room = [4]

    def write(descriptor: int, data: bytes) -> int:
        if descriptor > 2 and not room[0]:
            raise OSError(number, os.strerror(number))
        room[0] -= (size := min(room[0], len(data)) if descriptor > 2 else 0)
        return written(descriptor, data[: size or None])

    monkeypatch.setattr(streams.os, "write", write)
    with pytest.raises(OutputError) as found:
        translated(source, output)
    assert str(found.value).startswith(f"{output}: could not be written: {os.strerror(number)}; ")
    assert str(found.value).endswith(f"; the output so far is in {output}.part")
    assert "\n" not in str(found.value)
    assert not output.exists()
    assert Path(f"{output}.part").read_text() == "ONE\n"


def test_a_disk_that_is_full_at_the_end_leaves_no_file_under_the_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems report it when a file is synced."""

    def full(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(streams.os, "fsync", full)
    with pytest.raises(OutputError, match=f"^{tmp_path}/out.txt: could not be written: Disk quota exceeded; free some space"):
        translated(source, tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()


def test_a_full_device_is_named(source: Path) -> None:
    with pytest.raises(OutputError, match=r"^/dev/full: could not be written: No space left on device; free some space"):
        translated(source, Path("/dev/full"))


def test_a_refused_line_leaves_the_lines_before_it_apart(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"one\n\xff\xfe\xff\xfe\n")
    with pytest.raises(StreamError, match=r"input, line 2: expected UTF-8.*; the output so far is in .*/out\.txt\.part$"):
        translated(tmp_path / "in.txt", tmp_path / "out.txt")
    assert (tmp_path / "out.txt.part").read_text() == "ONE\n"
    assert not (tmp_path / "out.txt").exists()
    (tmp_path / "in.txt").write_bytes(b"\xff\xfe\xff\xfe\n")
    with pytest.raises(StreamError, match=r"input: .*UTF-16[^;]*;(?!.*so far)"):
        translated(tmp_path / "in.txt", tmp_path / "other.txt")
    assert not list(tmp_path.glob("other.txt*"))


def test_a_file_in_a_folder_of_another_is_written_in_place(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.txt"
    output.write_text("before")
    monkeypatch.setattr(streams.os, "access", lambda path, mode: False)
    translated(source, output)
    assert output.read_text() == "ONE\nTWO\n"


@pytest.mark.parametrize(
    ("number", "write", "message"),
    [
        (errno.ENOENT, False, "expected a file that can be read, got: No such file or directory; check the path"),
        (errno.EACCES, True, "could not be written: Permission denied; give this user the right to write there, or name another"),
        (errno.EROFS, True, "could not be written: Read-only file system; give this user the right to write there"),
        (errno.EFBIG, True, "could not be written: File too large; free some space, or name a place on another disk"),
        (errno.ENOENT, True, "could not be written: No such file or directory; check the path"),
        (errno.EIO, True, "could not be written: Input/output error; check the disk or the file server"),
    ],
)
def test_problems_of_files_have_a_remedy(number: int, write: bool, message: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.touch()
    assert access_problem(path, OSError(number, os.strerror(number)), write=write).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("closed", "mode", "letters"), [("a", 0o644, "x"), ("a/b", 0o600, "x"), ("a/b/text", 0o000, "r"), ("a/b/folder", 0o311, "rx")]
)
def test_the_place_that_cannot_be_read_is_named_with_its_mode(tmp_path: Path, closed: str, mode: int, letters: str) -> None:
    path = tmp_path / ("a/b/folder" if closed.endswith("folder") else "a/b/text")
    path.parent.mkdir(parents=True)
    path.mkdir() if closed.endswith("folder") else path.touch()
    (tmp_path / closed).chmod(mode)
    with unprivileged(), pytest.raises(PermissionError) as found:
        os.listdir(path) if closed.endswith("folder") else path.read_bytes()
    with unprivileged():
        problem = access_problem(path, found.value)
        assert permission_problem(tmp_path) is None
    assert problem == (
        f"{path}: expected a path that this user may read, but {tmp_path / closed} has mode {mode:04o} and belongs to the user "
        f"{os.geteuid()}; let its owner give permission (chmod a+{letters})"
    )


@pytest.mark.parametrize("buffering", [-1, 1])
def test_a_full_standard_output_is_named(monkeypatch: pytest.MonkeyPatch, buffering: int) -> None:
    with open("/dev/full", "w", buffering=buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputError, match=r"^standard output: could not be written: No space left on device; "), named_output():
            print("x" * 10, flush=True)
        assert "write" not in vars(full)
        monkeypatch.undo()
        os.dup2(devnull := os.open(os.devnull, os.O_WRONLY), full.fileno())
        os.close(devnull)


def test_a_reader_that_has_gone_away_is_no_error_of_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError), named_output():
            print("x", flush=True)
        monkeypatch.undo()
        os.dup2(devnull := os.open(os.devnull, os.O_WRONLY), gone.fileno())
        os.close(devnull)


def test_a_name_that_is_not_utf_8_is_described_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"b\xff")
    path.write_text("text")
    byte = len(os.fsencode(tmp_path)) + 3
    assert name_problem(path) == f"expected a path in UTF-8, got the byte 0xff at byte {byte}; rename the file or folder"
    with utf8_name(path) as name:
        assert name.isascii()
        assert Path(name).read_text() == "text"
    plain = tmp_path / "ä"
    assert name_problem(plain) is None
    with utf8_name(plain) as name:
        assert name == str(plain)


@pytest.mark.parametrize("encoding", ["iso8859-1", "ascii", "utf-8"])
def test_a_program_starts_again_where_names_are_not_utf_8(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "pipeline", "plan", "ä.yaml"])
    monkeypatch.setenv("PYTHONUTF8", "0")
    use_utf8()
    assert started == ([] if encoding == "utf-8" else [[sys.executable, "-X", "utf8", "-m", "pipeline", "plan", "ä.yaml"]])
    assert os.environ["PYTHONUTF8"] == ("0" if encoding == "utf-8" else "1")
