"""The aligner as a program, and in shards."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewstep.native import fewstep_native as native
from kernels import AlignOptions, fast_align, symmetrize
from kernels.fast_align import shards
from kernels.fast_align.command_line import Command, UsageError, parse
from kernels.fast_align.em import Sums, fit_tension, last_pass, passes, summarise
from kernels.fast_align.shards import Cells, Counts, Part, row_ranges

# ---- the command line: upstream's flags, output and messages, without numpy or torch


ROOT = Path(__file__).resolve().parents[2]

README = """\
doch jetzt ist der Held gefallen . ||| but now the hero has fallen .
neue Modelle werden erprobt . ||| new models are being tested .
doch fehlen uns neue Ressourcen . ||| but we lack new resources .
"""

FORWARD = "0-0 1-1 2-2 3-3 4-4 5-5 6-6\n0-0 1-1 2-2 2-3 3-4 4-5\n0-0 1-1 2-2 3-3 4-4 5-5\n"

MESSAGES = """\
ARG=i
ARG=d
ARG=o
ARG=v
INITIAL PASS\x20
expected target length = source length * 1.06667
ITERATION 1
  log_e likelihood: -393.742
  log_2 likelihood: -568.05
     cross entropy: 29.8974
        perplexity: 1e+09
      posterior p0: 0.08
 posterior al-feat: -0.205882
       size counts: 3
ITERATION 2
  log_e likelihood: -55.5823
  log_2 likelihood: -80.1883
     cross entropy: 4.22044
        perplexity: 18.6414
      posterior p0: 0.00102666
 posterior al-feat: -0.159462
       size counts: 3
  1  model al-feat: -0.150966 (tension=4)
  2  model al-feat: -0.155505 (tension=3.83009)
  3  model al-feat: -0.157673 (tension=3.75095)
  4  model al-feat: -0.158664 (tension=3.71517)
  5  model al-feat: -0.159109 (tension=3.69923)
  6  model al-feat: -0.159306 (tension=3.69216)
  7  model al-feat: -0.159393 (tension=3.68904)
  8  model al-feat: -0.159431 (tension=3.68767)
     final tension: 3.68706
ITERATION 3
  log_e likelihood: -25.4897
  log_2 likelihood: -36.7738
     cross entropy: 1.93547
        perplexity: 3.82501
      posterior p0: 4.85937e-17
 posterior al-feat: -0.158471
       size counts: 3
  1  model al-feat: -0.159448 (tension=3.68706)
  2  model al-feat: -0.158903 (tension=3.70661)
  3  model al-feat: -0.158663 (tension=3.71524)
  4  model al-feat: -0.158556 (tension=3.71907)
  5  model al-feat: -0.158509 (tension=3.72077)
  6  model al-feat: -0.158488 (tension=3.72152)
  7  model al-feat: -0.158479 (tension=3.72186)
  8  model al-feat: -0.158474 (tension=3.72201)
     final tension: 3.72207
ITERATION 4
  log_e likelihood: -23.551
  log_2 likelihood: -33.9769
     cross entropy: 1.78826
        perplexity: 3.45398
      posterior p0: 0
 posterior al-feat: -0.158437
       size counts: 3
  1  model al-feat: -0.158473 (tension=3.72207)
  2  model al-feat: -0.158453 (tension=3.72278)
  3  model al-feat: -0.158444 (tension=3.7231)
  4  model al-feat: -0.15844 (tension=3.72324)
  5  model al-feat: -0.158438 (tension=3.7233)
  6  model al-feat: -0.158438 (tension=3.72333)
  7  model al-feat: -0.158437 (tension=3.72334)
  8  model al-feat: -0.158437 (tension=3.72335)
     final tension: 3.72335
ITERATION 5 (FINAL)
  log_e likelihood: -23.4877
  log_2 likelihood: -33.8855
     cross entropy: 1.78345
        perplexity: 3.44248
      posterior p0: 0
 posterior al-feat: 0
       size counts: 3
"""
"""The output of upstream, except for a posterior of 7e-42, for which these sums have too few of their 84 binary places."""


def run(*arguments: str, text: bytes | str = "") -> subprocess.CompletedProcess[bytes]:
    data = text.encode() if isinstance(text, str) else text
    return subprocess.run([sys.executable, "-m", "kernels.fast_align", *arguments], input=data, capture_output=True, cwd=ROOT)


@pytest.fixture
def readme(tmp_path: Path) -> str:
    (tmp_path / "readme").write_text(README)
    return str(tmp_path / "readme")


def test_output_and_messages_are_upstreams(readme: str) -> None:
    ran = run("-i", readme, "-d", "-o", "-v")
    assert (ran.returncode, ran.stdout.decode()) == (0, FORWARD)
    assert ran.stderr.decode() == MESSAGES


def test_long_options_are_the_short_ones(readme: str) -> None:
    short = run("-i", readme, "-dovr", "-I", "3", "-q", "0.1", "-a", "0.02", "-T", "3", "-s", "-N")
    long = run(
        *f"--input {readme} --favor_diagonal --optimize_tension --variational_bayes --reverse --iterations 3 --p0=0.1".split(),
        *f"--alpha 0.02 --diagonal_tension {3} --print_scores --no_null_word --threads 3 --thread_buffer_size 7".split(),
    )
    assert short.returncode == long.returncode == 0
    assert short.stdout == long.stdout
    assert [line.count(b" ||| ") for line in short.stdout.splitlines()] == [1, 1, 1]


def test_flags_become_options() -> None:
    assert parse(["-i", "x"]).options == AlignOptions(
        favor_diagonal=False,
        optimize_tension=False,
        variational_bayes=False,
        threads=parse(["-i", "x"]).options.threads,
    )
    given = "-i x -ovrN -T 3 -I 2 -q 0 -a 1 --compat 0 --max_length 9 --threads 2 -p t -t -2 -m 1.5 -s --save_model m"
    assert parse(given.split()) == Command(
        input="x",
        options=AlignOptions(
            reverse=True,
            iterations=2,
            favor_diagonal=True,
            tension=3.0,
            optimize_tension=True,
            variational_bayes=True,
            alpha=1.0,
            p0=0.0,
            null_word=False,
            compatible=False,
            max_length=9,
            threads=2,
        ),
        probabilities="t",
        beam=2.0,
        length_ratio=1.5,
        scores=True,
        save="m",
        reverse_given=True,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "an input is needed"),
        ("-i x y", "unexpected argument y"),
        ("-i x -z", "option -z not recognized"),
        ("-i x -I many", "I: expected a number, got many"),
        ("-i x -I 2.5", "I: expected a whole number, got 2.5"),
        ("-i x -I 0", "iterations: expected a value at least 1, got 0"),
        ("-i x -v -a 0", "alpha: expected a value above 0, got 0.0"),
        ("-i x -T 0", "tension: expected a value above 0, got 0.0"),
        ("-i x -q 1", "p0: expected a value from 0 to below 1, got 1.0"),
    ],
)
def test_what_cannot_be_understood(arguments: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(arguments.split())


def test_usage_and_missing_files(tmp_path: Path) -> None:
    ran = run("-d")
    assert ran.returncode == 1
    assert b"Usage: python -m kernels.fast_align -i FILE" in ran.stderr
    for arguments in (["-i", str(tmp_path / "none")], ["-i", "-", "-f", str(tmp_path / "none")]):
        ran = run(*arguments)
        assert (ran.returncode, ran.stdout) == (1, b"")
        assert f"{tmp_path / 'none'}" in ran.stderr.decode().splitlines()[-1]
        assert b"Traceback" not in ran.stderr


def draw_pairs() -> list[tuple[list[str], list[str]]]:
    drawn = random.Random(2)
    side = lambda letter: [f"{letter}{drawn.randrange(9)}" for _ in range(drawn.randrange(1, 7))]  # noqa: E731
    return [(side("e"), side("f")) for _ in range(40)]


def pharaoh(links: list[tuple[int, int]]) -> str:
    return " ".join(f"{i}-{j}" for i, j in links)


def test_separators_and_odd_lines() -> None:
    pairs = draw_pairs()
    expected = [pharaoh(links) for links in fast_align([*pairs, (["e1"], ["f1", "|||", "f2"])]).links]
    lines = [" ".join(source) + " ||| " + " ".join(target) for source, target in pairs] + ["e1 ||| f1 ||| f2"]
    plain = run("-i", "-", "-dov", text="\n".join(lines))  # without a line feed at the end
    assert plain.stdout.decode().split("\n") == [*expected, ""]
    tabbed = run("-i", "-", "-dov", text="\n".join(line.replace(" ||| ", "\t", 1) for line in lines) + "\n")
    assert tabbed.stdout == plain.stdout
    blanks = run("-i", "-", "-dov", text="\n".join(f"  {line.replace(' ', '   ')} " for line in lines))
    assert blanks.stdout == plain.stdout
    returns = run("-i", "-", "-dov", text="\r\n".join(lines) + "\r\n")
    assert returns.stdout == plain.stdout
    assert b"41 lines end in CR LF" in returns.stderr
    latin = run("-i", "-", "-dov", text="\n".join(lines).replace("f", "\xe9").encode("latin-1"))
    assert latin.stdout == plain.stdout
    odd = ["", " ||| ", "e1 |||", "||| f1", "e1|||f1", "e1 ||| " + "f1 " * 40_000, "\r"]
    mixed = run("-i", "-", "-dov", text="\n".join([*odd, *lines]))
    assert mixed.stdout.decode().split("\n") == [*[""] * len(odd), *expected, ""]
    assert b"6 pairs have an empty side" in mixed.stderr
    assert b"1 pairs have more than 2000 words" in mixed.stderr
    assert b"nan" not in mixed.stderr
    empty = run("-i", "-", "-dov")
    assert (empty.returncode, empty.stdout) == (0, b"")


def test_words_that_upstream_takes_for_signs() -> None:
    pairs = draw_pairs()
    renamed = [(["<eps>" if word == "e1" else word for word in source], target) for source, target in pairs]
    lines = "\n".join(" ".join(source) + " ||| " + " ".join(target) for source, target in renamed)
    assert run("-i", "-", "-dov", text=lines).stdout.decode().splitlines() == [pharaoh(one) for one in fast_align(pairs).links]
    refused = run("-i", "-", "-dov", "-p", "/dev/null", text=lines)
    assert refused.returncode == 1
    assert b"cannot tell from the null word" in refused.stderr


def test_models_align_other_text(tmp_path: Path) -> None:
    pairs = draw_pairs()
    text = "".join(" ".join(source) + " ||| " + " ".join(target) + "\n" for source, target in pairs)
    for flags in (["-dov"], ["-dovr"]):
        model, table = str(tmp_path / "model"), str(tmp_path / "table")
        trained = run("-i", "-", *flags, "-s", "--save_model", model, "-p", table, "-t", "-inf", text=text)
        reported = trained.stderr.decode()
        tension, ratio = (
            next(line for line in reversed(reported.splitlines()) if words in line).split()[-1]
            for words in ("final tension", "expected target length")
        )
        by_model = run("-i", "-", "-f", model, text=text).stdout.decode().splitlines()
        flags = ["-d", *(["-r"] if "r" in flags[0] else [])]
        by_table = run("-i", "-", "-f", table, "-T", tension, "-m", ratio, *flags, text=text).stdout.decode().splitlines()
        links = [line.split(" ||| ")[0] for line in trained.stdout.decode().splitlines()]
        for forced in (by_model, by_table):
            assert [line.split("|||")[2].strip() for line in forced] == links
            assert [line.split(" ||| ")[:2] for line in forced] == [line.split(" ||| ") for line in text.splitlines()]
        scores = [float(line.split(" ||| ")[-1]) for line in by_model]
        assert scores == pytest.approx([float(line.split(" ||| ")[-1]) for line in trained.stdout.decode().splitlines()], rel=1e-5)
        assert scores == pytest.approx([float(line.split(" ||| ")[-1]) for line in by_table], rel=1e-4)
    odd = run("-i", "-", "-f", str(tmp_path / "model"), text="e1 |||\n||| f1\nnew ||| words\n")
    assert odd.stdout.decode().splitlines()[:2] == ["e1 ||| ||| ||| 0", "||| f1 ||| ||| 0"]
    assert math.isfinite(float(odd.stdout.decode().splitlines()[2].rsplit(" ", 1)[1]))
    assert b"forward" not in run("-i", "-", "-f", str(tmp_path / "model"), "-r", text="e1 ||| f1\n").stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "table"]


def test_a_forward_model_is_not_taken_for_a_reverse_one(readme: str, tmp_path: Path) -> None:
    assert run("-i", readme, "-dov", "--save_model", str(tmp_path / "m")).returncode == 0
    ran = run("-i", readme, "-r", "-f", str(tmp_path / "m"))
    assert ran.returncode == 1
    assert b"expected a reverse model because of -r, got a forward one" in ran.stderr


def test_directions_join(readme: str) -> None:
    sides = [run("-i", readme, *flags).stdout.decode().splitlines() for flags in (["-dov"], ["-dovr"])]
    forward, reverse = ([[tuple(map(int, link.split("-"))) for link in line.split()] for line in side] for side in sides)
    assert "".join(f"{pharaoh(one)}\n" for one in symmetrize(forward, reverse)) == FORWARD  # type: ignore[arg-type]


def test_nothing_heavy_is_loaded_and_output_may_fail(readme: str) -> None:
    code = "import sys; from kernels.fast_align.command_line import main; main(); print({'numpy', 'torch'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code, "-i", readme, "-dov"], capture_output=True, cwd=ROOT)
    assert ran.stdout.decode() == f"{FORWARD}set()\n"
    full = f"{sys.executable} -m kernels.fast_align -i {readme} -d 2>&1 >/dev/full | tail -1"
    assert b"No space left on device" in subprocess.run(full, shell=True, capture_output=True, cwd=ROOT).stdout
    closed = f"{sys.executable} -m kernels.fast_align -i {readme} -d 2>{readme}.err | true; cat {readme}.err"
    assert b"Traceback" not in subprocess.run(closed, shell=True, capture_output=True, cwd=ROOT).stdout


# ---- eM by map and reduce gives the same bits for any shards


DRAWN = random.Random(7)
ROWS = [
    ([DRAWN.randrange(9) for _ in range(DRAWN.randrange(8))], [DRAWN.randrange(11) for _ in range(DRAWN.randrange(8))])
    for _ in range(70)
]


def sides(rows: list[tuple[list[int], list[int]]]) -> list[tuple[Any, Any]]:
    return [
        (
            np.cumsum([0, *(len(row[side]) for row in rows)], dtype=np.int64),
            np.array([word for row in rows for word in row[side]], np.uint32),
        )
        for side in (0, 1)
    ]


def text_of(rows: list[tuple[list[int], list[int]]]) -> native.Bitext:
    return shards.numbered_text(*sides(rows), 9, 11)


def in_memory(options: AlignOptions) -> tuple[Any, ...]:
    text = text_of(ROWS)
    aligner = native.Aligner(text, options.reverse, options.native(), options.tension, keep_columns=True, threads=1)
    reported = list(passes(aligner, options))
    found = aligner.align(margins=True, threads=1)
    return [*reported, last_pass(found, aligner.target_words)], found.sources(), found.margins(), aligner.model()


def sharded(options: AlignOptions, cuts: list[int]) -> tuple[Any, ...]:
    parts = [ROWS[a:b] for a, b in zip([0, *cuts], [*cuts, len(ROWS)], strict=True)]
    make = lambda tension: [shards.shard_aligner(text_of(part), options, tension) for part in parts]  # noqa: E731
    aligners = make(options.tension)
    local = [shards.cells_of(aligner) for aligner in aligners]
    whole = shards.merge_cells(local)
    places = [shards.cell_offsets(whole, cells) for cells in local]
    sizes: dict[tuple[int, int], int] = {}
    for aligner in aligners:
        for m, n, count in aligner.sizes():
            sizes[m, n] = sizes.get((m, n), 0) + count
    listed = [(*size, sizes[size]) for size in sorted(sizes)]
    words, tension, reported, t = sum(aligner.target_words for aligner in aligners), options.tension, [], None
    for number in range(options.iterations):
        aligners = make(tension)
        if t is not None:
            for aligner, place in zip(aligners, places, strict=True):
                shards.take(aligner, whole.starts, place, t)
        if number == options.iterations - 1:
            break
        counted = [shards.expect(aligner, threads=1) for aligner in aligners]
        one = summarise(sum((sums for _, sums in counted), start=Sums()), words)
        if number and options.optimize_tension:
            one = fit_tension(one, tension, listed, options)
            tension = one.tensions[-1]
        reported.append(one)
        t = np.empty(len(whole.columns))
        taken = [Part(cells.starts, place, counts) for cells, place, (counts, _) in zip(local, places, counted, strict=True)]
        shards.maximise(whole.starts, taken, options, t)
    found = [aligner.align(margins=True, threads=1) for aligner in aligners]
    likelihood = sum((Sums.of([one.log_likelihood, (0, 0), (0, 0)]) for one in found), start=Sums())
    reported.append(summarise(likelihood, words))
    assert t is not None
    model = shards.model_of(whole, t, options, tension, shards.length_ratio(listed), native.Bitext())
    return (
        reported,
        np.concatenate([one.sources() for one in found]),
        np.concatenate([one.margins() for one in found]),
        model.native,
    )


@pytest.mark.parametrize("options", [AlignOptions(), AlignOptions(reverse=True, threads=2), AlignOptions(variational_bayes=False)])
def test_one_shard_and_seventeen(options: AlignOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "RANGE_CELLS", 40)
    reported, links, margins, model = in_memory(options)
    model.save(str(tmp_path / "whole"))
    for cuts in ([], [20, 50], [0, 1, 1, 2, 5, 9, 14, 20, 27, 30, 31, 33, 40, 51, 60, 70]):
        other = sharded(options, cuts)
        assert other[0] == reported
        assert np.array_equal(other[1], links)
        assert np.array_equal(other[2], margins)
        other[3].save(str(tmp_path / "sharded"))
        assert (tmp_path / "sharded").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (links >= 0).any()
    assert len(np.unique(margins)) > 50


def test_counts_are_exact_beyond_what_doubles_hold() -> None:
    starts, places = np.array([0, 1], np.uint64), np.zeros(1, np.uint32)
    low, high = np.array([2**63 + 1], np.uint64), np.array([5], np.uint32)
    parts = [Part(starts, places, Counts(low, high))] * 3
    total_low, total_high = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    for part in parts:
        native.add_counts(starts, starts, part.offsets, *part.counts, total_low, total_high)
    assert int(total_high[0]) * 2**64 + int(total_low[0]) == 3 * (5 * 2**64 + 2**63 + 1)


def test_ranges_of_rows() -> None:
    starts = np.array([0, 3, 3, 10, 11, 12, 20], np.uint64)
    assert list(row_ranges(starts, 4)) == [(0, 2), (2, 3), (3, 5), (5, 6)]
    assert list(row_ranges(starts, 100)) == [(0, 6)]
    assert list(row_ranges(starts, 1)) == [(k, k + 1) if k else (0, 1) for k in range(6)]
    assert list(row_ranges(starts[:1], 4)) == []


def test_what_does_not_fit_is_an_error() -> None:
    (source, target) = sides(ROWS)
    with pytest.raises(ValueError, match="word number 8 is not below 8"):
        shards.numbered_text(source, target, 8, 11)
    with pytest.raises(ValueError, match="unequal numbers of sentences"):
        shards.numbered_text(source, (target[0][:-1], target[1]), 9, 11)
    with pytest.raises(ValueError, match="sentence starts lie beyond the text"):
        shards.numbered_text(source, (target[0] + 1, target[1]), 9, 11)
    whole = shards.cells_of(shards.shard_aligner(text_of(ROWS[:3]), AlignOptions(), 4.0))
    other = shards.cells_of(shards.shard_aligner(text_of(ROWS[3:]), AlignOptions(), 4.0))
    with pytest.raises(ValueError, match="merged cells that contain those of each shard"):
        shards.cell_offsets(shards.merge_cells([whole]), other)
    with pytest.raises(ValueError, match="rows do not fit their cells"):
        shards.merge_cells([Cells(whole.starts, whole.columns[:-1])])
    text = text_of(ROWS)
    shards.shard_aligner(text, AlignOptions(), 4.0)
    with pytest.raises(ValueError, match="pairs cannot be added to a text that is in use"):
        text.add_words(["a"], ["b"])
