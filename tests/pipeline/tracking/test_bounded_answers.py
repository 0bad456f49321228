"""An MLflow server cannot fill the memory of its clients, let them wait without an end, or choose where they write."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.manifest import SCHEMA
from pipeline.tracking import artifacts, bounded_answers, mlflow_server
from pipeline.tracking.artifacts import folder_at
from pipeline.tracking.mlflow_server import Server
from pipeline.tracking.publisher import publish
from pipeline.tracking.sync_state import SyncState, run_of_artifact
from stages.errors import ArtifactError, StageError
from tests.pipeline.tracking.recorded_run import Settings, make_run

EXPERIMENT = {"experiment_id": "1", "name": "x", "artifact_location": "mlflow-artifacts:/1", "tags": []}
# HTTP/1.0: the connection closes after an answer, and a client that took it for an open one could send its next request into it.
HEAD = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n"

Answer = Callable[[Any], None]


def answered(value: Any, head: bytes = HEAD) -> Answer:
    content = json.dumps(value).encode()
    return lambda file: file.write(head + b"content-length: %d\r\n\r\n" % len(content) + content)


@contextmanager
def serving(runs: Callable[[], Answer]) -> Iterator[str]:
    """A server whose lists of runs are those of `runs`; its address."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            if "runs/search" in self.path:
                found = runs()
            else:
                found = answered({"experiment": EXPERIMENT} if "experiments" in self.path else {})
            with suppress(OSError):
                found(self.wfile)

        do_GET = do_POST = answer  # noqa: N815 (the names that the base class asks for)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def without_end(file: Any) -> None:
    file.write(HEAD + b"\r\n[")
    while True:
        file.write(b" " * (1 << 20))


def dripping(file: Any) -> None:
    file.write(HEAD + b"x: ")
    while True:
        file.write(b"x")
        threading.Event().wait(0.02)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (without_end, "expected at most 33,554,432 bytes, got more"),
        (dripping, "the other side lets this one wait"),
        (answered({}, HEAD + b"content-encoding: gzip\r\n"), "expected an answer that is not compressed"),
        (answered([[]] * 200), "expected at most 100 values of JSON, got more"),
    ],
)
def test_an_answer_without_an_end_is_refused(answer: Answer, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "WAIT_SECONDS", 0.5 if answer is dripping else 20.0)
    monkeypatch.setattr(bounded_answers, "MAX_JSON_VALUES", 100)
    with serving(lambda: answer) as uri, pytest.raises(Exception, match=problem):
        Server(uri, "x", (), "p")


def test_lists_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count()

    def page() -> Answer:
        name = f"r{next(numbers)}"
        tags = [{"key": "fewstep.step", "value": name}, {"key": "long", "value": "x" * 5000}]
        run = {"info": {"run_id": name, "run_uuid": name, "experiment_id": "1", "status": "RUNNING"}, "data": {"tags": tags}}
        return answered({"runs": [run], "next_page_token": name})

    with serving(page) as uri:
        with pytest.raises(StageError, match="expected at most 100 pages of a list of MLflow within 60 s"):
            Server(uri, "x", (), "p")
        assert next(numbers) == 100
        monkeypatch.setattr(mlflow_server, "MAX_CHARACTERS", 20_000)
        with pytest.raises(StageError, match="expected tags of at most 20,000 characters"):
            Server(uri, "x", (), "p")


@pytest.mark.parametrize("location", ["/etc", "file:///etc", "relative"])
def test_a_server_elsewhere_names_no_folder_of_this_machine(location: str) -> None:
    with pytest.raises(StageError, match="expected artifacts on the server or on object storage, got the folder"):
        folder_at(location, "http://example.org:5000")
    folder_at("mlflow-artifacts:/1", "http://example.org:5000")
    folder_at(location, f"http://{artifacts.LOOPBACK[0]}:5000")


@pytest.mark.parametrize("value", [{"a": 1}, {"publication": "p", "servers": [5]}, {"publication": 1, "servers": []}])
def test_a_record_of_publications_of_another_shape_is_refused_by_name(store: Path, settings: Settings, value: Any) -> None:
    run = make_run(store)
    (run.path / "mlflow.json").write_text(json.dumps({"schema": SCHEMA, **value}))
    assert run_of_artifact(run.path, "u", "f") is None
    with pytest.raises(ArtifactError, match=r"mlflow\.json: expected what was sent to MLflow"):
        SyncState.load(run.path, "u", "e")
    with pytest.raises(ArtifactError, match=r"mlflow\.json: expected what was sent to MLflow"):
        publish(run.path, settings)
