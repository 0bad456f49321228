"""`fewstep translate DIR`: translate a stream line by line with the system in a directory."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fewstep.streams import StreamError, open_streams, stream, stream_options

if TYPE_CHECKING:
    from fewstep.system.system import System

__all__ = ["add_arguments", "run"]

BAD_INPUT, FAILED = 2, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("system", type=Path, metavar="DIR", help="Directory of a system.")
    parser.add_argument("--input", type=Path, metavar="FILE", help="Text; default: standard input.")
    parser.add_argument("--output", type=Path, metavar="FILE", help="Default: standard output.")
    parser.add_argument(
        "--search", metavar="LABEL", help="Label of a search of the system, or a derived label; default: its first search."
    )
    parser.add_argument("--json", action="store_true", help="Write a line of JSON for each line, with score, steps and statistics.")
    parser.add_argument(
        "--n-best", type=_positive, metavar="N", help="Write the N best translations of each line, as a line of JSON."
    )
    parser.add_argument(
        "--threads", type=_positive, metavar="N", help="Number of threads; default: OMP_NUM_THREADS, or all processors."
    )
    parser.add_argument(
        "--batch", type=_positive, default=64, metavar="LINES", help="Maximum number of lines translated together; default: 64."
    )
    parser.add_argument("--no-verify", action="store_true", help="Do not compare the system's files with their checksums.")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


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
    options = stream_options(json=arguments.json, n_best=arguments.n_best, threads=arguments.threads)
    with open_streams(arguments.input, arguments.output, lambda: _loaded(arguments)) as (system, read, write):
        stream(system, read, write, batch=arguments.batch, search=arguments.search, **options)


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
    print(f"fewstep translate: {error}", file=sys.stderr)
    return code
