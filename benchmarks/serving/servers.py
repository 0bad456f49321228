"""Servers in processes of their own, which end with the context that started them."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import requests

from stages.benchmark.rivals.process import environment

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 600
END_SECONDS = 60


def free_port() -> int:
    """Return a port that nobody has. It is below those that the kernel chooses, which it may give to others at any moment."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as held, suppress(OSError):
            held.bind(("127.0.0.1", port))
            return port


@contextmanager
def started(command: Sequence[str], port: int, probe: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server in a group of processes, and wait for its probe. Raises RuntimeError if it ends or does not answer in time."""
    with TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment({}), stdout=log, stderr=log, start_new_session=True)
        try:
            if not _answers(process, f"http://127.0.0.1:{port}{probe}"):
                log.seek(0)
                end = log.read()[-2000:].decode("utf-8", "replace")
                raise RuntimeError(f"{' '.join(command)}: expected an answer of {probe} within {START_SECONDS} s, got:\n{end}")
            yield process
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], probe: str) -> bool:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if requests.get(probe, timeout=5).status_code == 200:
                return True
        except requests.RequestException:
            time.sleep(0.1)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


@contextmanager
def fewstep_server(directories: Sequence[Path], threads: int, module: str = "fewstep") -> Iterator[tuple[str, int]]:
    """Start `fewstep serve`, or a program with the same arguments. Yield its address and its process id."""
    port = free_port()
    words = ["serve"] if module == "fewstep" else []
    systems = [str(directory.absolute()) for directory in directories]
    command = [sys.executable, "-m", module, *words, *systems, "--port", str(port), "--threads", str(threads)]
    with started(command, port, "/healthz") as process:
        yield f"http://127.0.0.1:{port}", process.pid


@contextmanager
def mlflow_server(directory: Path) -> Iterator[str]:
    """Start `mlflow models serve` for a system, as the pipeline logs it. Yield its address.

    MLflow calls uvicorn by its name, so the environment must be activated, as for every use of that command.
    """
    from pipeline.tracking.models import save

    with TemporaryDirectory(prefix="fewstep-") as folder:
        model = Path(folder) / "model"
        port = free_port()
        save(model, directory.absolute(), "a")
        words = ["models", "serve", "-m", str(model), "-p", str(port), "-h", "127.0.0.1", "--env-manager", "local"]
        with started([sys.executable, "-m", "mlflow", *words], port, "/health"):
            yield f"http://127.0.0.1:{port}"
