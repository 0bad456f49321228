"""Lines that would fill the memory are refused by both programs that translate, after the lines before them."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fewstep.__main__ as runtime
import pipeline.__main__ as application
from fewstep import streams
from fewstep.commands import translate as of_runtime
from pipeline.commands import translate as of_pipeline

LINE = 100_000_000


class Upper:
    """A system that returns lines in upper case."""

    default_search = "beam"

    def translate(self, lines: Sequence[str], search: Any = None, **options: Any) -> list[str]:
        return [line.upper() for line in lines]


class Feeder(threading.Thread):
    """Writes two lines and one of 100 MB into a named pipe, until the reader closes it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        os.mkfifo(path)
        self.path = path
        self.taken = 0
        """Bytes that the reader, or the pipe, has taken."""

    def run(self) -> None:
        with suppress(BrokenPipeError), self.path.open("wb", buffering=0) as pipe:
            pipe.write(b"a\nb\n")
            while self.taken < LINE:
                self.taken += pipe.write(b"x" * 65536)
            pipe.write(b"\nc\n")


@pytest.mark.parametrize("main", [runtime.main, application.main], ids=["runtime", "pipeline"])
def test_a_line_of_100_mb_is_refused_while_it_arrives(
    tmp_path: Path,
    main: Callable[[Sequence[str]], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(of_runtime, "_loaded", lambda *_: Upper())
    monkeypatch.setattr(of_pipeline, "_loaded", lambda *_: Upper())
    (tmp_path / "system.json").write_text("{}")
    feeder = Feeder(tmp_path / "pipe")
    feeder.start()
    code = main(["translate", str(tmp_path), "--input", str(tmp_path / "pipe"), "--output", str(tmp_path / "out")])
    feeder.join()
    assert code == 2
    assert "input, line 3: expected at most 1,048,576 bytes, got a longer line; split the line" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.part").read_text() == "A\nB\n"
    assert feeder.taken < 4 * streams.MAX_LINE_BYTES


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000])
@pytest.mark.parametrize("main", [runtime.main, application.main], ids=["runtime", "pipeline"])
def test_names_that_no_file_can_have_are_refused(
    tmp_path: Path, main: Callable[[Sequence[str]], int], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("a\n")
    assert main(["translate", name]) == 2
    assert main(["translate", str(tmp_path), "--input", name]) == 2
    assert "Traceback" not in capsys.readouterr().err
