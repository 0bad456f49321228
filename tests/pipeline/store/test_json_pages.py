"""Tests of JSON from web servers that never ends: it is held in memory, so that its bytes and pages are limited."""

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from pipeline.store import streams, url_copy
from pipeline.store.url_copy import read_json_pages
from stages.errors import DataError, StageError

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


def send(handler: http.server.BaseHTTPRequestHandler, body: bytes, status: int = 200, length: bool = True, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {**headers, **({"Content-Length": str(len(body))} if length else {}), "Connection": "close"}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def send_endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        while True:
            handler.wfile.write(b"[" * 4096)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], str]]:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    servers = []

    def start(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *arguments: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/a"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_pages_are_read_in_order(serve: Callable[[Answer], str]) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/a":
            send(handler, b"[1]", Link=f'<http://{handler.headers["Host"]}/b>; rel="next"')
        elif handler.path == "/b":
            send(handler, b"", 302, Location="/c")
        else:
            send(handler, b"[2]")

    assert read_json_pages(serve(answer)) == [[1], [2]]


def test_json_without_end_is_refused(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_copy, "MAX_JSON_BYTES", 1 << 20)

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        send(handler, b"", length=False)
        send_endless(handler)

    with pytest.raises(DataError, match=r"expected at most 1,048,576 bytes of JSON, got more"):
        read_json_pages(serve(answer))


def test_a_redirection_with_content_without_end_is_followed(serve: Callable[[Answer], str]) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.path == "/a":
            send(handler, b"", 302, length=False, Location="/b")
            send_endless(handler)
        else:
            send(handler, b"3")

    assert read_json_pages(serve(answer)) == [3]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda h: send(h, b"[]", Link=f'<http://{h.headers["Host"]}/a>; rel="next"'), "expected at most 5 pages of JSON"),
        (lambda h: send(h, b"[]", Link='<http://elsewhere/a>; rel="next"'), "expected links to further pages of this server"),
        (lambda h: send(h, gzip.compress(b"[]" * 10**6), Content_Encoding="gzip"), "expected JSON that is not compressed"),
        (lambda h: send(h, b"[" * 10**5), "expected JSON, got something else"),
        (lambda h: send(h, b"{} and more"), "expected JSON, got something else"),
        (lambda h: send(h, b"", 404), "expected JSON, got the answer 404"),
    ],
)
def test_other_answers_are_refused(
    answer: Answer, problem: str, serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_copy, "MAX_PAGES", 5)
    with pytest.raises(DataError, match=problem):
        read_json_pages(serve(answer))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda h: send(h, b"", 302, Location="/a"), "expected at most 10 redirections"),
        (lambda h: send(h, b"", 302, Location="file:///etc/passwd"), "expected a redirection to a web server"),
        (lambda h: send(h, b"", 503), "the server answered 503"),
    ],
)
def test_answers_that_lead_nowhere_are_named(answer: Answer, problem: str, serve: Callable[[Answer], str]) -> None:
    with pytest.raises(StageError, match=problem):
        read_json_pages(serve(answer))


def test_an_answer_that_takes_too_long_is_given_up(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_copy, "JSON_SECONDS", -1.0)
    with pytest.raises(StageError, match="expected JSON within"):
        read_json_pages(serve(lambda handler: send(handler, b"[]")))
