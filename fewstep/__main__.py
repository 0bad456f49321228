"""`fewstep`, or `python -m fewstep`: translate and serve with finished systems.

The process ends with 0, 1 (something failed), 2 (the user has to change something) or 130 (interrupted).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from fewstep.access import OutputError, drop_output, named_output
from fewstep.text.escape import log_to_stderr

COMMANDS = {
    "translate": ("fewstep.commands.translate", "Translate or summarise a text, or standard input, line by line."),
    "serve": ("fewstep.commands.serve", "Serve systems over HTTP, with a page that shows their translations side by side."),
}
"""The module and the help of each command."""
INTERRUPTED = 130


class _Version(argparse.Action):
    """Print the version; looking it up takes time, so it is looked up on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"fewstep {version('fewstep')}")
        except PackageNotFoundError:
            print("fewstep, which is not installed as a package")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    log_to_stderr()
    parser = argparse.ArgumentParser(prog="fewstep", description="Translate with the systems that the pipeline has made.")
    parser.add_argument("--version", action=_Version, nargs=0, help="Print the version.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    given = list(sys.argv[1:] if argv is None else argv)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in given[:1]:  # the arguments of other commands would cost their imports
            import_module(module).add_arguments(command)
    try:
        with named_output():
            arguments = parser.parse_args(given)
            code: int = import_module(COMMANDS[arguments.command][0]).run(arguments)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has seen enough
        drop_output()
        return 0
    except OutputError as error:
        drop_output()
        print(f"fewstep: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
