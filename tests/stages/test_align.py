"""Links do not depend on workers, shards, kills and the engine; failures of the upstream program are named."""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stages.align.native
from kernels import AlignmentModel, AlignOptions, fast_align, symmetrize
from stages.align import AlignConfig, AlignInputs
from stages.align.run import run
from stages.align.upstream import parse_log
from stages.artifacts import STOP, Text, Tokens
from stages.errors import ArtifactError, DataError, StageError, TransientError
from stages.shared.shards import read_shards, write_shards
from stages.workers import LocalWorkers, Resources
from tests.processes import FAST_SECONDS
from tests.shared import public_data
from tests.stages.steps import ShuffledWorkers, context_in, metrics_of, read_json, results, write_text

WORDS = AlignConfig(unit="words")


def draw(count: int) -> list[tuple[str, str]]:
    drawn = random.Random(9)
    side = lambda letter: " ".join(f"{letter}{drawn.randrange(14)}" for _ in range(drawn.randrange(0, 9)))  # noqa: E731
    return [(side("é"), side("f")) for _ in range(count)]


ROWS = draw(120)


def text_of(directory: Path, rows: list[tuple[str, str]], shard_rows: int = 50) -> Text:
    return write_text(directory, rows, shard_rows, range(7, len(rows) + 7))


def tokens_of(directory: Path, rows: list[tuple[str, str]], shard_rows: int = 50, width: Any = None) -> Tokens:
    numbers = [[[int(word[1:]) for word in side.split()] for side in sides] for sides in zip(*rows, strict=True)]
    kind = pa.list_(width or pa.uint16())
    columns = {name: pa.array(side, kind) for name, side in zip(("source", "target"), numbers, strict=True)}
    table = pa.table({"id": pa.array(range(7, len(rows) + 7), pa.int64()), **columns})
    write_shards([table], directory, shard_rows, context_in(directory))
    (directory / "tokens.json").write_text(json.dumps({"source_size": 14, "target_size": 14}))
    return Tokens(directory, "tokens")


def table_of(directory: Path) -> dict[str, list[Any]]:
    return pa.concat_tables(read_shards(directory)).to_pydict()


def described(directory: Path) -> dict[str, Any]:
    return dict(read_json(directory / "align.json"))


def pairs_of(rows: list[tuple[str, str]]) -> list[tuple[list[str], list[str]]]:
    return [(source.split(), target.split()) for source, target in rows]


def functions(rows: list[tuple[str, str]], options: AlignOptions) -> list[list[int]]:
    """Return the links of `fast_align` as a position for each explained word."""
    found = []
    for (source, target), links in zip(pairs_of(rows), fast_align(pairs_of(rows), options=options).links, strict=True):
        row = [-1] * len(source if options.reverse else target)
        for i, j in links:
            row[i if options.reverse else j] = j if options.reverse else i
        found.append(row)
    return found


def test_links_are_those_of_the_kernels(tmp_path: Path) -> None:
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), WORDS, context_in(tmp_path / "out"))
    table = table_of(tmp_path / "out")
    assert table["id"] == list(range(7, 127))
    assert table["forward"] == functions(ROWS, AlignOptions())
    assert table["reverse"] == functions(ROWS, AlignOptions(reverse=True))
    directions = [fast_align(pairs_of(ROWS), options=AlignOptions(reverse=reverse)) for reverse in (False, True)]
    joined = symmetrize(*(found.links for found in directions))
    got = [list(zip(*both, strict=True)) for both in zip(table["link_sources"], table["link_targets"], strict=True)]
    assert got == joined
    for name, found in zip(("forward", "reverse"), directions, strict=True):
        reported = described(tmp_path / "out")[name]
        assert reported["tension"] == found.model.tension
        assert reported["empty"] == found.empty > 5
        assert reported["near_ties"] == found.near_ties
        assert [one["perplexity"] for one in reported["passes"]] == [one.perplexity for one in found.passes]
        assert AlignmentModel.load(tmp_path / "out" / f"{name}.align").align(pairs_of(ROWS)) == found.links


def test_metrics(tmp_path: Path) -> None:
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), WORDS, context_in(tmp_path / "out"))
    lines = metrics_of(tmp_path / "out")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    reported = described(tmp_path / "out")["forward"]
    assert [line["forward_perplexity"] for line in lines] == [one["perplexity"] for one in reported["passes"]]
    assert lines[3]["forward_tension"] == reported["tension"]
    assert "forward_tension" not in lines[0]
    assert lines[1]["reverse_null_posterior"] > 0


def test_pieces_are_numbers(tmp_path: Path) -> None:
    for width in (pa.uint16(), pa.uint32()):
        tokens = tokens_of(tmp_path / str(width), ROWS, width=width)
        run(AlignInputs(tokens), AlignConfig(), context_in(tmp_path / f"out {width}"))
        table = table_of(tmp_path / f"out {width}")
        assert table["forward"] == functions(ROWS, AlignOptions())
        assert table["reverse"] == functions(ROWS, AlignOptions(reverse=True))
    model = AlignmentModel.load(tmp_path / f"out {width}" / "forward.align").native
    words = fast_align(pairs_of(ROWS)).model
    assert model.cell(4, 5) == words.probability("é3", "f5")
    assert model.cell(0, 5) == words.probability(None, "f5")


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_in_memory_and_any_number_of_shards_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    found = []
    for shard_rows in (120, 11):
        make = text_of if unit == "words" else tokens_of
        inputs = AlignInputs(make(tmp_path / f"in {shard_rows}", ROWS, shard_rows))
        config = WORDS if unit == "words" else AlignConfig()
        for limit in (1 << 26, 0):
            monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
            workers: list[Any] = [LocalWorkers(), ShuffledWorkers()] if limit == 0 else [ShuffledWorkers()]
            for threads, workers_ in enumerate(workers, 1):
                out = tmp_path / f"out {shard_rows} {limit} {threads}"
                run(inputs, config, context_in(out, workers=workers_, resources=Resources(workers=2, cpus=threads)))
                files = results(out)
                found.append((files["forward.align"], files["reverse.align"], table_of(out), described(out) | {"shards": 0}))
    assert all(other == found[0] for other in found[1:])
    assert results(tmp_path / "out 11 0 2") == results(tmp_path / "out 11 67108864 1")


@pytest.mark.parametrize("limit", [1 << 26, 0])
def test_a_kill_loses_no_finished_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS, 60))
    whole = ShuffledWorkers()
    run(inputs, WORDS, context_in(tmp_path / "whole", workers=whole))
    expected = results(tmp_path / "whole")
    assert len(whole.done) == (4 if limit else 2 + 1 + 4 + 2 + 4 * (4 + 2) + 4 + 2 + 2)
    for lives in range(len(whole.done)) if limit else (0, 2, 11, 33, 40):
        out, done = tmp_path / f"out {lives}", []
        for attempt, rest in (("a1", lives), ("a2", 10**9)):
            workers = ShuffledWorkers(lives=[rest])
            context = context_in(out, workers=workers, attempt=attempt)
            if attempt == "a1":
                with pytest.raises(KeyboardInterrupt):
                    run(inputs, WORDS, context)
            else:
                run(inputs, WORDS, context)
            done += workers.done
        assert sorted(map(repr, done)) == sorted(map(repr, whole.done))
        assert results(out) == expected


def test_a_request_to_stop_is_obeyed_between_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS))
    for limit in (1 << 26, 0):
        monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
        context = context_in(tmp_path / f"out {limit}")
        (context.directory / STOP).touch()
        with pytest.raises(TransientError, match="asked to stop"):
            run(inputs, WORDS, context)


def test_long_and_empty_pairs_keep_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "é1 " * 3000
    rows = [("", ""), *ROWS[:60], (long, "f1"), ("é1", long), *ROWS[60:], ("é1", "")]
    for limit in (1 << 26, 0):
        monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
        out = tmp_path / f"out {limit}"
        run(AlignInputs(text_of(tmp_path / f"text {limit}", rows)), WORDS, context_in(out))
        table, reported = table_of(out), described(out)
        assert [table["forward"][k] for k in (0, 61, 62)] == [[], [-1], [-1] * 3000]
        assert [table["reverse"][k] for k in (61, 123)] == [[-1] * 3000, [-1]]
        assert table["link_sources"][61] == table["link_targets"][62] == []
        assert table["forward"][1:61] + table["forward"][63:-1] == functions(ROWS, AlignOptions())
        empties = sum(not (source and target) for source, target in rows)
        assert (reported["forward"]["empty"], reported["forward"]["too_long"]) == (empties, 2)


@pytest.mark.parametrize("limit", [1 << 26, 0])
def test_text_without_a_usable_pair_and_fits_of_few_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", limit)
    config = replace(WORDS, max_length=3)
    for rows in ([("a", ""), ("a b c d", "a")], [("", ""), ("", "")]):
        long = int(rows[0][0] == "a")
        message = rf"got none among 2 \({2 - long} with an empty side, {long} longer than alignment.max_length = 3"
        with pytest.raises(DataError, match=message):
            run(AlignInputs(text_of(tmp_path / f"none {long}", rows)), config, context_in(tmp_path / f"out none {long}"))
    for iterations in (1, 2):
        out = tmp_path / f"out {iterations}"
        config = replace(WORDS, iterations=iterations, optimize_tension=False, compatible=False)
        run(AlignInputs(text_of(tmp_path / f"text {iterations}", ROWS)), config, context_in(out))
        options = AlignOptions(iterations=iterations, optimize_tension=False)
        assert table_of(out)["forward"] == functions(ROWS, options)
        assert AlignmentModel.load(out / "forward.align").align(pairs_of(ROWS)) == fast_align(pairs_of(ROWS), options=options).links


def test_unit_and_input_must_agree(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="unit pieces: expected tokens"):
        run(AlignInputs(text_of(tmp_path / "text", ROWS)), AlignConfig(), context_in(tmp_path / "out"))
    tokens = tokens_of(tmp_path / "tokens", ROWS)
    with pytest.raises(StageError, match="unit words: expected text"):
        run(AlignInputs(tokens), WORDS, context_in(tmp_path / "out"))
    (tmp_path / "tokens" / "shards" / "00001.arrow").unlink()
    with pytest.raises(ArtifactError, match=r"expected shard 00001\.arrow"):
        run(AlignInputs(tokens), AlignConfig(), context_in(tmp_path / "out"))


@pytest.mark.parametrize("shards", [1, 3, 17])
@pytest.mark.parametrize("in_memory", [True, False])
def test_links_equal_those_of_the_upstream_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, in_memory: bool
) -> None:
    golden = public_data("golden")
    lines = (golden / "fast_align.pairs.txt").read_text().splitlines()
    rows = [(source, target) for source, target in (line.split(" ||| ") for line in lines)]
    monkeypatch.setattr(stages.align.native, "IN_MEMORY_BYTES", 1 << 26 if in_memory else 0)
    run(AlignInputs(text_of(tmp_path / "text", rows, -(-len(rows) // shards))), WORDS, context_in(tmp_path / "out"))
    table = table_of(tmp_path / "out")
    got = {
        "forward": [" ".join(f"{i}-{j}" for j, i in enumerate(row) if i >= 0) for row in table["forward"]],
        "reverse": [" ".join(f"{i}-{j}" for i, j in enumerate(row) if j >= 0) for row in table["reverse"]],
        "grow-diag-final-and": [
            " ".join(f"{i}-{j}" for i, j in zip(*both, strict=True))
            for both in zip(table["link_sources"], table["link_targets"], strict=True)
        ],
    }
    for name, links in got.items():
        assert links == (golden / f"fast_align.{name}.links").read_text().splitlines()
    tensions = [one["tensions"][-1] for one in described(tmp_path / "out")["forward"]["passes"][1:4]]
    assert tensions == pytest.approx([5.90212, 6.87208, 7.22992], abs=5e-5)


UPSTREAM = """\
#!{python} -S
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tests.processes import FAST_SECONDS
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
    run(inputs, upstream(executable, max_length=50, p0=0.1, iterations=4), context_in(tmp_path / "out"))
    run(inputs, AlignConfig(unit="words", max_length=50, p0=0.1, iterations=4), context_in(tmp_path / "native"))
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
    lines = metrics_of(tmp_path / "out")
    assert lines[2]["reverse_tension"] == reported["reverse"]["tension"]


def test_the_upstream_program_on_pieces_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", FAITHFUL)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    inputs = AlignInputs(tokens_of(tmp_path / "tokens", ROWS))
    run(inputs, AlignConfig(engine="fast_align"), context_in(tmp_path / "out"))
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
        run(inputs, upstream(program(tmp_path / "bin", body)), context_in(tmp_path / "out"))
    assert not (tmp_path / "out/align.json").exists()


def test_a_missing_upstream_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = AlignInputs(text_of(tmp_path / "text", ROWS))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        StageError, match="expected the fast_align program as fast_align, found no such program; install it and give its path"
    ):
        run(inputs, AlignConfig(engine="fast_align", unit="words"), context_in(tmp_path / "out"))
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(StageError, match="broken: expected the fast_align program, but it cannot be run"):
        run(inputs, upstream(str(broken)), context_in(tmp_path / "out"))


def test_words_that_the_upstream_program_cannot_take(tmp_path: Path) -> None:
    executable = program(tmp_path / "bin", FAITHFUL)
    for word in ("|||", "<eps>"):
        inputs = AlignInputs(text_of(tmp_path / word.strip("|<>"), [("a", "b"), ("a", f"b {word} c")]))
        with pytest.raises(DataError, match=r"pair 8: fast_align cannot take the word"):
            run(inputs, upstream(executable), context_in(tmp_path / "out"))
        run(inputs, WORDS, context_in(tmp_path / f"native {word.strip('|<>')}"))
        assert [len(row) for row in table_of(tmp_path / f"native {word.strip('|<>')}")["forward"]] == [1, 3]
    with pytest.raises(DataError, match="no correct gradient"):
        run(inputs, upstream(executable, compatible=False), context_in(tmp_path / "out"))
    with pytest.raises(DataError, match="expected pairs with words on both sides, got none"):
        run(AlignInputs(text_of(tmp_path / "none", [("a", "")])), upstream(executable), context_in(tmp_path / "out"))


def test_both_directions_run_at_once(tmp_path: Path) -> None:
    wait = f"""\
import time
end = time.time() + {FAST_SECONDS}
while not all((folder / (side + ".arguments")).exists() for side in ("forward", "reverse")):
    time.sleep(0.01)
    assert time.time() < end
{FAITHFUL}"""
    run(AlignInputs(text_of(tmp_path / "text", ROWS)), upstream(program(tmp_path / "bin", wait)), context_in(tmp_path / "out"))


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
