"""Limits on the files of a config, so that none of them can exhaust memory or the stack."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from fewstep.access import access_problem
from fewstep.bounded_files import read_at_most
from pipeline.config.tree import shown
from pipeline.errors import ConfigError

MAX_BYTES = 1 << 20
"""Size of one file."""
MAX_VALUES = 50_000
"""Values of one file. An alias counts with all values that it stands for."""
MAX_DEPTH = 64
"""Levels of nesting, aliases and the keys of `--set` included."""
MAX_BASES = 16
"""Files that extend each other by `base`."""
MAX_TEXT = 4096
"""Characters of one text or key."""

_UNUSABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Control characters other than tab and line feed, and halves of surrogate pairs, which no file name and no UTF-8 text holds."""


def read_file(path: Path) -> str:
    """Return the text of a config. Raises ConfigError if it is no regular file, too large, unreadable or not UTF-8."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError([f"{path}: expected a readable YAML file, got a directory, pipe or device; name a file"])
        data = read_at_most(path, MAX_BYTES + 1)
    except PermissionError as error:
        raise ConfigError([access_problem(path, error)]) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError([f"{path}: expected a readable YAML file, got: {reason}"]) from error
    if len(data) > MAX_BYTES:
        raise ConfigError([f"{path}: expected a config of at most {MAX_BYTES:,} bytes, got more; name the YAML file of a run"])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: expected UTF-8, got the byte 0x{data[error.start]:02x} at {error.start}"]) from error


def problem_of_text(text: str) -> str | None:
    """Return the problem of a text that no value or key may hold."""
    if len(text) > MAX_TEXT:
        return f"expected at most {MAX_TEXT} characters, got {len(text):,}"
    if found := _UNUSABLE.search(text):
        return f"expected no control character and no lone surrogate, got {shown(found[0])} at character {found.start() + 1}"
    return None


def usable(text: str) -> str:
    """Return a text that has a problem as one without: shortened, and without the characters that are not allowed."""
    return _UNUSABLE.sub("", text[:MAX_TEXT])
