"""Runs that are killed, lack memory or disk, or lose files: the repeated command writes the artifacts of an undisturbed run."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from models.common.layers.attention import Memory
from models.stepwise.model import StepwiseModel
from pipeline.config.load import load_config
from pipeline.config.schema import Cluster
from pipeline.plan.wiring import build_plan
from pipeline.run import execute
from pipeline.run.machines import Machines
from pipeline.run.ray_cluster.connection import connect_ray
from pipeline.store.artifacts import Store
from stages.workers import Resources
from stages.workers.ray_workers import RayWorkers
from tests.end_to_end.nodes import patience
from tests.end_to_end.runs import ALONE, ROOT, SLOWLY, Watched, end
from tests.processes import SLOW_SECONDS
from tests.shared import rest_exhaustive

TRAINED, DISTILLED = ("--until", "train:teacher"), (*SLOWLY, "--until", "encode:distilled")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("undisturbed") / "store", *ALONE, *SLOWLY)
    run.finish()
    return run


def survived(run: Watched, undisturbed: Watched, killed: str) -> None:
    """Repeat the command; finished steps do not run again, and every result equals that of the undisturbed run."""
    finished = {e["step"] for e in run.events("step_done")}
    assert killed not in finished
    run.finish()
    assert run.agrees_with(undisturbed)
    assert {step: run.started(step) for step in finished} == dict.fromkeys(finished, 1)


@pytest.mark.slow
@pytest.mark.ray
def test_driver_killed_in_training(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED)
    run.kill_when(lambda: run.progress("train:teacher") >= 60)
    survived(run, undisturbed, "train:teacher")
    assert run.started("train:teacher") == 2
    continued = re.search(r"training from update (\d+) of 200", run.log("train:teacher"))
    assert continued is not None
    assert int(continued[1]) > 0


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_driver_killed_in_decoding(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    run.kill_when(lambda: len(list((run.store / "shards").glob("*.arrow"))) > 0)
    decoded = {path: path.stat().st_mtime_ns for path in (run.store / "shards").rglob("*.arrow")}
    survived(run, undisturbed, "distill:train")
    assert decoded
    assert {path: path.stat().st_mtime_ns for path in decoded} == decoded


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_driver_killed_between_steps(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE, *DISTILLED)
    run.kill_when(lambda: any(e["step"].startswith("vocabulary") for e in run.events("step_done")))
    survived(run, undisturbed, "train:teacher")


def kill_workers(run: Watched, step: str, ready: int, *, alone: bool = False) -> None:
    """Kill all workers of a step, or the step's own process if it works `alone`, once `ready` of its work is done. The
    run then ends by itself."""
    with run.background() as process:
        run.wait(lambda: run.progress(step) >= ready, process)
        own, *workers = run.processes(step)
        assert bool(workers) != alone
        for worker in workers or [own]:
            os.kill(worker, signal.SIGKILL)
        run.ends(process)


@pytest.mark.slow
@pytest.mark.ray
def test_training_worker_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED)
    kill_workers(run, "train:teacher", 60, alone=True)
    assert [e["step"] for e in run.events("step_retried")] == ["train:teacher"]
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
def test_decoding_workers_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    kill_workers(run, "distill:train", 512)
    assert "which is given to another worker" in run.log("distill:train")
    assert run.started("distill:train") == 1
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_decoding_alone_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED, "--set", "cluster.resources.distill.workers=1")
    run.begin_with(undisturbed, before="distill:train")
    kill_workers(run, "distill:train", 512, alone=True)
    assert [e["step"] for e in run.events("step_retried")] == ["distill:train"]
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_two_drivers_share_the_work(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE, *SLOWLY)
    first = run.start()
    try:
        run.wait(lambda: run.running("train:teacher") is not None, first)
        second = run.start()
        run.ends(first)
        run.ends(second)
    finally:
        end(first)
        end(second)
    assert {step: run.started(step) for step in run.files()} == dict.fromkeys(run.files(), 1)
    assert run.agrees_with(undisturbed)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.exhaustive
def test_interrupted_run_saves_its_state(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", "--set", "cluster.checkpoint_seconds=3600", *TRAINED)
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        process.send_signal(signal.SIGTERM)
        run.ends(process, 130)
    directory = run.running("train:teacher")
    assert directory is not None
    assert [p for p in (directory / "checkpoints").iterdir() if p.name.isdigit()]
    survived(run, undisturbed, "train:teacher")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def run_again(run: Watched) -> subprocess.CompletedProcess[str]:
    return subprocess.run(run.command(), cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("rate", rest_exhaustive(["1e300", "1e30"], ["1e30"]))
def test_a_learning_rate_that_overflows_fails_and_leaves_no_network(tmp_path: Path, rate: str) -> None:
    options = ("--set", f"defaults.training.learning_rate={rate}", "--until", "train:teacher")
    run = Watched(tmp_path / "store", *ALONE, *options)
    failed = run_again(run)
    assert failed.returncode == 1
    assert re.search(
        r"train:teacher failed: training: update [1-6]: (weights|loss): expected .*training.learning_rate", failed.stderr
    )
    assert "Traceback" not in failed.stderr
    assert "train:teacher" not in {event["step"] for event in run.events("step_done")}
    assert not list((tmp_path / "store" / "train").glob("*/model.safetensors"))


@pytest.mark.slow
def test_full_disk_loses_nothing(undisturbed: Watched, small_disk: Path) -> None:
    run = Watched(small_disk / "store", *ALONE, *DISTILLED)
    failed = run_again(run)
    assert failed.returncode == 1
    assert "could not be written" in failed.stderr
    assert "free some space" in failed.stderr
    assert "Traceback" not in failed.stderr
    subprocess.run(["mount", "-o", "remount,size=300m", str(small_disk)], check=True)
    made = {e["step"] for e in run.events("step_done")}
    assert run_again(run).returncode == 0
    assert run.agrees_with(undisturbed)
    assert {step: run.started(step) for step in made} == dict.fromkeys(made, 1)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_truncated_artifact_is_named_and_made_again(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE, *SLOWLY)
    shutil.copytree(undisturbed.store, run.store, symlinks=True)
    model = next((run.store / "system").glob("*/model.safetensors"))
    os.truncate(model, 100)
    failed = run_again(run)
    assert failed.returncode == 1
    assert f"{model}: expected" in failed.stderr
    assert f"remove {model.parent} and repeat the run command" in failed.stderr
    shutil.rmtree(model.parent)
    assert run_again(run).returncode == 0
    assert run.files() == undisturbed.files()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_network_that_sees_the_future_fails_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo checks its own BLEU: training without the causal mask learns to copy the next token, and cannot translate."""

    def unmasked(self: StepwiseModel, flat: torch.Tensor, memories: list[Memory]) -> torch.Tensor:
        inputs = self.dropout(self.embed_slots(flat[:, :-1], self.slot_codes(flat.size(1))))
        states: torch.Tensor = self.decoder(inputs, memories, None, causal=False)
        return states

    monkeypatch.setattr(StepwiseModel, "hidden", unmasked)
    settings = [f"store.path={tmp_path}", "tracking.enabled=false", "benchmark.enabled=false", "evaluation.baseline=autoregressive"]
    config = load_config(ROOT / "configs/demo.yaml", settings)
    store = Store(config.store.path)
    plan = build_plan(config, store).until("score:autoregressive/greedy:demo")
    assert execute.run(config, plan, store, config_file="demo.yaml", in_process=True).failed == {}
    scores = next((store.root / "score").glob("*/scores.json")).read_text()
    assert json.loads(scores)["bleu"]["score"] < config.evaluation.min_bleu / 2


ROOM = 2 << 30
"""Bytes that can be allocated before Ray ends a worker."""
BLOCK = 1 << 26


def memory() -> tuple[int, int]:
    """Return the bytes of memory of this machine, and those that are available."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return tuple(1024 * int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    total, available = memory()
    if available < 4 * ROOM:
        pytest.skip("needs 8 GiB of free memory")
    monkeypatch.setenv("RAY_memory_usage_threshold", str(1 - (available - ROOM) / total))
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    with patience():
        machines = connect_ray(Cluster(cpus=1))
    yield machines
    machines.close()


def greedy(folder: str) -> Callable[[int], int]:
    def take(shard: int) -> int:
        mark = Path(folder) / "taken"
        if shard == 1 and not mark.exists():
            mark.touch()
            taken = []
            while memory()[1] > ROOM:  # other programs may give memory back meanwhile
                taken.append(bytearray(b"x") * BLOCK)
            time.sleep(SLOW_SECONDS)  # until Ray, which watches over the machine, ends this process
            return len(taken)
        return shard

    return take


@pytest.mark.slow
@pytest.mark.ray
def test_a_worker_out_of_memory_is_replaced(machines: Machines, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    workers = RayWorkers(Resources(workers=2, cpus=0.5), "decode:x", tmp_path, tmp_path / "log", deaths, tmp_path / "isa")
    assert sorted(workers.map(greedy, str(tmp_path), [0, 1, 2])) == [(0, 0), (1, 1), (2, 2)]
    reported = {death["shard"]: death["error"] for death in map(json.loads, deaths.read_text().splitlines())}
    assert "memory" in reported[1].lower() or "died" in reported[1]  # Ray may end other workers too while the memory is full
