"""Web servers cannot keep a client busy by bytes beside the content of their answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fewstep import answers
from fewstep.answers import limited
from fewstep.system import remote
from pipeline.store import streams
from pipeline.store.url_copy import copy_from_url
from pipeline.tracking.mlflow_server import Server as Tracking
from stages.external import ExternalConfig, OpenAIOptions
from stages.external.openai_server import Server as Teacher

CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "extensions of chunks": (CHUNKS, b"8;x=" + b"a" * 60_000 + b"\r\n        \r\n"),
    "trailers": (CHUNKS + b"2\r\n{}\r\n0\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
    "informational answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}


@pytest.fixture(params=FLOODS)
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """The address of a server whose answers go on without an end."""
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    begin, more = FLOODS[request.param]

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(begin)
            while True:
                connection.sendall(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


def teacher(url: str, folder: Path) -> object:
    config = ExternalConfig(openai=OpenAIOptions(url=url, model="m", retries=0), source_language="en", target_language="de")
    return Teacher(config).ask("text")


CLIENTS: dict[str, Callable[[str, Path], object]] = {
    "a system": lambda url, folder: remote.local_directory(url),
    "a file": lambda url, folder: copy_from_url(url, folder / "file"),
    "tracking": lambda url, folder: Tracking(url, "x", (), "p"),
    "a teacher": teacher,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_of_extensions_trailers_or_headers_without_an_end_is_refused(
    address: tuple[str, int], client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    with pytest.raises(Exception, match="expected at most 1,048,576 bytes beyond twice the content of an answer, got more"):
        CLIENTS[client]("http://{}:{}/a".format(*address), tmp_path)


def test_an_answer_in_chunks_of_eight_bytes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_BYTES_BESIDE_CONTENT", 1 << 14)
    here, there = socket.socketpair()
    number = 1 << 13
    threading.Thread(target=there.sendall, args=(CHUNKS + b"8\r\n12345678\r\n" * number + b"0\r\n\r\n",), daemon=True).start()
    connection = limited(HTTPConnection)("elsewhere")
    connection.sock = here
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert b"".join(iter(lambda: answer.read1(1 << 16), b"")) == b"12345678" * number
    connection.close()
    there.close()
