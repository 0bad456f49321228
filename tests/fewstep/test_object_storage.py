"""Object storage that is slow, endless or false on purpose."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from fewstep import patience
from fewstep.object_storage import ObjectStorage
from fewstep.patience import GivenUpError

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]

LIST = (
    "<ListBucketResult><IsTruncated>{more}</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    "<Contents><Key>{key}</Key><Size>3</Size></Contents></ListBucketResult>"
)


def send(handler: http.server.BaseHTTPRequestHandler, content: str, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content.encode())


def listed(key: str, more: str = "false") -> Answer:
    return lambda handler: send(handler, LIST.format(key=key, more=more))


def silence(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.connection.recv(1)


def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(403)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b"<a>" * (1 << 18))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ObjectStorage, list[Answer]]]:
    """A storage that has answered already, so that the start of its process is over, and its last answer, which may be replaced."""
    given = [listed("folder/a")]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given[0](self)

        do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815 (the names that the base class asks for)

        def log_message(self, *arguments: object) -> None:
            pass

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        options = f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
        storage = ObjectStorage(f"s3://bucket?{options}")
        assert storage.sizes("folder") == {"a": 3}
        yield storage, given
        server.shutdown()


@pytest.mark.parametrize("answer", [silence, listed("folder/a", more="true")])
def test_a_storage_that_does_not_end_is_given_up(
    answers: tuple[ObjectStorage, list[Answer]], answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, given = answers
    monkeypatch.setattr(patience, "WAIT_SECONDS", 0.3)
    given[0] = answer
    with pytest.raises(GivenUpError, match=r"expected an answer within 0\.3 s, got none"):
        storage.sizes("folder")
    if answer is silence:
        for operation in (
            storage.remove,
            storage.size,
            lambda name: storage.write(name, [b"abc"]),
            lambda name: [*storage.read(name)],
        ):
            with pytest.raises(GivenUpError):
                operation("folder/a")


def test_an_answer_without_an_end_fills_no_memory(answers: tuple[ObjectStorage, list[Answer]]) -> None:
    storage, given = answers
    given[0] = endless
    with pytest.raises(OSError, match=r"Failed to flush response stream|expected an answer that takes at most 192 MiB of memory"):
        storage.sizes("folder")
    given[0] = listed("folder/a")
    assert storage.sizes("folder") == {"a": 3}


def test_a_list_of_other_objects_is_refused(answers: tuple[ObjectStorage, list[Answer]]) -> None:
    storage, given = answers
    given[0] = listed("other/a")
    with pytest.raises(OSError, match=r"expected a list of objects below bucket/folder, got 'bucket/other/a' in it"):
        storage.sizes("folder")
