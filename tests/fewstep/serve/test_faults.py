"""The access to a server, its faults and its end."""

import json
import signal
import socket
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fewstep.serve.settings import Settings
from tests.fewstep.serve.conftest import LINES, command, environment, running
from tests.waiting import FAST_SECONDS, until


def test_a_token_guards_everything_but_the_page_and_the_probe(directories, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with running(directories["small"], "--token-file", tmp_path / "token") as server:
        request = {"sentences": ["ein"]}
        assert server.post(request)[0] == 401
        assert server.post(request, authorization="Bearer wrong")[0] == 401
        assert server.post(request, authorization="Bearer secret")[0] == 200
        assert [server.request("GET", path)[0] for path in ("/", "/healthz", "/systems", "/metrics")] == [200, 200, 401, 401]


def test_a_token_is_shown_nowhere(directories):
    """Neither in the list of processes nor in what the server prints, also when it fails."""
    secret = "s3cr3t-of-the-server"
    assert secret not in repr(Settings(token=secret))
    with running(directories["small"], FAULT="error", FEWSTEP_TOKEN=secret) as server:
        assert server.post({"sentences": ["hund " * 12]}, authorization=f"Bearer {secret}")[0] == 500
        assert server.post({"sentences": ["ein"]}, authorization=f"Bearer {secret}x")[0] == 401
        assert secret not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
        assert secret not in server.request("GET", "/metrics", headers={"authorization": f"Bearer {secret}"})[2].decode()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(FAST_SECONDS) == 0
        assert "broken inside" in server.log()
        assert secret not in server.log()


def test_rates_are_limited(directories):
    with running(directories["small"], "--requests-per-second", 0.01, "--burst", 3) as server:
        answers = [
            server.request(
                "POST",
                "/translate",
                b'{"sentences": ["ein"]}',
                {"content-type": "application/json", "x-forwarded-for": f"10.0.0.{number}"},  # not believed
            )
            for number in range(5)
        ]
    assert [status for status, *_ in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1][1]["retry-after"]) <= 100


def test_a_full_queue_is_announced(directories, tmp_path):
    gate, body = tmp_path / "gate", {"sentences": ["ein", "drei"]}
    with (
        running(directories["small"], "--max-sentences", 2, "--max-waiting", 4, GATE=str(gate)) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        gate.touch()
        asked = [pool.submit(server.post, body) for _ in range(2)]
        until(lambda: server.metric("fewstep_waiting_sentences") == 4)
        status, answer = server.post(body)
        assert status == 429
        assert "4 sentences are waiting, and at most 4 may" in answer["detail"]
        gate.unlink()
        assert [future.result()[0] for future in asked] == [200, 200]
        assert server.post(body)[0] == 200, "afterwards there is room again"


def test_a_client_that_hangs_up_frees_its_place(directories):
    with running(directories["small"], "--max-batch", 1, delay=0.2) as server:
        body = json.dumps({"sentences": ["ein"] * 200}).encode()
        kind = "host: localhost\r\ncontent-type: application/json"
        head = f"POST /translate HTTP/1.1\r\n{kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection((server.host, server.port)) as rude:
            rude.sendall(head + body)
            until(lambda: server.metric("fewstep_waiting_sentences") == 200)
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset the connection
        until(lambda: server.metric("fewstep_waiting_sentences") == 0)
        with socket.create_connection((server.host, server.port)) as rude:
            rude.sendall(head + body[:100])
        assert server.post({"sentences": ["ein"]})[0] == 200
        assert server.metric('fewstep_requests_total{path="/translate",status="499"}') == 1
        until(lambda: server.metric("fewstep_hung_up_total") == 1)
        assert server.metric("fewstep_sentences_total" + '{search="greedy",system="small"}') < 20


def test_requests_in_flight_are_answered_after_sigterm(directories, tmp_path):
    gate = tmp_path / "gate"
    with running(directories["small"], "--max-batch", 2, "--drain-seconds", FAST_SECONDS, GATE=str(gate)) as server:
        gate.touch()
        with ThreadPoolExecutor(9) as pool:
            asked = [pool.submit(server.post, {"sentences": ["ein", "drei"]}) for _ in range(8)]
            until(lambda: server.metric("fewstep_waiting_sentences") == 16)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.request("GET", "/healthz")[0] == 503)
            json_text = {"content-type": "application/json"}
            late = pool.submit(server.request, "POST", "/translate", b'{"sentences": ["ein"]}', json_text)
            until(lambda: server.metric("fewstep_waiting_sentences") == 17)
            gate.unlink()
            answers = [future.result() for future in asked]
            status, headers, _ = late.result()
        assert [status for status, _ in answers] == [200] * 8
        assert (status, headers["connection"]) == (200, "close")
        assert server.process.wait(FAST_SECONDS) == 0
        with pytest.raises(ConnectionRefusedError):
            server.post({"sentences": ["ein"]})


def test_sigterm_under_load_breaks_no_answer(directories):
    """Clients that ask without a pause see complete answers until the port is closed."""
    ended, failures, answers = threading.Event(), [], []

    def ask_on(server):
        while not ended.is_set():
            try:
                answers.append(server.post({"sentences": LINES})[0])
            except ConnectionRefusedError:
                ended.set()
            except Exception as error:
                failures.append(error)

    with running(directories["small"], delay=0.01) as server, ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(ask_on, server) for _ in range(6)]
        until(lambda: len(answers) > 30)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(FAST_SECONDS) == 0
        for client in clients:
            client.result()
    # The kernel resets a connection that waits to be accepted when the port is closed; its request never reached the server.
    assert len(failures) <= 2
    assert all(isinstance(error, ConnectionResetError) for error in failures)
    assert set(answers) == {200}


def test_a_second_signal_ends_at_once(directories):
    with running(directories["small"], "--max-batch", 1, delay=1.0) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(
            server.request, "POST", "/translate", json.dumps({"sentences": ["ein"] * 100}), {"content-type": "application/json"}
        )
        until(lambda: server.metric("fewstep_waiting_sentences") == 100)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.request("GET", "/healthz")[0] == 503)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(FAST_SECONDS) == 0


def test_a_system_that_fails_is_reported_and_stays(directories):
    long, short = {"sentences": ["ein", "hund " * 12]}, {"sentences": ["ein"]}
    for fault, expected, detail in (("memory", 507, "out of memory with one source"), ("error", 500, "the server failed")):
        with running(directories["small"], FAULT=fault) as server, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(server.post, [long, short, short, long]))
            assert [status for status, _ in answers] == [expected, 200, 200, expected]
            assert detail in answers[0][1]["detail"]
            assert "broken inside" not in answers[0][1]["detail"], "the cause is in the log alone"
            assert server.post(short)[0] == 200
            assert server.metric(f'fewstep_requests_total{{path="/translate",status="{expected}"}}') == 2


def failure(*arguments, **more):
    ran = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(**more))
    return ran.returncode, ran.stderr.strip().splitlines()[-1]


def test_two_servers_do_not_share_a_port(server, directories):
    status, message = failure(directories["small"], "--port", server.port)
    assert status == 2
    assert message == (
        f"fewstep serve: 127.0.0.1:{server.port}: expected a free port, but another program listens there; stop it, or use --port"
    )


def test_bad_arguments_end_with_two(directories, tmp_path):
    small = directories["small"]
    assert failure(tmp_path / "nowhere")[0] == 2
    assert failure(small, "--token-file", tmp_path / "none")[0] == 2
    assert failure(small, "--host", "0.0.0.0")[1].startswith("fewstep serve: host: 0.0.0.0 can be reached from other machines")
    assert failure(small, FEWSTEP_TOKEN="")[1].startswith("fewstep serve: token: expected printable ASCII characters")
    assert failure(small, "--max-waiting", 5)[1].startswith(
        "fewstep serve: max_waiting: expected at least max_sentences (256), got 5"
    )
