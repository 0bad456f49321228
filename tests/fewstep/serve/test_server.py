"""A server in a process of its own: answers, faults, and its end."""

import json
import signal
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from fewstep.serve.settings import Settings
from fewstep.system.load import load
from fewstep.vocabulary import clean
from tests.fewstep.serve.conftest import command, environment, running, until

LINES = ["ein hund läuft", "zwei katze springt schnell blau", "drei", "grün hund", "ein", "katze läuft läuft", "blau blau drei ein"]


def outcome(answer):
    return [
        (entry["text"], entry["score"], entry["steps"], entry["statistics"])
        for ranked in answer["translations"]
        for entry in ranked
    ]


def test_the_server_answers_as_its_systems_do(server, directories):
    searches = {"small": "wide", "graph": "greedy"}
    status, answer = server.post({"sentences": LINES, "systems": ["graph", "small"], "search": {"small": "wide"}, "n_best": 1})
    assert status == 200
    assert [(entry["system"], entry["search"]) for entry in answer["systems"]] == [("graph", "greedy"), ("small", "wide")]
    for entry in answer["systems"]:
        system = load(directories[entry["system"]])
        expected = system.translate(LINES, searches[entry["system"]], scores=True)
        found = outcome(entry)
        assert [text for text, *_ in found] == [translation.text for translation in expected]
        assert [steps for *_, steps, _ in found] == [translation.steps for translation in expected]
        assert [score for _, score, *_ in found] == pytest.approx([translation.score for translation in expected], abs=1e-5)
        assert entry["milliseconds"] > 0
    assert len({text for text, *_ in outcome(answer["systems"][1])}) > 3, "the systems are not trivial"


def test_n_best_comes_best_first(server):
    status, answer = server.post({"sentences": LINES[:2], "search": "wide", "n_best": 3})
    assert status == 200
    for ranked in answer["systems"][0]["translations"]:
        scores = [entry["score"] for entry in ranked]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


def test_answers_do_not_depend_on_company(server):
    """Thirty requests at once, of different sizes and searches, give what each gives alone."""
    requests = [
        {
            "sentences": LINES[start % 5 :][: 1 + start % 3],
            "systems": ["small", "graph"],
            "search": {"small": ("greedy", "wide")[start % 2]},
        }
        for start in range(30)
    ]
    alone = [server.post(request) for request in requests]
    with ThreadPoolExecutor(15) as pool:
        together = list(pool.map(server.post, requests))
    assert all(status == 200 for status, _ in alone + together)
    for (_, one), (_, other) in zip(alone, together, strict=True):
        for first, second in zip(one["systems"], other["systems"], strict=True):
            assert outcome(first) == outcome(second)
    assert max(entry["largest_batch"] for _, answer in together for entry in answer["systems"]) > 3, "they had company"


TOO_LARGE = {
    "a megabyte line": (json.dumps({"sentences": ["ein " * 250_000]}), "body: expected at most 100000 bytes"),
    "a long sentence": (json.dumps({"sentences": ["ein", "ein " * 200]}), "sentences[1]: expected at most 400 characters, got 800"),
    "10,000 sentences": (json.dumps({"sentences": ["ein"] * 10_000}), "sentences: expected at most 50, got 10000"),
    "forty megabytes": (b"x" * 40_000_000, "body: expected at most 100000 bytes"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_requests_that_are_too_large_are_answered(server, name):
    body, detail = TOO_LARGE[name]
    status, answer = server.post(body if isinstance(body, bytes) else body.encode())
    assert status == 413
    assert answer["detail"].startswith(detail)


INVALID = {
    "invalid UTF-8": (b'{"sentences": ["\xff\xfe"]}', 400, "body: expected UTF-8, got the byte 0xff at position 16"),
    "no JSON": (b"ein hund", 422, "JSON decode error"),
    "deep JSON": (b"[" * 50_000, 400, "body: expected JSON of a few levels"),
    "no sentences": (b'{"sentences": []}', 422, "sentences: "),
    "a number": (b'{"sentences": [1]}', 422, "sentences.0: "),
    "one string": (b'{"sentences": "ein"}', 422, "sentences: "),
    "an unknown key": (b'{"sentences": ["ein"], "beam": 3}', 422, "beam: "),
    "an unknown label": (
        b'{"sentences": ["ein"], "search": "beam"}',
        422,
        "search: expected one of greedy, wide for small, got 'beam'",
    ),
    "a derived label": (b'{"sentences": ["ein"], "search": "beam-beam_size4000"}', 422, "search: expected one of greedy, wide"),
    "an unknown system": (
        b'{"sentences": ["ein"], "systems": ["large"]}',
        422,
        "systems: expected names of small, graph, got 'large'",
    ),
    "a search of no requested system": (
        b'{"sentences": ["ein"], "search": {"graph": "greedy"}}',
        422,
        "search: expected requested systems",
    ),
    "too many translations": (
        b'{"sentences": ["ein"], "search": "wide", "n_best": 4}',
        422,
        "search wide of small: n_best: expected at most 3",
    ),
    "n_best beyond the limit": (b'{"sentences": ["ein"], "n_best": 1000000}', 422, "n_best: expected at most 32"),
    "half a surrogate": (b'{"sentences": ["ein"], "systems": ["\\ud800"]}', 422, "systems: "),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_requests_are_explained(server, name):
    body, expected, detail = INVALID[name]
    status, answer = server.post(body)
    assert status == expected
    assert detail in answer["detail"]


def test_control_characters_and_invalid_unicode_are_cleaned(server):
    dirty = "ein\x00 hund\r\n\x07 läuft\u2028\ufeff \u2581"
    (_, answer), (_, plain) = (server.post({"sentences": [line]}) for line in (dirty, clean(dirty, 1)))
    assert outcome(answer["systems"][0]) == outcome(plain["systems"][0])
    status, _ = server.post(b'{"sentences": ["ein \\ud800 hund"]}')
    assert status == 200


def test_blank_sentences_have_empty_translations(server):
    status, answer = server.post({"sentences": ["", " \t ", "ein"], "systems": ["small", "graph"]})
    assert status == 200
    for entry in answer["systems"]:
        assert [found[0::2] for found in outcome(entry)[:2]] == [("", 0)] * 2


def test_the_document_is_valid_and_complete(server):
    document = json.loads(server.request("GET", "/openapi.json")[2])
    validate(document)
    assert set(document["paths"]) == {"/translate", "/explain", "/systems", "/healthz", "/metrics"}
    assert {"200", "400", "401", "413", "422", "429"} <= set(document["paths"]["/translate"]["post"]["responses"])
    assert document["components"]["securitySchemes"]


def test_systems_are_listed_with_their_searches(server):
    systems = json.loads(server.request("GET", "/systems")[2])["systems"]
    assert [(one["name"], one["family"], list(one["searches"])) for one in systems] == [
        ("small", "stepwise", ["greedy", "wide"]),
        ("graph", "dag", ["greedy", "lookahead"]),
    ]
    assert systems[0]["searches"]["wide"]["beam_size"] == 3


def test_metrics_count_requests_and_sentences(server):
    def counts():
        labels = 'search="wide",system="small"'
        samples = (
            'fewstep_requests_total{path="/translate",status="200"}',
            'fewstep_requests_total{path="/translate",status="422"}',
            'fewstep_requests_total{path="other",status="404"}',
            f"fewstep_sentences_total{{{labels}}}",
            f"fewstep_steps_total{{{labels}}}",
            f"fewstep_batch_sentences_count{{{labels}}}",
        )
        return [server.metric(sample) for sample in samples]

    before = counts()
    _, answer = server.post({"sentences": LINES[:3], "search": "wide"})
    server.post({"sentences": LINES[:1], "search": "none"})
    server.request("GET", "/nowhere")
    steps = sum(steps for _, _, steps, _ in outcome(answer["systems"][0]))
    assert [after - earlier for earlier, after in zip(before, counts(), strict=True)] == [1, 1, 1, 3, steps, 1]
    assert server.metric("fewstep_waiting_sentences") == 0


def test_the_page_is_one_file_that_may_load_nothing(server):
    status, headers, body = server.request("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"src=" not in body
    assert b"http" not in body.replace(b"http://www.w3.org/2000/svg", b"")


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
        assert server.process.wait(20) == 0
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


def test_a_full_queue_is_announced(directories):
    with (
        running(directories["small"], "--max-sentences", 2, "--max-waiting", 4, delay=0.5) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = list(pool.map(server.post, [{"sentences": ["ein", "drei"]}] * 8))
        statuses = [status for status, _ in answers]
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 2
        assert all("are waiting, and at most 4 may" in answer["detail"] for status, answer in answers if status == 429)
        assert server.post({"sentences": ["ein"]})[0] == 200, "afterwards there is room again"


def test_a_client_that_hangs_up_frees_its_place(directories):
    with running(directories["small"], "--max-batch", 1, delay=0.2) as server:
        body = json.dumps({"sentences": ["ein"] * 200}).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        )
        with socket.create_connection((server.host, server.port)) as rude:
            rude.sendall(head + body)
            until(lambda: server.metric("fewstep_waiting_sentences") == 200)
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset the connection
        until(lambda: server.metric("fewstep_waiting_sentences") == 0, seconds=10)
        with socket.create_connection((server.host, server.port)) as rude:
            rude.sendall(head + body[:100])
        assert server.post({"sentences": ["ein"]})[0] == 200
        assert server.metric('fewstep_requests_total{path="/translate",status="499"}') == 1
        until(lambda: server.metric("fewstep_hung_up_total") == 1)
        assert server.metric("fewstep_sentences_total" + '{search="greedy",system="small"}') < 20


def test_requests_in_flight_are_answered_after_sigterm(directories):
    with running(directories["small"], "--max-batch", 2, delay=0.3) as server:
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(server.post, {"sentences": ["ein", "drei"]}) for _ in range(8)]
            until(lambda: server.metric("fewstep_waiting_sentences") >= 14)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.request("GET", "/healthz")[0] == 503, seconds=5)
            late = server.request("POST", "/translate", b'{"sentences": ["ein"]}', {"content-type": "application/json"})
            answers = [future.result() for future in asked]
        assert [status for status, _ in answers] == [200] * 8
        assert (late[0], late[1]["connection"]) == (200, "close")
        assert server.process.wait(20) == 0
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
        assert server.process.wait(20) == 0
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
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0


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
    ran = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(**more), timeout=60)
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


def test_a_graph_is_explained(server):
    status, answer = server.post({"sentence": LINES[0], "system": "graph", "search": "greedy"}, "/explain")
    assert (status, answer["kind"]) == (200, "dag")
    assert next(vertex["layer"] for vertex in answer["vertices"] if vertex["on_path"]) == 0
    assert all(
        answer["vertices"][edge["source"]]["layer"] < answer["vertices"][edge["target"]]["layer"] for edge in answer["edges"]
    )
    assert server.post({"sentence": LINES[0], "system": "small"}, "/explain") == (200, {"kind": None, "vertices": [], "edges": []})
    assert server.post({"sentence": " ", "system": "graph"}, "/explain")[1]["kind"] is None
    assert server.post({"sentence": "ein", "system": "graph", "search": "beam"}, "/explain")[0] == 422
    assert server.post({"sentence": "ein " * 200}, "/explain")[0] == 413
