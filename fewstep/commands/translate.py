"""`fewstep translate DIR`: translate a stream line by line with the system in a directory."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewstep.commands.options import Option, add_options
from fewstep.streams import StreamError, Translate, json_text, open_streams, plain_text, stream
from fewstep.text.escape import escaped

if TYPE_CHECKING:
    from fewstep.config.search import SearchConfig
    from fewstep.system.system import System

__all__ = ["OPTIONS", "add_arguments", "line_translator", "run"]

BAD_INPUT, FAILED = 2, 1

OPTIONS = (
    Option("input", Path, "FILE", "Plain text in UTF-8; default: standard input."),
    Option("output", Path, "FILE", "Default: standard output."),
    Option("search", str, "LABEL", "Label of a search of the system, or a derived label; default: its first search."),
    Option(
        "json",
        bool,
        "",
        "Write a line of JSON for each line, with scores, statistics, and what the system did not read.",
        False,
    ),
    Option("n_best", int, "N", "Write the N best translations of each line, as a line of JSON.", min=1),
    Option("one_sentence_per_line", bool, "", "Take each line as one sentence, as in a test set, instead of splitting it.", False),
    Option("refuse_long", bool, "", "End with an error at a sentence that is too long, instead of cutting it.", False),
    Option("threads", int, "N", "Number of threads; default: OMP_NUM_THREADS, or all processors.", min=1),
    Option("batch", int, "LINES", "Maximum number of lines translated together.", 64, min=1),
    Option("no_verify", bool, "", "Load files without comparing them with their checksums.", False),
)
"""The options of the command, which the pipeline's command has too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("system", type=Path, metavar="DIR", help="Directory of a system.")
    add_options(parser, OPTIONS)


def line_translator(system: System, search: SearchConfig | str | None, values: Mapping[str, Any]) -> Translate:
    """Return the function that translates the lines of a stream with the values of `OPTIONS`, by their names."""
    options = {name: values[name] for name in ("threads", "one_sentence_per_line", "refuse_long")}
    n_best = values["n_best"]

    def plain(lines: list[str], first: int) -> list[str]:
        return [plain_text(text) for text in system.translate(lines, search, first_line=first, **options)]

    def structured(lines: list[str], first: int) -> list[str]:
        found = system.hypotheses(lines, n_best, search, first_line=first, **options)
        return [json_text(ranked[0] if n_best is None else ranked) for ranked in found]

    return plain if n_best is None and not values["json"] else structured


def run(arguments: argparse.Namespace) -> int:
    """Translate, and return the exit code: 0, 2 for bad input, 1 for a broken system or too little memory."""
    from fewstep.decoding import DecodingMemoryError
    from fewstep.system.format import BundleError

    try:
        _translate(arguments)
    except BundleError as error:
        return _complain(error, FAILED if os.path.isfile(arguments.system / "system.json") else BAD_INPUT)
    except ValueError as error:  # StreamError, and searches that the system does not have
        return _complain(error, BAD_INPUT)
    except BrokenPipeError:  # the reader of the output has ended
        raise
    except (DecodingMemoryError, ImportError, OSError) as error:
        return _complain(error, FAILED)
    return 0


def _translate(arguments: argparse.Namespace) -> None:
    with open_streams(arguments.input, arguments.output, lambda: _loaded(arguments)) as (system, read, write):
        stream(line_translator(system, arguments.search, vars(arguments)), read, write, batch=arguments.batch)


def _loaded(arguments: argparse.Namespace) -> System:
    """Return the system. Raises StreamError for a search that it does not have or support."""
    from fewstep.system.load import load

    system = load(arguments.system, verify=not arguments.no_verify)
    try:
        search = system.chosen_search(arguments.search, arguments.n_best)
    except ValueError as error:
        raise StreamError(f"--search {arguments.search}: {error}") from error
    if problems := [problem.text() for problem in system.problems(search)]:
        raise StreamError("\n".join(f"{arguments.search or system.default_search}: {problem}" for problem in problems))
    return system


def _complain(error: Exception, code: int) -> int:
    print(escaped(f"fewstep translate: {error}"), file=sys.stderr)
    return code
