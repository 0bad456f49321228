"""Runs as jobs of a cluster with token authentication: stopped, lost with their head, submitted again."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from nodes import cluster_apart
from runs import ROOT, SMALL, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1500)]


class Submitted(Watched):
    """The same run, handed to a cluster."""

    jobs_address = ""

    def command(self) -> list[str]:
        config = str(SMALL.relative_to(ROOT))
        settings = ["--set", f"store.path={self.store}", "--set", "cluster.checkpoint_seconds=3600"]
        return [sys.executable, "-m", "pipeline", "submit", config, "--address", self.jobs_address, *settings]

    def output(self) -> str:
        return (self.store / "output.txt").read_text()

    def job(self) -> str:
        """Id of the job submitted last."""
        return [line for line in self.output().splitlines() if line.startswith("job ")][-1].split()[1].rstrip(":")


def ray_job(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "job", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Of clusters and of those who submit to them: the same token, and this Python where a job looks for one."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"RAY_AUTH_TOKEN_PATH": str(token), "RAY_AUTH_MODE": "token", "PATH": path}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


def test_a_job_is_stopped_loses_its_head_and_is_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    undisturbed = Watched(tmp_path / "undisturbed", "--in-process", "--set", "cluster.cpus=1")
    undisturbed.finish()
    run = Submitted(tmp_path / "run")
    with cluster_apart(**environment) as run.jobs_address:
        process = run.start()
        run.wait(lambda: run.progress("train:teacher") >= 60, process, 600)
        first = run.job()
        assert ray_job("stop", "--address", run.jobs_address, first).returncode == 0
        assert process.wait(120) == 130
        directory = run.running("train:teacher")
        assert directory is not None
        assert [p for p in (directory / "checkpoints").iterdir() if p.name.isdigit()]  # there was time to save

        process = run.start()
        run.wait(lambda: run.progress("distill:train") >= 512, process, 600)
        assert run.job() == f"{first}-2"
        end(process)
        with monkeypatch.context() as patch:
            patch.setenv("RAY_AUTH_MODE", "disabled")
            assert ray_job("list", "--address", run.jobs_address).returncode != 0  # nobody is let in without the token
    time.sleep(2.0)
    with cluster_apart(**environment) as run.jobs_address:  # another head, which knows nothing
        process = run.start()
        try:
            assert process.wait(800) == 0, run.output()[-4000:]
        finally:
            end(process)
        assert run.job() == first
        assert "train:distilled done in" in run.output()
        assert run.files() == undisturbed.files()
        assert run.started("train:teacher") == 2
        assert [e["lost"].keys() for e in run.events("run_started") if "lost" in e] == [{"train:teacher"}, {"distill:train"}]

        sent = ["--working-dir", ".", "--runtime-env", "configs/cluster/runtime-env.yaml", "--submission-id", "by-hand"]
        config = ["python", "-m", "pipeline", "run", str(SMALL.relative_to(ROOT)), "--set", f"store.path={run.store}"]
        done = ray_job("submit", "--address", run.jobs_address, *sent, "--", *config)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "everything was in the store" in done.stdout
