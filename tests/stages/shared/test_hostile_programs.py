"""Programs that a config names and whose output has no end, no sense or a reader that waits for ever."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stages.artifacts import ExternalFile
from stages.corpus import FilterCommand
from stages.corpus.contents import judged
from stages.errors import DataError, StageError, TransientError
from stages.external.process import Translator
from stages.score.metrics import comet
from stages.shared.decoding.sentences import Sentence
from stages.shared.programs import run_to_end
from stages.shared.scoring import kytea
from stages.shared.scoring.comet import comet_score, sentence_scores
from tests.processes import FAST_SECONDS
from tests.stages.comet_program import program
from tests.stages.steps import context_in

ENDLESS = "import os\nwhile True: os.write({}, b'x' * 65536)"
DAEMON = """
import subprocess, sys
child = subprocess.Popen(['sleep', '600'], start_new_session=True, stdin=subprocess.DEVNULL)
open({!r}, 'w').write(str(child.pid))
"""
"""It leaves a process behind that holds its output and its messages open."""


def script(path: Path, code: str) -> str:
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("stream", "what"), [(1, "1,0[0-9]{2},[0-9]{3} bytes of output"), (2, "67,108,864 bytes of messages")])
def test_output_without_an_end_is_refused(stream: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = ENDLESS.format(stream)
    with pytest.raises(StageError, match=f"place: expected at most {what}"):
        run_to_end([sys.executable, "-c", code], b"", "place", timeout_seconds=FAST_SECONDS)
    filtering = FilterCommand(command=(sys.executable, "-c", code), version="1")
    with pytest.raises(StageError, match=f"corpus.filters.commands: .*expected at most {what}"):
        judged(filtering, ["a"], ["b"])
    monkeypatch.setattr(kytea, "PROGRAM", replace(kytea.PROGRAM, executable=script(tmp_path / "kytea", code)))
    with pytest.raises(StageError, match=f"evaluation.tokenizer: expected at most {what}"):
        kytea.words("text that no other test has")


def test_a_program_may_write_as_much_as_its_lines_need() -> None:
    lines = b"some words\n" * 100_000
    code = "import sys\nfor line in sys.stdin: print(line.rstrip(), 'x' * 1000, sep='\\t')"
    found = run_to_end([sys.executable, "-c", code], lines, "place", timeout_seconds=FAST_SECONDS)
    assert (found.code, found.output.count(b"\n"), len(found.output)) == (0, 100_000, 101_200_000)


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(StageError, match=r"place: expected an end within 0.5 s, got none"):
        run_to_end([sys.executable, "-c", "import time; time.sleep(600)"], b"", "place", timeout_seconds=0.5)


def test_a_process_that_a_program_leaves_behind_keeps_nobody_waiting(tmp_path: Path) -> None:
    code = DAEMON.format(str(tmp_path / "child"))
    try:
        found = run_to_end([sys.executable, "-c", f"{code}\nprint(1)"], b"", "place", timeout_seconds=FAST_SECONDS)
        assert (found.code, found.output) == (0, b"1\n")
        assert Path(f"/proc/{(tmp_path / 'child').read_text()}").exists()
    finally:
        os.kill(int((tmp_path / "child").read_text()), 9)


def test_a_process_that_a_teacher_leaves_behind_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.external.process.GRACE_SECONDS", 1.0)
    code = DAEMON.format(str(tmp_path / "child")).replace("DEVNULL)", "DEVNULL, stdout=subprocess.DEVNULL)")
    teacher = Translator([sys.executable, "-c", f"{code}\nprint(1)"], files=(), environment=(), timeout_seconds=FAST_SECONDS)
    try:
        assert list(teacher.translate(["a"])) == ["1"]
        assert Path(f"/proc/{(tmp_path / 'child').read_text()}").exists()
    finally:
        os.kill(int((tmp_path / "child").read_text()), 9)


def test_a_line_of_a_teacher_without_an_end_is_refused() -> None:
    teacher = Translator([sys.executable, "-c", ENDLESS.format(1)], files=(), environment=(), timeout_seconds=FAST_SECONDS)
    with pytest.raises(DataError, match=r"expected 1 lines, got 0 \(a line of more than 1,048,576 bytes\)"):
        list(teacher.translate(["a"]))


def test_a_teacher_that_writes_bytes_and_no_line_does_not_begin_its_time_again() -> None:
    code = "import os, time\nwhile True: os.write(1, b'x')"
    teacher = Translator([sys.executable, "-c", code], files=(), environment=(), timeout_seconds=0.2)
    with pytest.raises((TransientError, DataError), match=r"no line for 0.2 s|a line of more than"):
        list(teacher.translate(["a"]))


def test_a_score_that_is_no_number_is_refused() -> None:
    filtering = FilterCommand(command=(sys.executable, "-c", "print('nan')"), version="1", min_score=0.5)
    with pytest.raises(DataError, match="expected a number in the last column, got 'nan'"):
        judged(filtering, ["a"], ["b"])


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('{"a": ' + "[" * 100_000, "RecursionError"),
        (json.dumps({"a": [{"COMET": 10**400}]}), "OverflowError"),
        (json.dumps({"a": [{"COMET": 1, "src": "x" * 2_000_000}]}), r"expected at most 1,0[0-9]{2},[0-9]{3} bytes"),
    ],
    ids=["nested", "huge", "large"],
)
def test_scores_of_another_shape_are_refused(written: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(written)
    edit = f"import shutil; shutil.copy({str(tmp_path / 'answer')!r}, given.to_json); sys.exit(0)"
    scored_refused(tmp_path, edit, f"comet-score: expected 1 scores in the JSON of comet-score, got .*{problem}")


def test_a_pipe_in_place_of_scores_keeps_nobody_waiting(tmp_path: Path) -> None:
    scored_refused(tmp_path, "os.mkfifo(given.to_json); sys.exit(0)", "expected a regular file, got a pipe or a device")


@pytest.mark.parametrize("end", ["while True: os.write(2, b'x' * 65536)", "os.write(2, b'x' * (1 << 27)); sys.exit(1)"])
def test_messages_of_comet_fill_neither_memory_nor_disk(end: str, tmp_path: Path) -> None:
    scored_refused(tmp_path, end, "expected at most 67,108,864 bytes of messages|ended with code 1; its last messages: x{16384} ")


def scored_refused(folder: Path, edit: str, message: str) -> None:
    (folder / "model.ckpt").write_text("{}")
    model = ExternalFile(folder / "model.ckpt", "")
    with pytest.raises(StageError, match=message):
        sentence_scores(
            comet_score(program(folder, edit), "evaluation"), model, ["a"], ["b"], ["c"], context_in(folder / "score.partial")
        )


def test_a_version_of_comet_is_a_version(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_text("{}")
    script(tmp_path / "python", "print('\\x1b[2J' * 1000)")
    context = context_in(tmp_path / "score.partial")
    model = ExternalFile(tmp_path / "model.ckpt", "0" * 64)
    found = comet(comet_score(program(tmp_path), "evaluation"), model, [Sentence(0, "a", ("a",))], ["a"], context)
    assert found["signature"].endswith("|version:unknown")
