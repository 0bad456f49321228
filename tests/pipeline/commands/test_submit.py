"""A run as a job of a Ray cluster: the files sent, the job's name, and its exit status."""

import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fewstep.native import fewstep_native
from pipeline.__main__ import main
from pipeline.commands import submit
from pipeline.config.load import load_config
from pipeline.errors import DataError, StageError
from pipeline.wheels import write_extension_wheel

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "configs/demo.yaml"


def job(name: str, status: str, code: int | None = None) -> Any:
    return SimpleNamespace(submission_id=name, status=SimpleNamespace(value=status), driver_exit_code=code, message="no node")


class Jobs:
    """A stand-in for the cluster: jobs run as soon as they are submitted and end with the status `end`."""

    def __init__(self, *there: Any, end: tuple[str, int | None] = ("SUCCEEDED", 0)) -> None:
        self.jobs = {one.submission_id: one for one in there}
        self.end = end
        self.sent: list[dict[str, Any]] = []
        self.drops = 1
        self.starts = 0

    def list_jobs(self) -> list[Any]:
        return list(self.jobs.values())

    def submit_job(self, **sent: Any) -> None:
        if self.starts:
            self.starts -= 1
            raise RuntimeError("Request failed with status code 500: No available agent to submit job, please try again later..")
        assert sent["submission_id"] not in self.jobs
        self.sent.append(sent)
        self.jobs[sent["submission_id"]] = job(sent["submission_id"], *self.end)

    def get_job_info(self, name: str) -> Any:
        return self.jobs[name]

    def get_job_status(self, name: str) -> Any:
        return SimpleNamespace(value="RUNNING") if self.drops else self.jobs[name].status

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        yield "one\ntw"
        if self.drops:
            self.drops -= 1
            raise RuntimeError("WebSocket connection closed unexpectedly")
        yield "o\nthree\n"

    def get_address(self) -> str:
        return "http://head:8265"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(submit, "POLL_SECONDS", 0.01)
    monkeypatch.setattr("ray.util.state.list_nodes", lambda address, **options: [SimpleNamespace(node_ip="192.0.2.7")])

    def connect(jobs: Jobs, *arguments: str) -> int:
        monkeypatch.setattr(submit, "_client", lambda address: jobs)
        return main(["submit", str(DEMO), "--set", f"store.path={tmp_path}", *arguments])

    return connect


def test_a_run_is_sent_with_its_id_and_environment(cluster: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    jobs = Jobs()
    assert cluster(jobs, "--set", "name=a b".replace(" ", "-"), "--until", "corpus") == 0
    (sent,) = jobs.sent
    assert (
        sent["entrypoint"] == f"python -m pipeline run configs/demo.yaml --until corpus --set store.path={tmp_path} --set name=a-b"
    )
    assert sent["submission_id"].startswith("a-b-")
    assert sent["metadata"]["run"] == sent["metadata"]["job_name"] == sent["submission_id"]
    environment = sent["runtime_env"]
    assert environment["working_dir"] == "."
    assert int(environment["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) > 20
    assert environment["env_vars"]["FEWSTEP_REVISION"]
    assert "py_modules" not in environment
    assert "one\ntwo\nthree\n" in capsys.readouterr().out  # each part once, though the connection broke


@pytest.mark.parametrize(
    ("nodes", "stated", "python"),
    [
        (["127.0.0.1"], None, sys.executable),
        (["127.0.0.1", "::1"], None, sys.executable),
        (["127.0.0.1", "192.0.2.7"], None, "python"),  # an address of documentation, which no machine has
        ([], None, "python"),
        (None, None, "python"),
        (["127.0.0.1"], "/shared/venv/bin/python", "/shared/venv/bin/python"),
        (["192.0.2.7"], "/shared/venv/bin/python", "/shared/venv/bin/python"),
    ],
)
def test_jobs_on_this_machine_use_the_python_that_submits(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, nodes: list[str] | None, stated: str | None, python: str, tmp_path: Path
) -> None:
    def list_nodes(address: str, **options: Any) -> list[Any]:
        if nodes is None:
            raise RuntimeError("Failed to make request")
        return [SimpleNamespace(node_ip=ip) for ip in nodes]

    monkeypatch.setattr("ray.util.state.list_nodes", list_nodes)
    if stated:
        (path := tmp_path / "runtime-env.yaml").write_text(f"py_executable: {stated}\n")
        monkeypatch.setattr(submit, "RUNTIME_ENV", path)
    jobs = Jobs()
    assert cluster(jobs, "--no-wait") == 0
    (sent,) = jobs.sent
    assert sent["entrypoint"].startswith(f"{python} -m pipeline run configs/demo.yaml ")
    assert sent["runtime_env"].get("py_executable", "python") == python


def test_a_head_that_is_starting_is_waited_for(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    jobs.starts = 3
    assert cluster(jobs) == 0
    assert len(jobs.sent) == 1
    monkeypatch.setattr(submit, "STARTING_SECONDS", 0.0)
    stuck = Jobs()
    stuck.starts = 10**6
    assert cluster(stuck) == 1
    assert not stuck.sent


def test_the_id_is_that_of_the_config(cluster: Any) -> None:
    jobs = Jobs()
    for arguments in ((), ("--until", "corpus"), ("--force", "corpus"), ("--set", "defaults.training.seed=7")):
        assert cluster(jobs, *arguments, "--no-wait") == 0
    first, *others = [sent["submission_id"] for sent in jobs.sent]
    assert len({first, *others}) == 4
    assert jobs.sent[2]["entrypoint"].startswith("python -m pipeline run configs/demo.yaml --force corpus ")
    again = Jobs()
    cluster(again, "--no-wait")
    assert again.sent[0]["submission_id"] == first


def test_a_running_job_is_followed_and_one_that_ended_is_submitted_again(cluster: Any, tmp_path: Path) -> None:
    probe = Jobs()
    cluster(probe, "--no-wait")
    name = probe.sent[0]["submission_id"]
    at_work = Jobs(job(name, "RUNNING"), end=("FAILED", 1))
    assert cluster(at_work, "--no-wait") == 0
    assert at_work.sent == []
    ended = Jobs(job(name, "FAILED", 1), job(f"{name}-2", "STOPPED"))
    assert cluster(ended) == 0
    assert [sent["submission_id"] for sent in ended.sent] == [f"{name}-3"]


@pytest.mark.parametrize(("end", "code"), [(("FAILED", 2), 2), (("FAILED", 1), 1), (("STOPPED", None), 130), (("SUCCEEDED", 0), 0)])
def test_the_exit_code_is_that_of_the_run(cluster: Any, end: tuple[str, int | None], code: int) -> None:
    assert cluster(Jobs(end=end)) == code


def test_a_job_without_an_exit_code_says_why(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster(Jobs(end=("FAILED", None))) == 1
    assert "failed before its command ended: no node" in capsys.readouterr().err


def test_a_lost_head_is_reported(cluster: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(jobs: Jobs, name: str) -> Any:
        raise ConnectionError("refused")

    monkeypatch.setattr(Jobs, "get_job_status", lost)
    assert cluster(Jobs()) == 1
    assert "the cluster no longer answers: refused; submit again" in capsys.readouterr().err


def test_what_machines_cannot_share_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"store\.path: expected the absolute path .* got 'store'.*store\.path=/shared"):
        submit.check_store(load_config(DEMO))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="expected a config below the current directory"):
        submit.run_command(DEMO, [], None, ())


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", lambda address: (_ for _ in ()).throw(ConnectionError("refused")))
    with pytest.raises(StageError, match=r"at http://nobody:8265: .* refused; check --address .* RAY_AUTH_TOKEN"):
        submit._client("http://nobody:8265")


def test_the_extension_travels_as_a_wheel_that_pip_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewstep_native, "MISSING", ())  # it travels with the levels that are there
    wheel = write_extension_wheel(tmp_path)
    assert wheel.read_bytes() == write_extension_wheel(tmp_path).read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", f"--target={target}", str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True)
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    assert done.returncode == 0, done.stderr
    code = "import fewstep_native; print(fewstep_native.__file__, fewstep_native.ABI, fewstep_native.LEVELS)"
    alone = [sys.executable, "-S", "-c", code]  # without site: an editable installation would be found first
    found = subprocess.run(alone, env={"PYTHONPATH": str(target)}, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(target))
    assert found.stdout.rstrip().endswith(str(fewstep_native.LEVELS)), "all levels travel"


def test_an_extension_for_one_machine_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewstep_native, "MISSING", ("x86-64-v2", "x86-64-v3"))
    with pytest.raises(StageError, match=r"without the levels x86-64-v2, x86-64-v3; compile it with `make LEVELS=all`"):
        write_extension_wheel(tmp_path)


def test_a_directory_without_the_project_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"{tmp_path}: expected a checkout of fewstep"):
        submit.run_command(tmp_path / "c.yaml", [], None, ())
