"""The command line: `python -m pipeline`, installed as `fewstep`.

It ends with 0, 1 (something failed), 2 (the user has to change something) or 130 (interrupted).
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from fewstep.access import OutputError, access_problem, drop_output, named_output, use_utf8
from fewstep.text.escape import escaped, log_to_stderr
from fewstep.threads import wait_passively
from pipeline.errors import FewstepError, exit_code
from pipeline.urls import masked
from stages.errors import FULL, unwritable

INTERRUPTED = 130
MAX_MESSAGE = 50_000
"""Characters of a message: 20 problems of a config with names of 4,096 characters are shorter."""
UNUSABLE_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. What the user can act on is one message on stderr; anything unexpected shows its traceback."""
    import typer
    from typer.exceptions import TyperException

    from pipeline.commands.app import app

    log_to_stderr()
    wait_passively()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a table must not end at a name that the locale lacks
    try:
        command = typer.main.get_command(app)
        arguments = list(sys.argv[1:] if argv is None else argv)
        with named_output():
            with command.make_context("fewstep", arguments) as context:  # its main() would end pipes and Ctrl-C in ways of its own
                command.invoke(context)
            sys.stdout.flush()  # so that a broken pipe shows here and not when Python ends
        return 0
    except typer.Exit as end:
        return end.exit_code
    except TyperException as error:
        message = error.format_message()  # empty where the help was shown instead
        return _complain(f"{message} (fewstep --help lists the commands)" if message else "", 2)
    except FewstepError as error:
        return _complain(str(error), exit_code(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
            drop_output()
            return 0
        if isinstance(error, OutputError):
            drop_output()
            return _complain(str(error), 1)
        if error.errno in UNUSABLE_NAMES:
            return _complain(f"{error.filename}: expected the name of a file, got: {error.strerror}; choose another name", 2)
        if error.errno in FULL:
            return _complain(str(unwritable(Path(error.filename or "a file of the store"), error)), 1)
        if isinstance(error, PermissionError) and error.filename:
            return _complain(access_problem(error.filename, error), 1)
        if error.errno is not None:
            return _complain(f"{error}; check the disk or the file server, and repeat the command", 1)
        return _complain(traceback.format_exc(), 1)
    except UnicodeEncodeError as error:
        return _complain(
            f"{error.object[:200]!a}: expected text in the encoding of the locale, {error.encoding}, got "
            f"{error.object[error.start]!a}; set LC_ALL=C.UTF-8 and repeat the command",
            2,
        )
    except KeyboardInterrupt:
        return _complain("interrupted; repeat the command to continue", INTERRUPTED)
    except Exception:
        return _complain(traceback.format_exc(), 1)


def _complain(message: str, code: int) -> int:
    """Print a message, of which foreign text may be a part that has any length."""
    rest = f" ... ({len(message):,} characters)" if len(message) > MAX_MESSAGE else ""
    with suppress(OSError):  # the exit code remains where stderr cannot be written
        print(escaped(masked(message[:MAX_MESSAGE])) + rest, file=sys.stderr)
    return code


def _end(code: int) -> NoReturn:
    """End this process, at once if Ray still waits for the head of a cluster that is lost."""
    from pipeline.run.ray_cluster.head import is_leaving

    if is_leaving():
        with suppress(OSError, ValueError):  # a reader that has gone away, a closed file
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    use_utf8()
    _end(main())
