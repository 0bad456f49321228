"""Links from the upstream program, and its failures."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels import AlignOptions
from stages.align import AlignConfig, AlignInputs
from stages.align.run import run
from stages.align.upstream import parse_log
from stages.errors import DataError, StageError
from tests.stages.align.align_text import ROWS, WORDS, described, functions, table_of, text_of, tokens_of, work_in
from tests.waiting import FAST_SECONDS

UPSTREAM = """\
#!{python} -S
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.waiting import FAST_SECONDS
folder = Path({folder!r})
reverse = "-r" in sys.argv
name = "reverse" if reverse else "forward"
(folder / (name + ".arguments")).write_text(repr((sys.argv[1:], os.environ["OMP_NUM_THREADS"])))
(folder / (name + ".input")).write_bytes(Path(sys.argv[sys.argv.index("-i") + 1]).read_bytes())
{body}
"""

FAITHFUL = "from kernels.fast_align.command_line import main\nsys.exit(main())"


def program(folder: Path, body: str) -> str:
    """A fake of the upstream program that records its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fast_align"
    path.write_text(UPSTREAM.format(python=sys.executable, path=sys.path, folder=str(folder), body=body))
    path.chmod(0o755)
    return str(path)


def upstream(executable: str, **more: Any) -> AlignConfig:
    return AlignConfig(engine="fast_align", unit="words", executable=executable, **more)


def test_the_upstream_program_is_called_and_its_links_are_read(tmp_path: Path) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", [*ROWS, ("é1 " * 60, "f1")]))
    executable = program(tmp_path / "bin", FAITHFUL)
    run(inputs, upstream(executable, max_length=50, p0=0.1, iterations=4), work_in(tmp_path / "out"))
    run(inputs, AlignConfig(unit="words", max_length=50, p0=0.1, iterations=4), work_in(tmp_path / "native"))
    assert table_of(tmp_path / "out") == table_of(tmp_path / "native")
    reported, native = described(tmp_path / "out"), described(tmp_path / "native")
    for name in ("forward", "reverse"):
        assert reported[name]["tension"] == pytest.approx(native[name]["tension"], rel=1e-5)
        assert reported[name]["length_ratio"] == pytest.approx(native[name]["length_ratio"], rel=1e-5)
        assert {key: reported[name][key] for key in ("empty", "too_long", "target_words")} == {
            key: native[name][key] for key in ("empty", "too_long", "target_words")
        }
        for one, other in zip(reported[name]["passes"], native[name]["passes"], strict=True):
            assert one["tensions"] == pytest.approx(other["tensions"], rel=1e-5)
            keys = ("log_likelihood", "perplexity", "null_posterior", "feature")
            assert [one[key] for key in keys] == pytest.approx([other[key] for key in keys], rel=1e-5)
        arguments, threads = eval((tmp_path / f"bin/{name}.arguments").read_text())
        assert threads == "1"
        given = ["-d", "-v", "-o", *(["-r"] if name == "reverse" else []), "-I", "4", "-T", "4.0", "-q", "0.1", "-a", "0.01"]
        assert arguments == ["-i", arguments[1], *given]
        usable = [row for row in ROWS if all(row)]
        assert (tmp_path / f"bin/{name}.input").read_text().splitlines() == [f"{source} ||| {target}" for source, target in usable]
        log = (tmp_path / f"out/records/logs/fast_align.{name}.a1.txt").read_text()
        assert log.startswith("ARG=i\n")
    lines = [json.loads(line) for line in (tmp_path / "out/records/metrics.a1.jsonl").read_text().splitlines()]
    assert lines[2]["reverse_tension"] == reported["reverse"]["tension"]


def test_the_upstream_program_on_pieces_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", FAITHFUL)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    inputs = AlignInputs(tokens_of(tmp_path / "tokens", ROWS))
    run(inputs, AlignConfig(engine="fast_align"), work_in(tmp_path / "out"))
    assert table_of(tmp_path / "out")["forward"] == functions(ROWS, AlignOptions())
    assert (tmp_path / "bin/forward.input").read_text().splitlines()[0] == " ||| ".join(
        next(row for row in ROWS if all(row))
    ).replace("é", "").replace("f", "")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "print('out of cells', file=sys.stderr); sys.exit(3 if reverse else 0)",
            "the reverse run ended with code 3; its last message: out of cells",
        ),
        ("os.kill(os.getpid(), 9)", "run was ended by signal 9; its last message: none"),
        ("print('0-0')", r"expected a line for each of \d+ pairs from the forward run, got 1 lines"),
        (f"{FAITHFUL.splitlines()[0]}\nmain()\nprint()", r"expected a line for each of \d+ pairs from the .* run, got \d+ lines"),
        (
            "[print('0-0 x') for line in open(sys.argv[2])]",
            r"forward run, line 1 \(pair 8\): expected links such as 0-0 1-2, got 'x'",
        ),
        ("[print('99-0') for line in open(sys.argv[2])]", r"expected a link within a pair of \d+ and \d+ words, got 99-0"),
        ("[print('0-0 0-0') for line in open(sys.argv[2])]", r"expected a link within a pair of \d+ and \d+ words, got 0-0"),
        ("[print('0-0') for line in open(sys.argv[2])]", "expected the messages of 5 iterations, got those of 0"),
    ],
)
def test_an_upstream_program_that_fails(tmp_path: Path, body: str, message: str) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS))
    with pytest.raises(StageError, match=message):
        run(inputs, upstream(program(tmp_path / "bin", body)), work_in(tmp_path / "out"))
    assert not (tmp_path / "out/align.json").exists()


def test_a_missing_upstream_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        StageError, match="expected the fast_align program as fast_align, found no such program; install it and give its path"
    ):
        run(inputs, AlignConfig(engine="fast_align", unit="words"), work_in(tmp_path / "out"))
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(StageError, match="broken: expected the fast_align program, but it cannot be run"):
        run(inputs, upstream(str(broken)), work_in(tmp_path / "out"))


def test_words_that_the_upstream_program_cannot_take(tmp_path: Path) -> None:
    executable = program(tmp_path / "bin", FAITHFUL)
    for word in ("|||", "<eps>"):
        inputs = AlignInputs(text_of(tmp_path / word.strip("|<>"), [("a", "b"), ("a", f"b {word} c")]))
        with pytest.raises(DataError, match=r"pair 8: fast_align cannot take the word"):
            run(inputs, upstream(executable), work_in(tmp_path / "out"))
        run(inputs, WORDS, work_in(tmp_path / f"native {word.strip('|<>')}"))
        assert [len(row) for row in table_of(tmp_path / f"native {word.strip('|<>')}")["forward"]] == [1, 3]
    with pytest.raises(DataError, match="no correct gradient"):
        run(inputs, upstream(executable, compatible=False), work_in(tmp_path / "out"))
    with pytest.raises(DataError, match="expected pairs with words on both sides, got none"):
        run(AlignInputs(text_of(tmp_path / "none", [("a", "")])), upstream(executable), work_in(tmp_path / "out"))


def test_both_directions_run_at_once(tmp_path: Path) -> None:
    wait = f"""\
import time
end = time.time() + {FAST_SECONDS}
while not all((folder / (side + ".arguments")).exists() for side in ("forward", "reverse")):
    time.sleep(0.01)
    assert time.time() < end
{FAITHFUL}"""
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), upstream(program(tmp_path / "bin", wait)), work_in(tmp_path / "out"))


def test_messages_of_the_program() -> None:
    text = """\
expected target length = source length * 0.984
ITERATION 1
  log_e likelihood: -1.2911e+06
        perplexity: 1e+09
ITERATION 2
  log_e likelihood: -291671
      posterior p0: 0.0431
 posterior al-feat: -0.134
  1  model al-feat: -0.175 (tension=4)
  2  model al-feat: -0.156 (tension=4.8)
     final tension: 5.9
"""
    assert parse_log(text) == {
        "length_ratio": 0.984,
        "tension": 5.9,
        "passes": [
            {"log_likelihood": -1.2911e6, "perplexity": 1e9, "tensions": []},
            {"log_likelihood": -291671.0, "null_posterior": 0.0431, "feature": -0.134, "tensions": [4.0, 4.8, 5.9]},
        ],
    }
