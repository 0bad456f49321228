"""The same server on Ray Serve."""

import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.serving.servers import free_port
from tests.fewstep.serve.conftest import command, environment, running
from tests.processes import SLOW_SECONDS, until

pytestmark = [pytest.mark.slow, pytest.mark.ray]
pytest.importorskip("ray.serve", reason="Ray Serve is not installed (pip install 'ray[serve]')", exc_type=ImportError)


def test_a_cluster_answers_limits_and_drains(directories, tmp_path):
    (tmp_path / "token").write_text("secret")
    arguments = (
        *directories.values(),
        "--ray",
        "--max-batch",
        2,
        "--max-replicas",
        2,
        "--cpus",
        0.5,
        "--token-file",
        tmp_path / "token",
    )
    port, gate = free_port(), tmp_path / "gate"
    more = {"GATE": str(gate), "RAY_USAGE_STATS_ENABLED": "0"}
    with running(*arguments, "--drain-seconds", SLOW_SECONDS, port=port, **more) as server:
        mine = {"authorization": "Bearer secret"}
        status, answer = server.post({"sentences": ["ein hund"], "systems": ["small", "graph"]}, **mine)
        assert status == 200
        assert [entry["system"] for entry in answer["systems"]] == ["small", "graph"]
        assert server.post({"sentences": ["ein"]})[0] == 401
        assert server.post(b"x" * 3_000_000, **mine)[0] == 413
        assert server.post({"sentences": ["ein"], "search": "none"}, **mine)[0] == 422
        ran = subprocess.run(command(directories["small"], "--port", port), capture_output=True, text=True, env=environment())
        assert ran.returncode == 2, "a second server does not share the port"
        gate.touch()
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(server.post, {"sentences": ["ein", "drei", "zwei"]}, **mine) for _ in range(6)]
            until(lambda: server.metric("fewstep_waiting_sentences", **mine) == 18, SLOW_SECONDS)
            server.process.send_signal(signal.SIGTERM)
            gate.unlink()
            statuses = [future.result()[0] for future in asked]
        assert statuses == [200] * 6, "requests in flight are answered"
        assert server.process.wait(SLOW_SECONDS) == 0


@pytest.mark.exhaustive
def test_load_starts_a_second_replica(directories):
    options = ("--ray", "--max-batch", 1, "--max-replicas", 2, "--cpus", 0.5)
    ended, statuses = threading.Event(), set()

    def ask_on(server):
        while not ended.is_set():
            statuses.add(server.post({"sentences": ["ein"]})[0])

    with (
        running(directories["small"], *options, port=free_port(), delay=0.2, RAY_USAGE_STATS_ENABLED="0") as server,
        ThreadPoolExecutor(20) as pool,
    ):
        clients = [pool.submit(ask_on, server) for _ in range(20)]
        try:
            replicas = set()
            until(lambda: replicas.add(server.metric("process_start_time_seconds")) or len(replicas) > 1, SLOW_SECONDS)
        finally:
            ended.set()
        for client in clients:
            client.result()
    assert statuses == {200}
