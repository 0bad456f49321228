"""`fewstep submit`: run a config as a job of a Ray cluster, with the id, metadata and runtime environment of the run."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fewstep.text.escape import escaped
from pipeline.commands.options import ConfigFile, Force, Overrides, Until
from pipeline.config.load import load_config, resolved
from pipeline.config.schema import RunConfig
from pipeline.errors import DataError
from pipeline.plan.code_digest import git_revision
from pipeline.plan.fingerprint import digest
from pipeline.run.ray_cluster.connection import token_source
from pipeline.wheels import write_extension_wheel
from stages.errors import StageError

RUNTIME_ENV = Path("configs/cluster/runtime-env.yaml")
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
STOPPED = 130
"""Exit code of a stopped job, the same as that of an interrupted run."""
POLL_SECONDS = 1.0
LIST_SECONDS = 10
STARTING = "No available agent"
"""The error of a head that is still starting."""
STARTING_SECONDS = 60.0
"""Seconds for which a head may be starting."""


def submit(
    config: ConfigFile,
    address: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address such as http://HEAD:8265; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS."),
    ] = None,
    until: Until = None,
    force: Force = None,
    overrides: Overrides = None,
    with_extension: Annotated[
        bool, typer.Option("--with-extension", help="Send this machine's compiled extension along, for images without it.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the job is accepted.")] = False,
) -> None:
    """Run CONFIG as a job of a Ray cluster, from the current directory. Prints the job's output; exits with its exit code."""
    command = run_command(config, overrides or (), until, force or ())
    settings = load_config(config, overrides or ())
    name = submission_id(settings, until, force or ())
    code = submit_job(settings, command, name, address=address, with_extension=with_extension, follow=not no_wait)
    raise typer.Exit(code)


def run_command(config: Path, overrides: Sequence[str], until: str | None, force: Sequence[str]) -> list[str]:
    """Return the arguments of the job's Python, relative to the working directory that is uploaded.

    Raises DataError for a config outside that directory, and for a directory without the project, whose job could not start.
    """
    try:
        inside = config.absolute().relative_to(Path.cwd())
    except ValueError as error:
        raise DataError(
            f"{config}: expected a config below the current directory {Path.cwd()}, which is uploaded to the cluster"
        ) from error
    if not Path("pipeline/__main__.py").is_file():
        raise DataError(
            f"{Path.cwd()}: expected a checkout of fewstep, which is uploaded to the cluster, got a directory without "
            "pipeline/__main__.py; change to the checkout, and put the config below it"
        )
    command = ["-m", "pipeline", "run", str(inside)]
    for option, value in (("--until", until), *(("--force", step) for step in force)):
        if value is not None:
            command += [option, value]
    return [*command, *(part for override in overrides for part in ("--set", override))]


def submission_id(settings: RunConfig, until: str | None, force: Sequence[str]) -> str:
    """Return `<name>-<8 digits>`, which is the same for the same config and steps."""
    return f"{settings.name}-{digest([resolved(settings), until, *force])[:8]}"


def check_store(settings: RunConfig) -> None:
    """Raise DataError for a store that the machines of a cluster cannot share."""
    if not settings.store.path.is_absolute():
        raise DataError(
            f"store.path: expected the absolute path of a directory that all machines of the cluster share, got "
            f"{str(settings.store.path)!r}, which would be lost with the job; give --set store.path=/shared/..."
        )


def submit_job(
    settings: RunConfig, command: Sequence[str], name: str, *, address: str | None, with_extension: bool, follow: bool
) -> int:
    """Submit the run as the job `name`, or find it running, print its output until it ends, and return its exit code.

    A job that has ended is submitted again under the id with the next number. With `follow=False` returns 0 at once.
    Raises StageError when the cluster cannot be reached or refuses, DataError for a store that its machines cannot share.
    """
    check_store(settings)
    client = _client(address)
    job = _start(client, name, command, with_extension)
    here = f"--address {address} " if address else ""
    print(f"job {job}: follow it with `ray job logs {here}--follow {job}`, stop it with `ray job stop {here}{job}`", flush=True)
    if not follow:
        return 0
    try:
        asyncio.run(_print_logs(client, job))
        return _exit_code(client, job)
    except KeyboardInterrupt:
        print(f"the job {job} continues; its output is no longer followed", flush=True)
        return STOPPED
    except (RuntimeError, OSError) as error:
        raise StageError(f"job {job}: the cluster no longer answers: {error}; submit again to follow or to continue it") from error


def _client(address: str | None) -> Any:
    if token_source():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # read when ray is loaded
    try:
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(address)
    except ImportError as error:
        raise StageError("ray is not installed: pip install 'ray[default,train]'") from error
    except Exception as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str | None, error: Exception) -> StageError:
    where = address or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "this machine"
    return StageError(
        f"the jobs of the Ray cluster at {where}: expected access, got: {error}; "
        "check --address (http://head:8265) and the token (RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, docs/guide/cluster.md)"
    )


def _start(client: Any, name: str, command: Sequence[str], with_extension: bool) -> str:
    """Return the id of the running job, or of a new one."""
    try:
        jobs = {job.submission_id: job.status.value for job in client.list_jobs() if job.submission_id}
        earlier = [f"{name}-{number}" if number > 1 else name for number in range(1, len(jobs) + 2)]
        job = next(known for known in earlier if jobs.get(known) not in ENDED)
        if job in jobs:
            print(f"job {job} is already running", flush=True)
            return job
        with tempfile.TemporaryDirectory() as folder:
            environment = _runtime_environment(Path(folder), with_extension)
            # Where the cluster is this machine, the job runs with this Python; on other machines its path may not exist.
            if "py_executable" not in environment and _is_here(client):
                environment["py_executable"] = sys.executable
            _send(
                client,
                entrypoint=shlex.join([environment.get("py_executable", "python"), *command]),
                submission_id=job,
                metadata={"job_name": name, "run": name, "revision": git_revision()},
                runtime_env=environment,
            )
        return job
    except (RuntimeError, OSError) as error:
        raise _unreachable(client.get_address(), error) from error


def _is_here(client: Any) -> bool:
    """Return whether all machines of a cluster are this one, on which the Python that submits exists.

    A forwarded port has a local address too, so the addresses of the nodes count.
    """
    from ray.util.state import list_nodes

    try:
        nodes = list_nodes(client.get_address(), filters=[("state", "=", "ALIVE")], timeout=LIST_SECONDS)
    except Exception:  # the answer of other versions; the job then uses the Python of the cluster
        return False
    return bool(nodes) and all(_is_own_address(node.node_ip) for node in nodes)


def _is_own_address(address: str) -> bool:
    """Return whether an interface of this machine has this address: only then can a socket be bound to it."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
        return True
    except OSError:
        return False


def _send(client: Any, **job: Any) -> None:
    """Submit a job; wait for a head that is still starting."""
    until = time.monotonic() + STARTING_SECONDS
    while True:
        try:
            client.submit_job(**job)
            return
        except RuntimeError as error:
            if STARTING not in str(error) or time.monotonic() > until:
                raise
        time.sleep(POLL_SECONDS)


def _runtime_environment(folder: Path, with_extension: bool) -> dict[str, Any]:
    import yaml

    written = yaml.safe_load(RUNTIME_ENV.read_text(encoding="utf-8")) if RUNTIME_ENV.is_file() else {}
    environment: dict[str, Any] = {"working_dir": ".", **written}
    environment["env_vars"] = {**environment.get("env_vars", {}), "FEWSTEP_REVISION": git_revision()}
    if with_extension:
        environment["py_modules"] = [*environment.get("py_modules", []), str(write_extension_wheel(folder))]
    return environment


async def _print_logs(client: Any, job: str) -> None:
    """Print the job's output as it arrives, each part once, until it ends. A lost connection is opened again."""
    shown = 0
    while True:
        # Asked before the log is read, so that the last lines of a job that has ended are in it.
        ended = client.get_job_status(job).value in ENDED
        # A new connection sends the log from its beginning.
        seen = 0
        try:
            async for text in client.tail_job_logs(job):
                print(escaped(text[max(0, shown - seen) :]), end="", flush=True)
                seen += len(text)
                shown = max(shown, seen)
        except (RuntimeError, OSError):  # the next iteration continues, if the cluster still answers
            time.sleep(POLL_SECONDS)
        if ended:
            return
        await asyncio.sleep(POLL_SECONDS)


def _exit_code(client: Any, job: str) -> int:
    info = client.get_job_info(job)
    if info.status.value == "SUCCEEDED":
        return 0
    if info.status.value == "STOPPED":
        return STOPPED
    if info.driver_exit_code is None:
        raise StageError(f"the job {job} failed before its command ended: {info.message}")
    return int(info.driver_exit_code)
