"""The server as a process under load and faults, and its batches."""

import asyncio
import json
import signal
import socket
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fewstep.serve.batching import Backlog, Batcher, BusyError, Options
from fewstep.serve.metrics import Metrics
from fewstep.serve.settings import Settings
from fewstep.translation import Translation
from tests.fewstep.serve.conftest import LINES, command, environment, running
from tests.processes import FAST_SECONDS, until

# ---- the access to a server, its faults and its end


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


# ---- sentences that wait together are decoded together, in turn, and nobody suffers from the company


GREEDY, WIDE = Options("greedy", 1), Options("wide", 2)


class Decoder:
    """A decoder that waits at each batch until it is let through."""

    def __init__(self, open_gate=False):
        self.batches = []
        self.gate = threading.Semaphore(10_000 if open_gate else 0)

    def __call__(self, lines, options):
        self.batches.append((list(lines), options))
        self.gate.acquire()
        if "bad" in lines:
            raise ValueError("bad")
        return [[Translation(line.upper(), 0.0, 1, {})] for line in lines]


def run(scenario, decoder, max_waiting=1000, max_batch=4):
    """Run `scenario(batcher, backlog)` beside the loop of a batcher."""

    async def main():
        metrics = Metrics()
        backlog = Backlog(max_waiting, metrics)
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher("system", decoder, executor, backlog, metrics, max_batch)
            loop = asyncio.create_task(batcher.run())
            try:
                return await asyncio.wait_for(scenario(batcher, backlog), 30)
            finally:
                decoder.gate.release(10_000)
                loop.cancel()

    return asyncio.run(main())


async def begun(decoder, count):
    while len(decoder.batches) < count:
        await asyncio.sleep(0.001)


def texts(answer):
    return [ranked[0].text for ranked in answer.outputs]


def test_requests_that_wait_are_decoded_together_and_a_short_one_passes_a_long_one():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        long = asyncio.create_task(batcher.translate([f"l{index}" for index in range(7)], GREEDY))
        short = asyncio.create_task(batcher.translate(["s"], GREEDY))
        await asyncio.sleep(0.01)
        assert backlog.waiting == 9
        decoder.gate.release(2)
        answers = await first, await short
        assert not long.done()
        decoder.gate.release(2)
        return [*answers, await long, backlog.waiting]

    first, short, long, waiting = run(scenario, decoder)
    assert [lines for lines, _ in decoder.batches] == [["a"], ["l0", "s", "l1", "l2"], ["l3", "l4", "l5", "l6"]]
    assert (texts(first), texts(short)) == (["A"], ["S"])
    assert texts(long) == [f"L{index}" for index in range(7)], "the order of the request"
    assert (first.largest_batch, short.largest_batch, long.largest_batch) == (1, 4, 4)
    assert waiting == 0


def test_requests_with_other_options_wait_for_a_batch_of_their_own():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        rest = [
            asyncio.create_task(batcher.translate([name], options)) for name, options in (("b", WIDE), ("c", GREEDY), ("d", WIDE))
        ]
        await asyncio.sleep(0.01)
        decoder.gate.release(3)
        return await asyncio.gather(first, *rest)

    assert [texts(answer) for answer in run(scenario, decoder)] == [["A"], ["B"], ["C"], ["D"]]
    assert decoder.batches == [(["a"], GREEDY), (["b", "d"], WIDE), (["c"], GREEDY)]


def test_a_long_request_does_not_hold_up_other_options():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        long = asyncio.create_task(batcher.translate([f"l{index}" for index in range(12)], GREEDY))
        await begun(decoder, 1)
        other = asyncio.create_task(batcher.translate(["o"], WIDE))
        await asyncio.sleep(0.01)
        decoder.gate.release(3)
        await other
        done = long.done()
        decoder.gate.release(1)
        await long
        return done

    assert run(scenario, decoder) is False


def test_a_failure_reaches_its_request_alone():
    decoder = Decoder(open_gate=True)

    async def scenario(batcher, backlog):
        requests = [["a"], ["bad", "c"], ["d"]]
        answers = await asyncio.gather(*(batcher.translate(lines, GREEDY) for lines in requests), return_exceptions=True)
        later = await batcher.translate(["e"], GREEDY)
        return answers, later, backlog.waiting

    (good, bad, other), later, waiting = run(scenario, decoder)
    assert (texts(good), texts(other), texts(later)) == (["A"], ["D"], ["E"])
    assert isinstance(bad, ValueError)
    assert waiting == 0


def test_a_request_that_is_given_up_is_not_decoded():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        first = asyncio.create_task(batcher.translate(["a"], GREEDY))
        await begun(decoder, 1)
        given_up = asyncio.create_task(batcher.translate(["b"] * 9, GREEDY))
        kept = asyncio.create_task(batcher.translate(["c"], GREEDY))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.sleep(0)
        assert backlog.waiting == 2
        decoder.gate.release(2)
        return await first, await kept

    run(scenario, decoder)
    assert [lines for lines, _ in decoder.batches] == [["a"], ["c"]]


def test_the_queue_has_an_end():
    decoder = Decoder()

    async def scenario(batcher, backlog):
        accepted = asyncio.create_task(batcher.translate(["a"] * 3, GREEDY))
        await begun(decoder, 1)
        with pytest.raises(BusyError, match="3 sentences are waiting, and at most 4 may"):
            await batcher.translate(["b"] * 2, GREEDY)
        last = asyncio.create_task(batcher.translate(["c"], GREEDY))
        await asyncio.sleep(0.01)
        decoder.gate.release(9)
        return await accepted, await last

    accepted, last = run(scenario, decoder, max_waiting=4)
    assert (texts(accepted), texts(last)) == (["A"] * 3, ["C"])
