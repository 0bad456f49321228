"""Runs of the real command in separate processes that tests watch, kill and compare."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.run.run_directory import Run
from tests.processes import SLOW_SECONDS, descendants, wait_for_end

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = Path(__file__).with_name("small.yaml")
ALONE = ("--in-process", "--set", "cluster.cpus=1")
"""Options for a run without Ray that has as many threads as a worker on Ray."""
SLOWLY = ("--set", "distillation={strategy: sample, batch_tokens: 600}")
"""Options for a distillation through torch. A native one would end before a process can be stopped or killed."""


class Watched:
    """A run of `python -m pipeline run small.yaml` on a store of its own."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        self.options = options
        self.output_file = store.with_name(f"{store.name}.output.txt")
        """Beside the store, which must be new or empty."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "pipeline", "run", str(SMALL), "--set", f"store.path={self.store}", *self.options]

    def start(self) -> subprocess.Popen[str]:
        """Start the command in a session of its own, so that all of its processes can be ended."""
        self.store.mkdir(parents=True, exist_ok=True)
        output = self.output_file.open("a")
        return subprocess.Popen(
            self.command(), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    @contextmanager
    def background(self) -> Iterator[subprocess.Popen[str]]:
        """Yield the command, started, and end what is left of it."""
        process = self.start()
        try:
            yield process
        finally:
            end(process)

    def finish(self) -> None:
        """Run to the end. Fail with the output if the command fails."""
        with self.background() as process:
            self.ends(process)

    def ends(self, process: subprocess.Popen[str], code: int = 0) -> None:
        """Wait for the end of the command. Fail with its output if it has another exit code."""
        try:
            found: object = process.wait(SLOW_SECONDS)
        except subprocess.TimeoutExpired:
            found = "no end"
        assert found == code, self.output_file.read_text()[-4000:]

    def kill_when(self, ready: Callable[[], bool]) -> None:
        """Start the command, SIGKILL its driver as soon as `ready`, and wait until its processes have ended by themselves."""
        with self.background() as process:
            self.wait(ready, process)
            started = descendants(process.pid)
            process.kill()
            process.wait()
            wait_for_end(started)

    def wait(self, ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        """Wait until `ready`. Fail with the output if the command ends before."""
        deadline = time.monotonic() + SLOW_SECONDS
        while not ready():
            assert process.poll() is None, self.output_file.read_text()[-4000:]
            assert time.monotonic() < deadline, self.output_file.read_text()[-4000:]
            time.sleep(0.05)

    def run_directory(self) -> Path:
        return (self.store / "runs" / "latest").resolve()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        events = Run(self.run_directory()).events()
        return [e for e in events if e["event"] in kinds] if kinds else events

    def planned(self) -> list[dict[str, Any]]:
        """Return the entries of the steps that the run was asked for, in order: with `--until` a part of its plan."""
        plan = json.loads((self.run_directory() / "run.json").read_text())["plan"]
        until = self.events("run_started", "run_taken_over")[-1].get("until")
        wanted = {entry["step"] for entry in plan if until in (None, entry["step"], entry["stage"])}
        for entry in reversed(plan):
            wanted.update(entry["inputs"] if entry["step"] in wanted else ())
        return [entry for entry in plan if entry["step"] in wanted]

    def begin_with(self, done: "Watched", before: str) -> None:
        """Copy the artifacts that precede this step from another run into the store, which is still empty."""
        for entry in done.planned():
            if entry["step"] == before:
                return
            artifact = Path(entry["stage"]) / entry["fingerprint"]
            shutil.copytree(done.store / artifact, self.store / artifact)

    def running(self, step: str) -> Path | None:
        """Return the `.partial` directory of a running step."""
        started = [e for e in self.events("step_started", "step_done") if e["step"] == step]
        return self.store / started[-1]["directory"] if started and started[-1]["event"] == "step_started" else None

    def progress(self, step: str) -> int:
        """Return the number of finished units of a running step."""
        directory = self.running(step)
        try:
            return int(json.loads((directory / "records" / "progress.json").read_text())["done"]) if directory else 0
        except (OSError, ValueError):
            return 0

    def log(self, step: str) -> str:
        name = step.replace(":", "-").replace("/", "-")
        logs = sorted((self.run_directory() / "logs").glob(f"{name}.*.log"), key=os.path.getmtime)
        return logs[-1].read_text() if logs else ""

    def processes(self, step: str) -> list[int]:
        """Return the process of a step and those of its workers, in the order in which they first wrote to its log."""
        return [int(pid) for pid in dict.fromkeys(re.findall(r" \[(\d+)\] ", self.log(step)))]

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Return the manifest of every artifact of the run, by step."""
        paths = {e["step"]: self.store / e["stage"] / e["fingerprint"] / "manifest.json" for e in self.planned()}
        return {step: json.loads(path.read_text()) for step, path in paths.items()}

    def files(self) -> dict[str, Any]:
        """Return `files` of every artifact of the run, by step."""
        return {step: manifest["files"] for step, manifest in self.manifests().items()}

    def agrees_with(self, other: "Watched") -> bool:
        """Return whether this run has artifacts and each of them equals that of the other run."""
        files, wanted = self.files(), other.files()
        return files != {} and files == {step: wanted[step] for step in files}

    def started(self, step: str) -> int:
        """Return the number of times that a step was started."""
        return len([e for e in self.events("step_started") if e["step"] == step])


def end(process: subprocess.Popen[str]) -> None:
    """End a process and its session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
