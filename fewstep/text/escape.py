"""Foreign text on a terminal or in a log: names, messages and values of files, servers and clients."""

from __future__ import annotations

import logging
import re
import sys

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters other than tabs and line feeds, which begin the commands of terminals; separators of lines and
paragraphs; characters that turn the direction of a line; surrogates, which cannot be written."""


def escaped(text: str) -> str:
    """Return a text whose characters do nothing but show: the others are written as in a Python string."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escaped_line(text: object) -> str:
    """Return a foreign name as a part of a line: escaped, and without tabs and line feeds, with which it would look like others."""
    return escaped(str(text)).replace("\n", "\\n").replace("\t", "\\t")


class EscapingFormatter(logging.Formatter):
    """A formatter of log records whose messages and tracebacks are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return escaped(super().format(record))


def log_to_stderr() -> None:
    """Write warnings and errors to stderr, unless the program has set up a log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
