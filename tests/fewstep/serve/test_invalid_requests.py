"""Requests that are too large, invalid or malformed are answered and explained."""

import json
import socket

import pytest

from tests.waiting import FAST_SECONDS

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


HEAD = b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
BODY = b'{"sentences": ["ein"]}'
MALFORMED = {
    "headers without an end": (b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 100_000, 400),
    "TLS": (bytes.fromhex("160301020001000001fc0303") + b"a" * 200, 400),
    "a length that is no number": (HEAD + b"content-length: abc\r\n\r\n", 400),
    "two lengths": (HEAD + b"content-length: 22\r\ncontent-length: 5\r\n\r\n" + BODY, 400),
    "a broken chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    "a chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n16\r\n" + BODY + b"\r\n0\r\n\r\n", 200),
    "a length that is announced": (HEAD + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n", 413),
    "an old version": (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
    "text": (HEAD.replace(b"application/json", b"text/plain") + b"content-length: 22\r\n\r\n" + BODY, 415),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_http_is_answered(server, name):
    request, expected = MALFORMED[name]
    with socket.create_connection((server.host, server.port), timeout=FAST_SECONDS) as client:
        client.sendall(request)
        assert client.recv(100).startswith(b"HTTP/1.1 %d " % expected)
    assert server.request("GET", "/healthz")[0] == 200
