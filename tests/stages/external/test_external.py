"""Programs as teachers: real ones that work, write too few lines, die, and hang."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from stages.artifacts import ExternalFile, Text
from stages.context import StepContext, json_text
from stages.errors import DataError, TransientError
from stages.external import ExternalConfig, ExternalInputs
from stages.external.process import Translator
from stages.external.run import run
from stages.shared.shards import read_shards, shard_path, write_shard
from stages.workers import LocalWorkers, Resources
from tests.processes import running
from tests.waiting import FAST_SECONDS, until

UPPER = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line.decode().upper().encode()); sys.stdout.flush()"
SOURCES = [["one", "two"], ["", "three"], ["four", "fünf"]]


def translate(code, lines, timeout=FAST_SECONDS, **options):
    settings = {"files": (), "environment": (), **options}
    return list(Translator([sys.executable, "-c", code], timeout_seconds=timeout, **settings).translate(lines))


def test_lines_are_translated_in_order_whatever_the_program_buffers():
    lines = [f"línea {number}\u2028x" for number in range(3000)]
    assert translate(UPPER, lines) == [line.upper() for line in lines]
    late = "import sys; lines = sys.stdin.buffer.readlines(); sys.stdout.buffer.writelines(lines)"
    assert translate(late, lines) == lines


def test_wrong_numbers_of_lines_are_errors_of_the_user():
    fewer = "import sys; sys.stderr.write('lost one\\n'); [print(line, end='') for line in list(sys.stdin)[1:]]"
    with pytest.raises(DataError, match=r"expected 3 lines, got 2 \(exit 0\); stderr ends: lost one"):
        translate(fewer, ["a", "b", "c"])
    with pytest.raises(DataError, match=r"expected 2 lines, got 3 \(more lines\)"):
        translate("import sys; [print(1) for _ in range(9)]; sys.stdin.read()", ["a", "b"])
    with pytest.raises(DataError, match="line 1: expected UTF-8"):
        translate("import sys; sys.stdin.read(); sys.stdout.buffer.write(b'\\xff\\n')", ["a"])


def test_programs_that_fail_are_tried_again():
    with pytest.raises(TransientError, match=r"got 1 \(exit 3\); stderr ends: out of luck"):
        translate("import sys; print(1, flush=True); sys.exit(sys.stderr.write('out of luck\\n') and 3)", ["a", "b"])
    with pytest.raises(TransientError, match="signal 9"):
        translate("import os; os.kill(os.getpid(), 9)", ["a" * 100] * 10_000)
    with pytest.raises(DataError, match="expected a program"):
        list(Translator(["/no/such/program"], files=(), environment=(), timeout_seconds=1).translate(["a"]))


def test_a_progress_bar_without_newlines_is_cut_in_messages():
    bar = "import sys; [sys.stderr.write(f'{n} of 100000\\r') for n in range(100_000)]; sys.exit(1)"
    with pytest.raises(TransientError, match=r"99999 of 100000$") as caught:
        translate(bar, ["a"])
    assert len(str(caught.value)) < 12_000


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path):
    marker = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen(['sleep', '600']); open({str(marker)!r}, 'w').write(str(child.pid))\n"
        "print('x', flush=True); time.sleep(600)"
    )
    with pytest.raises(TransientError, match=r"got 1 \(no line for 5 s\)"):
        translate(code, ["a", "b"], timeout=5.0)
    child = int(marker.read_text())
    until(lambda: not running(child))


def test_the_program_sees_its_files_and_named_variables_alone(tmp_path, monkeypatch):
    (tmp_path / "table.txt").write_text("content")
    monkeypatch.setenv("SECRET", "hidden")
    monkeypatch.setenv("MODEL_HOME", "/models")
    shown = "open('table.txt').read(), os.environ.get('SECRET'), os.environ['MODEL_HOME'], os.environ['LANG']"
    code = f"import os, sys; sys.stdin.read(); print({shown})"
    assert translate(code, ["a"], files=[tmp_path / "table.txt"], environment=("MODEL_HOME",)) == ["content None /models C.UTF-8"]


def text_of(directory, sources=SOURCES):
    context = context_of(directory)
    ids = 0
    for index, lines in enumerate(sources):
        numbers = list(range(ids, ids := ids + len(lines)))
        table = pa.table({"id": pa.array(numbers, pa.int64()), "source": lines, "target": ["x"] * len(lines)})
        write_shard(shard_path(directory, index), table, context)
    (directory / "text.json").write_text(json_text({"rows": ids, "shards": len(sources), "shard_rows": 2}))
    return Text(directory, "0" * 32)


def context_of(directory):
    directory.mkdir(parents=True, exist_ok=True)
    resources = Resources(workers=1, cpus=1)
    return StepContext(
        directory=directory, attempt="a", resources=resources, shard_cache=directory / "cache", workers=LocalWorkers()
    )


def rows(directory):
    return [row for table in read_shards(directory) for row in zip(*table.to_pydict().values(), strict=True)]


def test_complete_shards_are_kept_and_only_missing_ones_are_translated(tmp_path):
    text = text_of(tmp_path / "text")
    context = context_of(tmp_path / "external.partial")
    log, fail = tmp_path / "log", tmp_path / "fail"
    code = (
        "import os, sys\n"
        f"for line in sys.stdin:\n    open({str(log)!r}, 'a').write(line)\n"
        f"    if line.strip() == 'four' and not os.path.exists({str(fail)!r}): open({str(fail)!r}, 'w'); sys.exit(1)\n"
        "    print(line.strip().upper(), flush=True)"
    )
    config = ExternalConfig(command=(sys.executable, "-c", code), version="1")
    with pytest.raises(TransientError, match="exit 1"):
        run(ExternalInputs(text, ()), config, context)
    run(ExternalInputs(text, ()), config, context)
    assert rows(context.directory) == [
        (0, "one", "ONE"),
        (1, "two", "TWO"),
        (3, "three", "THREE"),
        (4, "four", "FOUR"),
        (5, "fünf", "FÜNF"),
    ]
    assert log.read_text().split() == ["one", "two", "three", "four", "four", "fünf"]
    assert '"empty": 1' in (context.directory / "distill.json").read_text()


def test_outputs_are_normalised_as_training_text_is(tmp_path):
    text, context = text_of(tmp_path / "text", [["one", "two"], ["three"]]), context_of(tmp_path / "external.partial")
    outputs = "ein\u2581 satz \r\n\u200a\r\nfu\u0308nf\r\n".encode()
    code = f"import sys; sys.stdin.read(); sys.stdout.buffer.write({outputs!r})"
    run(ExternalInputs(text, ()), ExternalConfig(command=(sys.executable, "-c", code), version="1"), context)
    assert rows(context.directory) == [(0, "one", "ein satz"), (2, "three", "fünf")]


def test_files_and_version_enter_the_fingerprint_and_limits_do_not():
    from pipeline.plan.fingerprint import canonical

    config = ExternalConfig(command=("a",), version="1", timeout_seconds=3.0, shards_per_process=2)
    assert canonical(config) == canonical(ExternalConfig(command=("a",), version="1"))
    assert canonical(config) != canonical(ExternalConfig(command=("a",), version="2"))
    inputs = [ExternalInputs(Text(Path("x"), "f"), (ExternalFile(Path("y"), digest),)) for digest in ("1", "2")]
    assert canonical(inputs[0]) != canonical(inputs[1])
