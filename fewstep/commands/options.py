"""Options of commands, declared once for the command lines of the runtime and of the pipeline."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option of a command."""

    name: str
    """The name in Python; the option has dashes."""
    type: Callable[[str], Any]
    """The type of the value; `bool` for a switch."""
    metavar: str
    help: str
    default: Any = None
    min: int | None = None
    """The lowest value of a number."""

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"


class Once(argparse.Action):
    """Store the value of an option, and refuse a second one, which would replace the first. For parsers of one command line."""

    given = False

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        """Store the value. Ends the process with 2 for a second one."""
        if self.given:
            parser.error(f"argument {option_string}: expected one value, got 2; give the option once")
        self.given = True
        setattr(namespace, self.dest, values)


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    """Add options to the parser of a command."""
    for option in options:
        text = option.help + ("" if option.default in (None, False) else " Default: %(default)s.")
        if option.type is bool:
            parser.add_argument(option.flag, action="store_true", help=text)
        else:
            kind = option.type if option.min is None else _at_least(option.min)
            parser.add_argument(option.flag, action=Once, type=kind, default=option.default, metavar=option.metavar, help=text)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {value}")
        return value

    return number
