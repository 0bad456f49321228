"""The command `serve`: its arguments, and its errors."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fewstep.serve.settings import ServeError, Settings
from fewstep.serve.systems import Load, find, load_all
from fewstep.system.load import load

TOKEN = "FEWSTEP_TOKEN"
"""Environment variable with the bearer token."""
BAD_INPUT = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    own = Settings()
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="DIR|RUN[:SYSTEM]",
        help="directory of a system, or NAME=DIRECTORY to name it; directory of a run, for all its systems or one of them",
    )
    parser.add_argument("--host", default=own.host, help="address to listen on; 0.0.0.0 for all (default: %(default)s)")
    parser.add_argument("--port", type=int, default=own.port, help="port; 0 for any free one (default: %(default)s)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"file with the bearer token (or the variable {TOKEN})")
    parser.add_argument(
        "--without-token", action="store_true", help="answer everyone who can reach an address that is not of this machine alone"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads that decode a batch (default: the runtime's)")
    numbers = (
        ("max_request_bytes", int, "largest body of a request"),
        ("max_sentences", int, "most sentences in a request"),
        ("max_characters", int, "longest sentence"),
        ("max_waiting", int, "most sentences that wait, over all requests"),
        ("max_batch", int, "most sentences that are decoded together"),
        ("max_n_best", int, "most translations of a sentence"),
        ("requests_per_second", float, "requests of one client address per second; without it, any number"),
        ("burst", int, "requests of one client address at once under --requests-per-second"),
        ("drain_seconds", float, "seconds that requests in flight have after SIGTERM"),
    )
    for name, kind, text in numbers:
        flag, default = f"--{name.replace('_', '-')}", getattr(own, name)
        shown = "" if default is None else " (default: %(default)s)"
        parser.add_argument(flag, type=kind, default=default, metavar="N", help=text + shown)
    cluster = parser.add_argument_group("Ray Serve")
    cluster.add_argument("--ray", action="store_true", help="serve on the Ray cluster of RAY_ADDRESS, or on this machine")
    cluster.add_argument("--min-replicas", type=int, default=1, metavar="N", help="fewest copies of the systems (default: 1)")
    cluster.add_argument("--max-replicas", type=int, default=4, metavar="N", help="most copies of the systems (default: 4)")
    cluster.add_argument("--cpus", type=float, default=1.0, metavar="N", help="processors of a copy (default: 1)")


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings. Raises ServeError for values that are not valid."""
    given = {name: getattr(arguments, name) for name in vars(Settings()) if hasattr(arguments, name)}
    settings = Settings(**given | {"token": _token(arguments.token_file)})
    if problems := list(settings.problems()):
        raise ServeError("\n".join(problems))
    return settings


def _token(file: Path | None) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() if file else os.environ.get(TOKEN)
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"--token-file {file}: expected a readable file with the token, got: {error}") from error


def run(arguments: argparse.Namespace, load: Load = load) -> int:
    """Serve until the process is asked to end. Return the exit code: 2 for bad arguments, 0 after a graceful end."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        _run(arguments, settings_of(arguments), load)
    except ServeError as error:
        print(f"serve: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0


def _run(arguments: argparse.Namespace, settings: Settings, load: Load) -> None:
    server = _part("server", "serve")
    # Warnings about single lines (cut, invalid characters) number the lines of a batch, and clients could fill the log with them.
    logging.getLogger("fewstep").setLevel(logging.ERROR)
    places = find(arguments.systems)
    bound = server.bind(settings)
    if arguments.ray:
        on_ray = _part("on_ray", "serve-ray")
        replicas = on_ray.Replicas(arguments.min_replicas, arguments.max_replicas, arguments.cpus)
        bound.close()  # Ray's proxy listens there
        on_ray.serve(places, load, settings, replicas)
        return
    systems = load_all(places, load)
    print(f"serving {', '.join(systems)} at {server.url(settings, bound)}", file=sys.stderr, flush=True)
    server.serve(systems, settings, bound)


def _part(name: str, extra: str) -> Any:
    """Return a module of the server. Raises ServeError where its libraries are not installed."""
    try:
        return import_module(f"fewstep.serve.{name}")
    except ImportError as error:
        raise ServeError(f"expected the extra [{extra}] (pip install 'fewstep[{extra}]'), but: {error}") from error


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    made = argparse.ArgumentParser(
        prog="fewstep serve", description="Serve systems over HTTP: POST /translate, GET /systems, /healthz, /metrics, and a page."
    )
    add_arguments(made)
    return made


def main(argv: Sequence[str] | None = None, load: Load = load) -> int:
    """Parse arguments and run the command. `load` loads the system in a directory."""
    return run(parser().parse_args(argv), load)


if __name__ == "__main__":
    sys.exit(main())
