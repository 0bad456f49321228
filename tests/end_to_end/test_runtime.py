"""The systems of a run in the runtime, and a local Ray that listens on the loopback interface alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fewstep
from fewstep.families.table import family_named
from stages.shared.shards import read_shards
from tests.architecture import ROOT
from tests.processes import SLOW_SECONDS, descendants, until

TRAINED = ("shallow", "dag", "distilled", "interleaved", "interleaved-sa", "lattice", "aggressive")
BRIEFLY = ["defaults.training.updates=60", "defaults.training.warmup_updates=10", "defaults.training.validate_every=20"]

BRIEFLY += [
    f"systems.{name}.training.{key}={value}" for name in TRAINED for key, value in (("updates", 40), ("warmup_updates", 10))
]

SMALL = ["corpus.train.embedded=1500", "corpus.validation.embedded=60", "corpus.test.demo.embedded=60", "vocabulary.size=300"]
RAW = ["lattice.data=raw", *(f"systems.{name}.data=raw" for name in TRAINED if name != "shallow")]
"""A teacher that was trained briefly produces no text that a student could learn from."""
REDUCED = ["benchmark.enabled=false", "tracking.enabled=false", "evaluation.min_bleu=0", "evaluation.lattice_analysis=0"]


def rows(directory: Path) -> list[dict[str, Any]]:
    return [row for table in read_shards(directory) for row in table.to_pylist()]


def decoded(store: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield the name, the system and the artifact of each decode step."""
    (record,) = (path for path in store.glob("runs/*/run.json") if path.parent.name != "latest")
    plan = {entry["step"]: store / entry["stage"] / entry["fingerprint"] for entry in json.loads(record.read_text())["plan"]}
    for step, directory in plan.items():
        if step.startswith("decode:"):
            name = step.removeprefix("decode:").partition("/")[0]
            yield step, plan.get(f"system:{name}/default", plan[f"system:{name}"]), directory


def run(store: Path, config: str, *changes: str) -> None:
    """Run the pipeline in one process, and check that it succeeds."""
    words = [word for change in (*changes, f"store.path={store}") for word in ("--set", change)]
    command = [sys.executable, "-m", "pipeline", "run", config, "--in-process", "--set", "cluster.cpus=1", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


def compare(store: Path, test: str) -> dict[str, bool]:
    """Translate the test set again with each system that decoded it; return the steps, and whether the runtime has the search."""
    manifests = (store / "corpus").glob("*/manifest.json")
    (text,) = (path.parent for path in manifests if json.loads(path.read_text())["step"] == f"corpus:{test}")
    lines, compared = [row["source"] for row in rows(text)], {}
    assert len(lines) == 60
    for step, directory, written in decoded(store):
        system = fewstep.load(directory)
        search = family_named(system.family).search.from_values(json.loads((written / "decode.json").read_text())["search"])
        compared[step] = not list(system.decoder.problems(search))
        if not compared[step]:
            continue
        ranked = system.hypotheses(lines, search.n_best, search, threads=1, one_sentence_per_line=True)
        found = [one for of_line in ranked for one in of_line]
        assert [(one.text, one.score, one.steps, one.statistics.get("margin")) for one in found] == [
            (row["text"], row["score"], row["steps"], row["margin"]) for row in rows(written)
        ], step
    return compared


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.exhaustive
def test_every_system_of_the_demo(tmp_path: Path) -> None:
    run(tmp_path, "configs/demo.yaml", *BRIEFLY, *SMALL, *RAW, *REDUCED)
    compared = compare(tmp_path, "demo")
    assert len(compared) == 15
    assert all(compared.values())


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.exhaustive
def test_every_objective_of_networks_that_write_all_slots(tmp_path: Path) -> None:
    """From text to report. The runtime has all searches but that with another system's scores."""
    run(tmp_path, "tests/end_to_end/parallel.yaml")
    compared = compare(tmp_path, "small")
    assert len(compared) == 12
    assert [step for step, native in compared.items() if not native] == ["decode:one-shot/greedy-length_candidates3-system:small"]
    (page,) = tmp_path.glob("report/*/records/report.html")
    text = page.read_text(encoding="utf-8")
    assert all(name in text for name in ("one-shot", "glat", "ctc-glat", "masked", "mask-predict-iterations4"))
    for path in tmp_path.glob("train/*/records/metrics.*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        assert losses[-1] < losses[0]


PROGRAM = """
import sys
from pipeline.config.schema import Cluster
from pipeline.run.ray_cluster.connection import connect_ray

machines = connect_ray(Cluster(cpus=1))
print("ready", flush=True)
sys.stdin.read()
machines.close()
"""
LISTENING = "0A"
LOOPBACK = re.compile(r"0100007F|0000000000000000FFFF00000100007F|0{24}01000000")
"""127.0.0.1, the same as an IPv6 address, and ::1, as in /proc/net/tcp."""


def sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
        except OSError:
            continue
    return found


def listening(inodes: set[str]) -> list[str]:
    """Return the addresses, in hexadecimal, at which these sockets listen."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == LISTENING and line[9] in inodes]


def addresses_of(pid: int) -> list[str]:
    """Return the addresses at which a process and its descendants listen."""
    return listening(set().union(*(sockets(found) for found in descendants(pid))))


def is_ready(process: subprocess.Popen[str], sign: str) -> bool:
    """Wait for a line that begins with `sign`. Return False if the process ends before."""
    assert process.stdout is not None
    return any(line.startswith(sign) for line in process.stdout)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("program", ["pipeline", "serve"])
def test_local_ray_listens_on_loopback_alone(program: str, systems: dict[str, Path]) -> None:
    serve = ["-m", "fewstep", "serve", str(systems["autoregressive"]), "--ray", "--port", "0", "--cpus", "0.5"]
    arguments, sign = {"pipeline": (["-c", PROGRAM], "ready"), "serve": (serve, "serving ")}[program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **pipes) as process:
        try:
            assert is_ready(process, sign)
            until(lambda: len(addresses_of(process.pid)) > 5, SLOW_SECONDS)
            addresses = addresses_of(process.pid)
        finally:
            process.terminate()
            process.wait(SLOW_SECONDS)
    assert [address for address in addresses if not LOOPBACK.fullmatch(address)] == []
