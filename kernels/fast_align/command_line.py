"""The command line of upstream fast_align: its flags, its output, its messages on stderr. Its long options work here."""

from __future__ import annotations

import getopt
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from threading import Thread
from typing import TYPE_CHECKING

from durable import write_whole
from fewstep.text.format import FIRST_BYTES, check_text, check_text_file
from kernels.fast_align.em import Pass, last_pass, passes
from kernels.fast_align.options import UPSTREAM_BEAM, AlignOptions, available_threads

if TYPE_CHECKING:
    from fewstep_native import AlignedLinks, AlignModel, Bitext

USAGE = """\
Usage: python -m kernels.fast_align -i FILE [-d -o -v] [-r] ...      ([USE]: recommended)
  FILE has a pair a line: `source words ||| target words`, or a tab between the sides
  -i, --input FILE                    text to align; - for the standard input
  -d, --favor_diagonal                [USE] a prior for links near the diagonal
  -o, --optimize_tension              [USE] fit how much the diagonal is favoured
  -v, --variational_bayes             [USE] a Dirichlet prior on the translation distributions
  -r, --reverse                       explain the left side by the right one (links are left-right all the same)
  -I, --iterations N                  passes over the text, 5
  -q, --p0 P                          prior probability of the null word, 0.08
  -N, --no_null_word                  every word has a link
  -a, --alpha A                       parameter of the Dirichlet prior, 0.01
  -T, --diagonal_tension T            tension to start from, 4; switches -d on
  -s, --print_scores                  append ` ||| score` to each line
  -p, --conditional_probabilities FILE    write the probabilities as text
  -t, --beam_threshold B              what -p leaves out: below B times the best (of logarithms), -4
  -f, --force_align FILE              align with the model in FILE: one of -p (with its -d, -T, -m, -q, -N, -r) or of --save_model
  -m, --mean_srclen_multiplier M      target words per source word of a model of -p, 1
  -b, --thread_buffer_size N          accepted, without meaning here
      --save_model FILE               write the whole model: tension, multiplier and flags with the probabilities
      --max_length N                  longest side in words; longer pairs get no links, 2000
      --threads N                     else OMP_NUM_THREADS, else all CPUs; the output does not depend on it
      --compat 0|1                    0: the correct gradient of the tension; 1 (default): upstream's
"""

SHORT = "i:rI:df:m:t:q:T:ova:Np:b:s"

LONG = {
    "input=": "i",
    "reverse": "r",
    "iterations=": "I",
    "favor_diagonal": "d",
    "force_align=": "f",
    "mean_srclen_multiplier=": "m",
    "beam_threshold=": "t",
    "p0=": "q",
    "diagonal_tension=": "T",
    "optimize_tension": "o",
    "variational_bayes": "v",
    "alpha=": "a",
    "no_null_word": "N",
    "conditional_probabilities=": "p",
    "thread_buffer_size=": "b",
    "print_scores": "s",
    "save_model=": "save_model",
    "max_length=": "max_length",
    "threads=": "threads",
    "compat=": "compat",
    "help": "help",
}
"""Long options, with `=` if a value follows, and their names in this module."""

STDIN = 0
BLOCK = 10_000
"""Pairs whose lines are written at once."""


class UsageError(Exception):
    """The arguments cannot be parsed."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """The parsed arguments."""

    input: str
    options: AlignOptions
    probabilities: str = ""
    beam: float = UPSTREAM_BEAM
    model: str = ""
    length_ratio: float = 1.0
    scores: bool = False
    save: str = ""
    reverse_given: bool = False


def parse(arguments: Sequence[str]) -> Command:
    """Parse the arguments. Raises UsageError."""
    try:
        found, rest = getopt.gnu_getopt(list(arguments), SHORT, list(LONG))
    except getopt.GetoptError as error:
        raise UsageError(str(error)) from error
    names = {f"--{name.removesuffix('=')}": short for name, short in LONG.items()}
    given: dict[str, str] = {}
    for name, value in found:
        letter = names.get(name, name.removeprefix("-"))
        say(f"ARG={letter}")
        given[letter] = value
    if rest:
        raise UsageError(f"unexpected argument {rest[0]}")
    if not given.get("i") or "help" in given:
        raise UsageError("" if "help" in given else "an input is needed: -i FILE")
    try:
        return _command(given)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _command(given: dict[str, str]) -> Command:
    def number(letter: str, default: float) -> float:
        try:
            return float(given.get(letter, default))
        except ValueError:
            raise UsageError(f"{letter}: expected a number, got {given[letter]}") from None

    def whole(letter: str, default: int) -> int:
        if (value := number(letter, default)) != int(value):
            raise UsageError(f"{letter}: expected a whole number, got {given[letter]}")
        return int(value)

    options = AlignOptions(
        reverse="r" in given,
        iterations=whole("I", 5),
        favor_diagonal="d" in given or "T" in given,
        tension=number("T", 4.0),
        optimize_tension="o" in given,
        variational_bayes="v" in given,
        alpha=number("a", 0.01),
        p0=number("q", 0.08),
        null_word="N" not in given,
        compatible=bool(whole("compat", 1)),
        max_length=whole("max_length", AlignOptions.max_length),
        threads=whole("threads", available_threads()),
    )
    return Command(
        input=given["i"],
        options=options,
        probabilities=given.get("p", ""),
        beam=-number("t", -UPSTREAM_BEAM),
        model=given.get("f", ""),
        length_ratio=number("m", 1.0),
        scores="s" in given,
        save=given.get("save_model", ""),
        reverse_given="r" in given,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    try:
        command = parse(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        sys.stderr.write(f"{USAGE}{error}\n" if str(error) else USAGE)
        return 1
    try:
        _force(command) if command.model else _train(command)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe: closing stdout later must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        say(f"fast_align: {error or type(error).__name__}")
        return 1
    return 0


def _train(command: Command) -> None:
    from fewstep.native import fewstep_native as native

    options = command.options
    say("INITIAL PASS ")
    text = _read(command.input)
    keep = bool(command.probabilities or command.save)
    aligner = native.Aligner(text, options.reverse, options.native(), options.tension, keep_columns=keep, threads=options.threads)
    sizes = aligner.sizes()
    _dots(text.pairs)
    _warn(text, aligner.empty, aligner.long, options.max_length)
    say(f"expected target length = source length * {native.length_ratio(sizes):g}")
    fit = passes(aligner, options)
    for number in range(1, options.iterations):
        say(f"ITERATION {number}")
        _dots(text.pairs)
        _report(next(fit), len(sizes))
    say(f"ITERATION {options.iterations} (FINAL)")
    found = aligner.align(margins=False, threads=options.threads)
    _write(found, text.pairs, scores=command.scores)
    _dots(text.pairs)
    _report(last_pass(found, aligner.target_words), len(sizes))
    if keep:
        _keep(aligner.model(), command)


def _read(path: str) -> Bitext:
    """Return the text in a file, or in the standard input for `-`. Raises ValueError for a file that is no plain text."""
    from fewstep.native import fewstep_native as native

    if path != "-":
        check_text_file(Path(path))
        return native.Bitext.read(path)
    begin = os.read(STDIN, FIRST_BYTES)
    check_text(begin, "standard input")
    # What was looked at can only be read again from a pipe, together with the rest.
    read, write = os.pipe()
    copying = Thread(target=_copy, args=(begin, write), daemon=True)
    copying.start()
    try:
        return native.Bitext.read(f"/dev/fd/{read}")
    finally:
        os.close(read)
        copying.join()


def _copy(begin: bytes, write: int) -> None:
    with suppress(BrokenPipeError), os.fdopen(write, "wb") as pipe, open(STDIN, "rb", closefd=False) as rest:
        pipe.write(begin)
        copyfileobj(rest, pipe)


def _keep(model: AlignModel, command: Command) -> None:
    if command.probabilities:
        say(f"conditional probabilities: {command.probabilities}")
        write_whole(Path(command.probabilities), lambda path: model.write_text(str(path), command.beam))
    if command.save:
        say(f"model: {command.save}")
        write_whole(Path(command.save), lambda path: model.save(str(path)))


def _force(command: Command) -> None:

    options = command.options
    model = _load(command)
    say(f"Loaded {model.cells} translation parameters.")
    text = _read(command.input)
    found = model.align(text, options.threads)
    _write(found, text.pairs, words=True, scores=True)
    say(f"TOTAL LOG PROB {sum(found.score(pair) for pair in range(text.pairs)):g}")


def _load(command: Command) -> AlignModel:
    from fewstep.native import fewstep_native as native

    options = command.options
    with open(command.model, "rb") as file:
        whole = file.read(7) == b"FSALIGN"
    if not whole:
        return native.AlignModel.read_text(command.model, options.native(), options.reverse, options.tension, command.length_ratio)
    model = native.AlignModel.load(command.model)
    if command.reverse_given and not model.reverse:
        raise ValueError(f"{command.model}: expected a reverse model because of -r, got a forward one; leave -r out")
    return model


def _write(found: AlignedLinks, pairs: int, *, words: bool = False, scores: bool = False) -> None:
    for start in range(0, pairs, BLOCK):
        sys.stdout.buffer.write(found.format(start, min(start + BLOCK, pairs), words=words, scores=scores))
    sys.stdout.buffer.flush()


def _warn(text: Bitext, empty: int, long: int, max_length: int) -> None:
    """Warn about pairs that take no part in the fit."""
    if empty:
        say(f"WARNING: {empty} pairs have an empty side: they take no part, and their lines stay empty")
    if long:
        say(f"WARNING: {long} pairs have more than {max_length} words: they take no part, and their lines stay empty")
    if text.carriage_returns:
        say(f"WARNING: {text.carriage_returns} lines end in CR LF: the CR is not taken for a part of the last word")


def _dots(pairs: int) -> None:
    """Write upstream's display of progress: a dot for each 1000 lines."""
    for start in range(0, pairs - 999, 50_000):
        dots = "." * min(50, (pairs - start) // 1000)
        say(f"{dots} [{start + 50_000}]" if len(dots) == 50 else dots)


def _report(statistics: Pass, sizes: int) -> None:
    say(f"  log_e likelihood: {statistics.log_likelihood:g}")
    say(f"  log_2 likelihood: {-statistics.cross_entropy * statistics.target_words:g}")
    say(f"     cross entropy: {statistics.cross_entropy:g}")
    say(f"        perplexity: {statistics.perplexity:g}")
    say(f"      posterior p0: {statistics.null_posterior:g}")
    say(f" posterior al-feat: {statistics.feature:g}")
    say(f"       size counts: {sizes}")
    for step, feature in enumerate(statistics.model_features):
        say(f"  {step + 1}  model al-feat: {feature:g} (tension={statistics.tensions[step]:g})")
    if statistics.tensions:
        say(f"     final tension: {statistics.tensions[-1]:g}")


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
