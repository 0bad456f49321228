"""The commands `python -m fewstep translate` and `fewstep` of a wheel and of a checkout."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fewstep
from fewstep import streams
from fewstep.__main__ import main
from fewstep.streams import json_text
from fewstep.system.format import write_json
from fewstep.system.integrity import seal
from tests.architecture import ROOT
from tests.fewstep.systems import LINES, write_systems

CONSOLE = "import sys; from fewstep.console import main; sys.exit(main())"
ELSEWHERE = (
    f"import sys; sys.meta_path[:] = [one for one in sys.meta_path if 'ScikitBuild' not in type(one).__name__]; {CONSOLE[12:]}"
)
"""The same where no checkout is installed, whose finder would come before all folders."""


def run(*arguments: str, source: str = "", code: str | None = None, **settings: object) -> subprocess.CompletedProcess[str]:
    program = ["-m", "fewstep"] if code is None else ["-c", code]
    options = {"capture_output": True, "text": True, "cwd": ROOT, "input": source} | settings
    return subprocess.run([sys.executable, *program, *arguments], **options)  # type: ignore[call-overload,no-any-return]


def test_lines_are_translated_without_torch(systems: dict[str, Path]) -> None:
    code = "import sys; sys.modules['torch'] = None; from fewstep.__main__ import main; sys.exit(main())"
    source = "".join(f"{line}\n" for line in LINES)
    for name, search in (("autoregressive", "beam"), ("dag", "walk"), ("lattice", "best"), ("head", "gad")):
        ran = run("translate", str(systems[name]), "--search", search, "--threads", "1", source=source, code=code)
        assert (ran.returncode, ran.stdout.splitlines()) == (0, fewstep.load(systems[name]).translate(LINES, search))
        assert ran.stderr == "WARNING: line 8: cut to 23 tokens, got 30\n"


def written(translation: fewstep.Translation) -> dict[str, Any]:
    """Return a translation as JSON knows it, without tuples."""
    return translation._asdict() | {"unknown": list(translation.unknown)}


def test_json_holds_what_python_returns(systems: dict[str, Path], tmp_path: Path) -> None:
    system, source, output = fewstep.load(systems["autoregressive"]), tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{line}\n" for line in LINES))
    files = ["translate", str(systems["autoregressive"]), "--input", str(source), "--output", str(output), "--search", "beam"]
    assert main([*files, "--json"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines == [written(ranked[0]) for ranked in system.hypotheses(LINES, None, "beam")]
    assert main([*files, "--n-best", "2", "--batch", "1"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines == [[written(one) for one in ranked] for ranked in system.hypotheses(LINES, 2, "beam")]


def test_numbers_that_json_lacks_are_null() -> None:
    """Without a path a lattice scores minus infinity, and a token without a rival has an infinite confidence."""
    found = fewstep.Translation("", -math.inf, 1, {"confidences": [0.5, math.inf, math.nan]})
    read = {"sentences": 1, "cut": 0, "unknown": [], "replaced": 0, "put_back": 0}
    expected = {"text": "", "score": None, "steps": 1, "statistics": {"confidences": [0.5, None, None]}} | read
    assert [json.loads(json_text(value)) for value in (found, [found])] == [expected, [expected]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--search", "bean"],
            "--search bean: search: expected one of beam, gnmt, greedy, int8, short, or a derived label, got 'bean'",
        ),
        (["--search", "sample"], "sample: strategy: expected greedy or beam in native code, got sample"),
        (["--search", "beam", "--n-best", "9"], "beam: n_best: expected at most 3, the size of the beam, got 9"),
        (["--input", "nowhere"], "nowhere: expected a file that can be read, got: No such file or directory"),
        (["--threads", "0"], "argument --threads: expected at least 1, got 0"),
        (["--batch", "many"], "argument --batch: invalid"),
    ],
)
def test_bad_input_is_explained_and_the_output_kept(
    systems: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "out").write_text("precious")
    try:
        code = main(["translate", str(systems["autoregressive"]), "--output", str(tmp_path / "out"), *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "precious"


def test_broken_systems_end_with_another_code_than_foreign_directories(
    systems: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", str(tmp_path)]) == 2
    assert "expected a directory with a system" in capsys.readouterr().err
    directory = Path(shutil.copytree(systems["dag"], tmp_path / "system"))
    os.truncate(directory / "model.safetensors", 1000)
    assert main(["translate", str(directory)]) == 1
    assert "model.safetensors: expected" in capsys.readouterr().err
    described = json.loads((directory / "system.json").read_text())
    del described["sha256"]
    write_json(directory / "system.json", seal(described | {"format": 99}))
    assert main(["translate", str(directory), "--no-verify"]) == 1
    assert "got 99; use the version of fewstep that wrote it, or a later one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["translate", "x", "--search", "a", "--search", "b"], ["serve", "x", "--port=1", "--port=1"]]
)
def test_an_option_that_takes_one_value_is_given_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "expected one value, got 2; give the option once" in capsys.readouterr().err


def test_a_closed_pipe_ends_the_program_quietly(systems: dict[str, Path]) -> None:
    pipe = f"import sys; from fewstep.__main__ import main; sys.exit(main(['translate', {str(systems['dag'])!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", pipe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"ein hund\n")
        assert process.stdout.readline().strip()
        process.stdout.close()
        process.stdin.write(b"zwei\n")
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_the_program_of_a_checkout_is_that_of_the_pipeline(systems: dict[str, Path], tmp_path: Path) -> None:
    help_text = run("--help", code=CONSOLE, cwd=tmp_path)
    assert help_text.returncode == 0
    assert "translate" in help_text.stdout
    assert "doctor" in help_text.stdout


def test_the_program_of_a_wheel_is_that_of_the_runtime(systems: dict[str, Path], tmp_path: Path) -> None:
    """A package of another project that is called pipeline does not change it."""
    shutil.copytree(ROOT / "fewstep", tmp_path / "fewstep", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pipeline").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "pipeline" / name).write_text("raise SystemExit('a package of another project')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    ran = run("translate", str(systems["dag"]), source="ein hund\n", code=ELSEWHERE, cwd=tmp_path, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == fewstep.load(systems["dag"]).translate(["ein hund"])
    assert "doctor" not in run("--help", code=ELSEWHERE, cwd=tmp_path, env=environment).stdout
    assert run("--version", code=ELSEWHERE, cwd=tmp_path, env=environment).stdout.startswith("fewstep")


def test_a_document_is_written_with_its_targets(
    systems: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "de.po", tmp_path / "out.po"
    system = fewstep.load(systems["autoregressive"])
    source.write_text('msgid "ein hund läuft"\nmsgstr ""\n\nmsgid "drei %s"\nmsgstr ""\n\nmsgid "zwei"\nmsgstr "two"\n')
    arguments = ["translate", str(systems["autoregressive"]), "--format", "po", "--search", "beam"]
    assert main([*arguments, "--input", str(source), "--output", str(output)]) == 0
    first, second = (" ".join(text.split()) for text in system.translate(["ein hund läuft", "drei %s"], "beam"))
    marked = "# fewstep: the translation lacks %s\n#, fuzzy\n"
    written = (
        source.read_text()
        .replace('läuft"\nmsgstr ""', f'läuft"\nmsgstr "{first}"')
        .replace('msgid "drei %s"\nmsgstr ""', f'{marked}msgid "drei %s"\nmsgstr "{second}"')
    )
    assert output.read_text() == written
    assert "translated 2 segments, 1 of them to be reviewed; 1 have a translation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "doc"], "--format: expected one of po, tmx, xliff, html, md, txt, got 'doc'"),
        (["--format", "po", "--json"], "--format po: expected no option of lines, got --json; leave it out"),
        (["--overwrite"], "--overwrite: expected --format, got none"),
        (["--format", "po"], "broken, line 1: expected a comment, or a keyword"),
        (["--input", "app.PO"], "app.PO: expected plain text, got a po file by its name; state --format po"),
    ],
)
def test_documents_that_are_refused_leave_the_output(
    systems: dict[str, Path],
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken").write_text("<html>")
    Path("out").write_text("before")
    given = [] if "--input" in arguments else ["--input", "broken"]
    assert main(["translate", str(systems["autoregressive"]), "--output", "out", *given, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert Path("out").read_text() == "before"


def test_a_document_without_end_is_refused(
    systems: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streams, "MAX_DOCUMENT_BYTES", 1000)
    (tmp_path / "a.txt").write_text("ein hund\n" * 1000)
    arguments = ["translate", str(systems["autoregressive"]), "--format", "txt", "--input", str(tmp_path / "a.txt")]
    assert main(arguments) == 2
    assert "expected a document of at most 1,000 bytes, got a longer one; split it" in capsys.readouterr().err


# ---- commands on systems from elsewhere, with limits of memory and processor time: they end with words


MEMORY, SECONDS = 1 << 30, 20
SEARCHES = [
    ("ctc", "beam", "candidates", 1 << 62),
    ("aggressive", "tree", "tree_nodes", 1 << 61),
    ("cmlm", "passes", "iterations", (1 << 31) - 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "serve"])
def test_a_system_with_a_number_at_a_border_ends_a_command_with_words(command: str, tmp_path: Path) -> None:
    systems = write_systems(tmp_path)
    for name, label, option, value in SEARCHES:
        directory = shutil.copytree(systems[name], tmp_path / f"hostile-{name}")
        description = json.loads((directory / "system.json").read_text())
        description["searches"][label][option] = value
        write_json(directory / "system.json", seal(description))
        done = limited(command, str(directory))
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        assert f"{option}: expected a number of at most " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [150, 200, 300, 500])
def test_a_command_translates_or_says_that_memory_is_short(mebibytes: int, tmp_path: Path) -> None:
    done = limited("translate", str(write_systems(tmp_path)["autoregressive"]), memory=mebibytes << 20)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr


def limited(*arguments: str, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    """Run a command of `fewstep` on a line of text, with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    return subprocess.run(
        [sys.executable, "-m", "fewstep", *arguments],
        input="ein hund\n",
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=limit,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
