"""`fewstep serve DIR ...`: serve the systems in directories over HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fewstep.access import content_of
from fewstep.commands.options import Option, add_options
from fewstep.local_ray import stay_on_loopback
from fewstep.serve.settings import ServeError, Settings
from fewstep.serve.systems import Load, SystemLocation, find, load_all
from fewstep.system.load import load
from fewstep.text.escape import escaped

TOKEN = "FEWSTEP_TOKEN"
"""Environment variable with the bearer token."""
TOKEN_BYTES = 1 << 16
"""Bytes of the file with the token, which may be a device without an end. The head of a request takes no more."""
BAD_INPUT = 2
OWN = Settings()


OPTIONS = (
    Option("host", str, "ADDRESS", "Address to listen on; 0.0.0.0 for all of this machine's.", OWN.host),
    Option("port", int, "PORT", "Port; 0 for any free one.", OWN.port),
    Option("token_file", Path, "FILE", f"File with the bearer token; without it, the environment variable {TOKEN}."),
    Option("without_token", bool, "", "Serve other machines although there is no token.", False),
    Option("threads", int, "N", "Threads that decode a batch; default: OMP_NUM_THREADS, or all processors."),
    Option("max_request_bytes", int, "N", "Maximum size of a request (413).", OWN.max_request_bytes),
    Option("max_sentences", int, "N", "Maximum number of sentences in a request (413).", OWN.max_sentences),
    Option("max_characters", int, "N", "Maximum length of a sentence (413).", OWN.max_characters),
    Option("max_waiting", int, "N", "Maximum number of sentences that wait, over all requests (429).", OWN.max_waiting),
    Option("max_batch", int, "N", "Maximum number of sentences that are decoded together.", OWN.max_batch),
    Option("max_n_best", int, "N", "Maximum number of translations of a sentence (422).", OWN.max_n_best),
    Option("requests_per_second", float, "N", "Requests per second of one client address (429); default: any number."),
    Option("burst", int, "N", "Requests of one client address at once, under --requests-per-second.", OWN.burst),
    Option("drain_seconds", float, "SECONDS", "Time for requests in flight after SIGTERM.", OWN.drain_seconds),
    Option("cors_origins", str, "ORIGINS", "Sites whose pages may use the server, separated by commas; * with a token: all.", ""),
    Option("ray", bool, "", "Serve with Ray Serve, on the cluster of RAY_ADDRESS or on this machine.", False),
    Option("min_replicas", int, "N", "Minimum number of copies of the systems (--ray).", 1),
    Option("max_replicas", int, "N", "Maximum number of copies of the systems (--ray).", 4),
    Option("cpus", float, "N", "Processors of each copy (--ray).", 1.0),
)
"""The options of the command, which `fewstep.__main__` and the pipeline's command line offer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="[NAME=]DIR",
        help="Systems: directories, URLs, or hf:ORG/NAME. The first one is the default.",
    )
    add_options(parser, OPTIONS)


def run(arguments: argparse.Namespace, load: Load = load) -> int:
    """Serve until the process is asked to end. Return the exit code: 2 for bad arguments, 0 after a graceful end."""
    try:
        locations = find(arguments.systems)
    except ServeError as error:
        return _complain(error)
    return serve(locations, vars(arguments), load)


def serve(locations: Sequence[SystemLocation], values: Mapping[str, Any], load: Load = load) -> int:
    """Serve systems with the values of `OPTIONS`, by their names. Return the exit code as `run` does."""
    try:
        _serve(locations, values, load)
    except ServeError as error:
        return _complain(error)
    return 0


def _serve(locations: Sequence[SystemLocation], values: Mapping[str, Any], load: Load) -> None:
    settings = _settings(values)
    server = _part("server", "serve")
    bound = server.bind(settings)
    if values["ray"]:
        address = stay_on_loopback()
        on_ray = _part("on_ray", "serve-ray")
        replicas = on_ray.Replicas(values["min_replicas"], values["max_replicas"], values["cpus"])
        port = bound.getsockname()[1]
        bound.close()  # Ray's proxy listens there
        on_ray.serve(locations, load, replace(settings, port=port), replicas, address)
        return
    systems = load_all(locations, load)
    with suppress(OSError):  # a full disk under the log does not stop the server
        print(escaped(f"serving {', '.join(systems)} at {server.url(settings, bound)}"), file=sys.stderr, flush=True)
    server.serve(systems, settings, bound)


def _settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings. Raises ServeError for values that are not valid."""
    given = {name: value for name, value in values.items() if name in vars(OWN)}
    given["cors_origins"] = tuple(filter(None, map(str.strip, values["cors_origins"].split(","))))
    settings = Settings(**given, token=_token(values["token_file"]))
    if problems := list(settings.problems()):
        raise ServeError("\n".join(problems))
    return settings


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN)
    try:
        found = content_of(file, TOKEN_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"--token-file {file}: expected a readable file with the token, got: {error}") from error
    if len(found) > TOKEN_BYTES:
        raise ServeError(f"--token-file {file}: expected a token of at most {TOKEN_BYTES:,} bytes, got a longer file")
    return found.strip()


def _part(name: str, extra: str) -> Any:
    """Return a module of the server. Raises ServeError where its libraries are not installed.

    The package is on no index, so that its name there could be anybody's: the remedy names the checkout or the wheel.
    """
    try:
        return import_module(f"fewstep.serve.{name}")
    except ImportError as error:
        raise ServeError(
            f"expected the extra [{extra}], but: {error}; in a checkout run: pip install '.[{extra}]', with a wheel: "
            f"pip install 'WHEEL[{extra}]'"
        ) from error


def _complain(error: ServeError) -> int:
    print(escaped(f"fewstep serve: {error}"), file=sys.stderr)
    return BAD_INPUT
