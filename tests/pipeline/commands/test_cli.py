"""The command line: its options, its exit codes, what each command prints, text from elsewhere in it, and light planning."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fewstep.text.escape import EscapingFormatter
from pipeline.__main__ import main
from pipeline.commands.output import print_json, print_table
from pipeline.config.load import load_config, resolved
from pipeline.errors import ArtifactError, ConfigError, DataError, StageError, exit_code
from pipeline.run.display import LiveDisplay
from pipeline.run.execute import RunReport
from pipeline.run.progress import _table, rows, show_status
from pipeline.run.run_directory import Run
from tests.pipeline.run_specs import plan_entry, run_spec

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "configs/demo.yaml")


def finished_run(store: Path, name: str = "demo-1") -> Run:
    """Return a finished run with its report."""
    run = Run(store / "runs" / name)
    plan = [plan_entry("score:a", fingerprint="00"), plan_entry("report:run", fingerprint="11", inputs=["score:a"])]
    config = resolved(load_config(Path(DEMO)))
    run.create(run_spec(*plan, run_id=name, config=config, config_file=DEMO, store=str(store)))
    records = store / "report" / "11" / "records"
    records.mkdir(parents=True)
    (records / "report.md").write_text("# demo\n\n| system | BLEU |\n|---|---|\n| a | 33.00 |\n")
    (records.parent / "manifest.json").write_text("{}")
    return run


# ---- shape


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError(["x"]), 2), (DataError("x"), 2), (ArtifactError("x"), 1), (StageError("x"), 1), (ValueError("x"), 1)],
)
def test_exit_codes_of_errors(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_a_wrong_config_ends_with_2_and_all_problems_without_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("name: 1\ncorups: {}\ncorpus: {train: {embedded: 9}}\n")
    for command in ("run", "plan"):
        assert main([command, str(tmp_path / "bad.yaml"), "--set", "benchmark.rounds=1"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [
            "--set benchmark.rounds: benchmark.rounds: expected at least 2, got 1",
            f"{tmp_path}/bad.yaml:1: name: expected text, got 1",
            f"{tmp_path}/bad.yaml:2: corups: expected a known key, got 'corups'; did you mean 'corpus'?",
        ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "CONFIG"), (["pln"], "pln"), (["plan", "--sett", "x", DEMO], "--sett"),
        (["plan", "none.yaml"], "none.yaml: expected a readable YAML file"),
        (["plan", DEMO, "--until", "nothing"], "--until: expected a step or a stage of the plan (corpus:validation, "),
        (["plan", str(ROOT / "configs/multi30k/base.yaml"), "--set", "corpus.train.source=none.en"], "none.en: expected"),
        (["status", "nothing"], "nothing: expected a run of store"),
        (["translate", "nothing"], "nothing: expected a run of store"),
    ],
)  # fmt: skip
def test_what_a_user_got_wrong_ends_with_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/multi30k").mkdir(parents=True)
    for name in ("train", "val", "test_2016"):
        for language in ("en", "de"):
            (tmp_path / f"data/multi30k/{name}.{language}").write_text("a\n")
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_quickstart_config_plans_with_two_files_for_each_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = []
    for text in ("train", "validation", "test.test"):
        for side in ("source", "target"):
            (tmp_path / f"{text}.{side}").write_text(f"{text} {side}\n")
            files += ["--set", f"corpus.{text}.{side}={text}.{side}"]
    assert main(["plan", str(ROOT / "configs/quickstart.yaml"), *files]) == 0
    planned = capsys.readouterr().out
    for system in ("teacher", "shallow", "interleaved"):
        assert f"train:{system}" in planned


@pytest.mark.parametrize(("pairs", "said"), [(40, "corpus.train: this is 3 of the paper's 40 pairs\n"), (3, ""), (2, "")])
def test_plan_says_how_much_of_a_papers_text_there_is(
    pairs: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = []
    for text, lines in (("train", "a\nb\nc\n"), ("validation", "d\n"), ("test.test", "e\n")):
        for side in ("source", "target"):
            (tmp_path / f"{text}.{side}").write_text(lines)
            files += ["--set", f"corpus.{text}.{side}={text}.{side}"]
    assert main(["plan", str(ROOT / "configs/quickstart.yaml"), *files, "--set", f"corpus.paper_pairs={pairs}"]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert ("of the paper's" in printed) == bool(said)


@pytest.mark.parametrize(
    ("error", "code", "said", "traceback"),
    [
        (ArtifactError("broken: here"), 1, "broken: here", False),
        (RuntimeError("unforeseen"), 1, "unforeseen", True),
        (KeyboardInterrupt(), 130, "interrupted", False),
        (BrokenPipeError(), 0, "", False),
    ],
)
def test_how_a_command_ends(
    error: BaseException,
    code: int,
    said: str,
    traceback: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def explain(*_: object) -> None:
        raise error

    monkeypatch.setattr("pipeline.commands.plan.explain", explain)
    monkeypatch.setattr("pipeline.__main__.drop_output", lambda: None)
    assert main(["plan", DEMO, "--set", f"store.path={tmp_path}"]) == code
    err = capfd.readouterr().err
    assert said in err
    assert ("Traceback" in err) == traceback


def test_interrupt_from_the_keyboard(tmp_path: Path) -> None:
    """Send a real SIGINT while a command waits for input."""
    code = (
        "import signal, sys, time, pipeline.plan.explain\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs of a shell ignore it
        "def explain(*_):\n    print('waiting', flush=True)\n    time.sleep(600)\n"
        "pipeline.plan.explain.explain = explain\n"
        "from pipeline.__main__ import main\n"
        f"sys.exit(main(['plan', {DEMO!r}, '--set', 'store.path={tmp_path}']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.strip() == "interrupted; repeat the command to continue"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "pipeline", "plan", DEMO, "--set", f"store.path={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_planning_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from pipeline.__main__ import main\n"
        f"code = main(['plan', {DEMO!r}, '--set', 'store.path={tmp_path}'])\n"
        "heavy = {'torch', 'ray', 'mlflow', 'pyarrow', 'sentencepiece', 'matplotlib', 'sacrebleu'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


# ---- commands


def test_plan_lists_each_step_with_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", DEMO, "--set", f"store.path={tmp_path}", "--until", "vocabulary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["corpus:validation", "corpus:demo", "corpus:train", "vocabulary:joint"]
    assert all("MISS" in line for line in lines[1:-1])
    assert lines[-1] == f"0 of 4 steps are in {tmp_path}"


def test_run_hands_over_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, Any] = {}
    run = finished_run(tmp_path)

    def execute(config: Any, plan: Any, store: Any, *, config_file: str, in_process: bool, force: Sequence[str]) -> RunReport:
        asked.update(
            name=config.name, steps=len(plan.steps), store=store.root, file=config_file, in_process=in_process, force=force
        )
        return RunReport(run, {}, ("score:a",))

    monkeypatch.setattr("pipeline.run.execute.run", execute)
    arguments = ["run", DEMO, "--set", f"store.path={tmp_path}", "--set", "name=mine", "--in-process", "--until", "corpus"]
    assert main([*arguments, "--force", "corpus:train", "--force", "score"]) == 0
    assert asked == {
        "name": "mine", "steps": 3, "store": tmp_path, "file": DEMO, "in_process": True, "force": ["corpus:train", "score"],
    }  # fmt: skip
    out = capsys.readouterr().out
    assert "| a | 33.00 |" in out
    assert str(tmp_path / "report/11/records/report.html") in out


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["run", DEMO, "--until", "corpus", "--in-process", "--until", "score"], "--until"),
        (["plan", DEMO, "--until=corpus", "--until=corpus"], "--until"),
        (["status", "--store", "a", "--store", "b"], "--store"),
        (["translate", "x", "--search", "greedy", "--search", "beam"], "--search"),
        (["init", "a", "b", "--validation", "c", "d", "--validation", "e", "f"], "--validation"),
    ],
)
def test_an_option_that_takes_one_value_is_given_once(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert f"{option}: expected one value, got 2; give the option once" in capsys.readouterr().err


def test_a_run_with_failed_steps_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = RunReport(finished_run(tmp_path), {"train:a": "disk full"}, ())
    monkeypatch.setattr("pipeline.run.execute.run", lambda *_, **__: failed)
    assert main(["run", DEMO, "--set", f"store.path={tmp_path}"]) == 1
    captured = capsys.readouterr()
    assert "train:a failed: disk full" in captured.err
    assert str(failed.run.path / "logs") in captured.err
    assert "33.00" not in captured.out


def test_report_finds_the_latest_run_one_by_name_and_one_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = finished_run(tmp_path)
    for arguments in (["--store", str(tmp_path)], ["demo-1", "--store", str(tmp_path)], [str(run.path)]):
        assert main(["report", *arguments]) == 0
        out = capsys.readouterr().out
        assert "| a | 33.00 |" in out
        assert out.splitlines()[-1] == f"Report: {tmp_path / 'report/11/records/report.html'}"
    (tmp_path / "report/11/manifest.json").unlink()
    assert main(["report", "--store", str(tmp_path)]) == 2
    assert "demo-1: expected a run with a finished report" in capsys.readouterr().err


def test_status_names_the_run_and_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(tmp_path).write_event("run_started", attempt="a", pid=1, host="h", command="c")
    assert main(["status", "--store", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "score:a" in out
    assert "report:run" in out
    assert "demo-1" in out


def test_publish_uses_the_tracking_section_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished_run(tmp_path)
    calls: list[tuple[Path, str]] = []

    def publish(run_dir: Path, settings: Any) -> str:
        calls.append((run_dir, settings.experiment))
        return "a place"

    monkeypatch.setattr("pipeline.commands.publish.publish_run", publish)
    assert main(["publish", "--store", str(tmp_path)]) == 0
    assert calls == [(run.path, "demo")]
    assert "published to a place" in capsys.readouterr().out


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\u202egnp.exe\udcff\x00"


def test_hostile_text_is_escaped_in_each_place_that_shows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_json({"a": HOSTILE, "b": "ä"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"a": HOSTILE, "b": "ä"}
    print_table(("a",), [(HOSTILE,)])
    for error in (DataError(HOSTILE), OSError(5, HOSTILE), ValueError(HOSTILE)):

        def fail(*arguments: object, error: Exception = error, **options: object) -> None:
            raise error

        monkeypatch.setattr("pipeline.commands.runs.all_runs", fail)
        assert main(["runs"]) in (1, 2)
    shown = "".join(capsys.readouterr())
    assert shown.count(r"\x1b]0;title") >= 4
    for text in (printed, shown):
        assert not any(character in text for character in "\x1b\x9b\r\x08\u202e\udcff\x00")


def test_logs_are_escaped() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("fewstep", logging.WARNING, "x", 1, "got %s", (HOSTILE,), sys.exc_info())
    shown = EscapingFormatter("%(message)s").format(record)
    assert shown.count(r"\x1b]0;title") == 2
    assert "\x1b" not in shown


def test_a_name_that_the_locale_cannot_write_ends_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        "данные".encode("iso8859-1")

    monkeypatch.setattr("pipeline.commands.runs.all_runs", fail)
    assert main(["runs"]) == 2
    assert (
        r"expected text in the encoding of the locale, latin-1, got '\u0434'; set LC_ALL=C.UTF-8"
        in capsys.readouterr().err.replace("iso8859-1", "latin-1")
    )


MARKUP = "[red]x[/red][link=http://elsewhere]y[/link] [/]"


def hostile_run(store: Path, **amounts: object) -> Run:
    """Return a run whose step, unit and error are hostile texts, on its way."""
    text = f"{HOSTILE}{MARKUP}".replace("\udcff", "")
    run = Run(store / "runs" / "demo-1")
    run.create(run_spec(plan_entry(f"train:{text}"), store=str(store)))
    run.heartbeat.touch()
    run.write_event("run_started", attempt="a", first=True)
    run.write_event("step_waiting", step=f"train:{text}", error=text)
    run.write_event("step_started", step=f"train:{text}", step_attempt="a-1", directory="x", resources="", workers=1)
    records = store / "train" / "traintrain.partial-a-1" / "records"
    records.mkdir(parents=True)
    progress = {"done": 1, "total": 2, "unit": text, "time": 5.0, "attempt": "a-1", "first_done": 0, "first_time": 1.0}
    (records / "progress.json").write_text(json.dumps(progress | amounts))
    return run


def check_harmless(shown: str) -> None:
    assert MARKUP in shown
    assert r"\x1b]0;title" in shown
    assert not any(character in shown for character in "\x9b\x08\u202e\x00\x07")


def test_the_display_of_a_run_shows_markup_and_escapes_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = hostile_run(tmp_path)
    for terminal in (False, True):
        shown = io.StringIO()
        console = Console(file=shown, width=900, force_terminal=terminal, color_system=None)
        with LiveDisplay(run.path, console=console, poll_seconds=0.01) as display:
            display._poll(progress=True)
        check_harmless(shown.getvalue())
        assert terminal or "\x1b" not in shown.getvalue()
    console = Console(file=(shown := io.StringIO()), width=900)
    console.print(_table(rows(run)[0]))
    check_harmless(shown.getvalue())
    show_status(run.path)
    assert "\x1b" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("number", [10**400, -(10**30), 1e308, float("nan"), float("inf"), "1", None, True, [1]])
@pytest.mark.parametrize("key", ["done", "total", "time", "first_done", "first_time", "unit", "attempt"])
def test_hostile_amounts_end_no_command(tmp_path: Path, number: object, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = hostile_run(tmp_path, **{key: number})
    with (run.path / "events.jsonl").open("a") as file:
        for event in ("run_started", "step_done", "step_failed", "run_finished"):
            for name in ("time", "seconds", "lost_seconds", "deaths", "step"):
                values = {"time": 1.0, "event": event, "step": "train:x", "status": "done", "step_attempt": "a", "first": True}
                file.write(json.dumps(values | {name: number}) + "\n")
    for command in (["status", "demo-1"], ["status", "demo-1", "--json"], ["runs"], ["runs", "--json"]):
        assert main([*command, "--store", str(tmp_path)]) == 0, "".join(capsys.readouterr())
