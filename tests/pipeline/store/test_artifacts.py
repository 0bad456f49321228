"""Artifacts, their files and the JSON of a store."""

import errno
import gzip
import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.store import streams, url_copy
from pipeline.store.artifacts import Store, write_atomically
from pipeline.store.attempts import partial_directory
from pipeline.store.url_copy import read_json_pages
from stages.artifacts import MANIFEST, STOP, Artifact, ExternalFile
from stages.errors import ArtifactError, DataError, StageError
from stages.stage import Stage
from tests.pipeline.run_specs import manifest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def finished(store: Store, content: str = "hello", fingerprint: str = "f" * 32) -> Path:
    directory = store.directory("toy", fingerprint)
    partial = partial_directory(directory, "1")
    (partial / "records").mkdir(parents=True)
    (partial / "checkpoints" / "12").mkdir(parents=True)
    (partial / "checkpoints" / "12" / "model").write_text("state")
    (partial / "checkpoints" / "24.dead.tmp").mkdir()
    (partial / "checkpoints" / "24.dead.tmp" / "model").write_text("torn")
    (partial / "result.txt").write_text(content)
    (partial / "result.txt.dead.tmp").write_text("torn")
    (partial / "records" / "log.txt").write_text("noise")
    store.commit(directory, manifest(fingerprint=fingerprint))
    return directory


def test_commit_hashes_results_lists_records_and_removes_other_files(store: Store) -> None:
    directory = finished(store)
    done = store.manifest(directory)
    assert done is not None
    assert done.files == {"result.txt": {"bytes": 5, "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}}
    assert done.records == ["records/log.txt"]
    assert sorted(p.name for p in directory.iterdir()) == [MANIFEST, "records", "result.txt"]
    assert not partial_directory(directory, "1").exists()


def test_a_partial_directory_is_not_finished(store: Store) -> None:
    directory = store.directory("toy", "f" * 32)
    partial_directory(directory, "1").mkdir(parents=True)
    assert store.manifest(directory) is None


def test_a_truncated_file_is_an_error_when_planning(store: Store) -> None:
    directory = finished(store)
    os.truncate(directory / "result.txt", 3)
    with pytest.raises(ArtifactError, match=r"result\.txt: expected 5 bytes, got 3; .*remove"):
        store.manifest(directory)


def test_a_missing_file_is_an_error_when_planning(store: Store) -> None:
    directory = finished(store)
    (directory / "result.txt").unlink()
    with pytest.raises(ArtifactError, match="expected 5 bytes, got no such file"):
        store.manifest(directory)


def test_altered_content_of_equal_size_is_found_by_verification(store: Store) -> None:
    directory = finished(store)
    store.verify(directory)
    os.utime(directory / "result.txt", ns=(1, 1))
    store.verify(directory)  # touched but not altered: hashed again and accepted
    (directory / "result.txt").write_text("hullo")
    assert store.manifest(directory) is not None
    with pytest.raises(ArtifactError, match="expected sha256 2cf24dba"):
        store.verify(directory)
    assert [(d, bool(problem)) for d, problem in store.verify_all()] == [(directory, True)]


def test_verify_all_hashes_verified_artifacts_again(store: Store) -> None:
    directory = finished(store)
    status = (directory / "result.txt").stat()
    (directory / "result.txt").write_text("hullo")
    os.utime(directory / "result.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert next(iter(store.verify_all()))[1] is not None


def test_a_manifest_of_another_schema_is_refused(store: Store) -> None:
    directory = finished(store)
    data = json.loads((directory / MANIFEST).read_text())
    (directory / MANIFEST).write_text(json.dumps({**data, "schema": 0}))
    with pytest.raises(ArtifactError, match="expected schema 1, got 0"):
        store.manifest(directory)


def test_an_incomplete_manifest_is_an_error(store: Store) -> None:
    directory = finished(store)
    (directory / MANIFEST).write_text("{")
    with pytest.raises(ArtifactError, match="expected a JSON manifest"):
        store.manifest(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": {"../../secret": {"bytes": 6, "sha256": "0" * 64}}}, "files: expected the relative name of a file below"),
        ({"files": {"/etc/hostname": {"bytes": 6, "sha256": "0" * 64}}}, "files: expected the relative name of a file below"),
        ({"files": {"link": {"bytes": 6, "sha256": "0" * 64}}}, "files: expected a file, got the link link"),
        ({"records": ["records/../../x"]}, "records: expected the relative name of a file below"),
        ({"files": {"result.txt": {"bytes": 5}}}, "files: result.txt: expected bytes and sha256, got"),
        ({"files": {"result.txt": {"bytes": "5", "sha256": ""}}}, "files: result.txt: expected bytes and sha256, got"),
        ({"files": []}, r"files: expected dict, got \[\]"),
        ({"version": "1"}, "version: expected int, got '1'"),
        ({"inputs": None}, "inputs: expected dict, got None"),
        ({"more": 1}, "expected the keys of a manifest, got 'more'"),
    ],
)
def test_a_manifest_that_leads_elsewhere_is_refused(store: Store, changes: dict[str, object], message: str) -> None:
    directory = finished(store)
    (store.root / "secret").write_text("secret")
    (directory / "link").symlink_to(store.root / "secret")
    data = json.loads((directory / MANIFEST).read_text())
    (directory / MANIFEST).write_text(json.dumps({**data, **changes}))
    with pytest.raises(ArtifactError, match=message):
        store.manifest(directory)


@pytest.mark.parametrize("text", ["[]", "3", "[" * 100_000])
def test_a_manifest_is_an_object(store: Store, text: str) -> None:
    directory = finished(store)
    (directory / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match=r"expected a JSON (object|manifest), got"):
        store.manifest(directory)


def test_the_second_commit_of_an_artifact_is_discarded(store: Store) -> None:
    directory = finished(store, "hello")
    again = partial_directory(directory, "1")
    again.mkdir()
    (again / "result.txt").write_text("hello")
    store.commit(directory, manifest())
    assert store.manifest(directory) is not None


def test_digests_depend_on_content_and_not_on_paths(store: Store, tmp_path: Path) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("one\n")
    b.write_text("one\n")
    assert store.digest(a) == store.digest(b)
    a.write_text("two\n")
    os.utime(a, ns=(5, 5))
    assert store.digest(a) != store.digest(b)


def test_the_digest_of_a_missing_file_is_an_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: expected a readable text file, got: No such file"):
        store.digest(tmp_path / "absent.txt")


@dataclass(frozen=True)
class Toy(Artifact):
    pass


def test_a_pinned_artifact_keeps_its_fingerprint(store: Store, tmp_path: Path) -> None:
    directory = finished(store)
    moved = tmp_path / "elsewhere"
    directory.rename(moved)
    manifest = store.manifest(moved)
    stage, other = (Stage(name, 1, lambda inputs, config, context: None, Toy) for name in ("toy", "other"))
    assert store.pinned([other, stage], moved, "vocabulary.from") == (Toy(moved, "f" * 32), manifest)
    with pytest.raises(DataError, match=r"vocabulary\.from: expected the directory of a finished artifact"):
        store.pinned([stage], tmp_path, "vocabulary.from")
    with pytest.raises(DataError, match=r"vocabulary\.from: expected an artifact of stage other, got one of stage toy"):
        store.pinned([other], moved, "vocabulary.from")


@pytest.mark.parametrize("place", ["elsewhere", "store/toy/" + "f" * 32])
def test_a_pinned_artifact_with_a_flipped_bit_is_refused(store: Store, tmp_path: Path, place: str) -> None:
    """The file has the times of the original."""
    finished(store).rename(tmp_path / place)
    pinned, stage = tmp_path / place, Stage("toy", 1, lambda inputs, config, context: None, Toy)
    store.pinned([stage], pinned, "vocabulary.from")
    status = (pinned / "result.txt").stat()
    (pinned / "result.txt").write_text("hellk")
    os.utime(pinned / "result.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ArtifactError, match=r"result\.txt: expected sha256 2cf24dba.*copy it again if the config pins it"):
        store.pinned([stage], pinned, "vocabulary.from")


def test_a_damaged_copy_of_a_verified_artifact_is_refused(store: Store, tmp_path: Path) -> None:
    directory = finished(store)
    store.verify(directory)
    copy = tmp_path / "other" / "toy" / directory.name
    shutil.copytree(directory, copy)
    (copy / "result.txt").write_text("hellk")
    shutil.copystat(directory / "result.txt", copy / "result.txt")
    with pytest.raises(ArtifactError, match=r"other/toy/f+/result\.txt: expected sha256"):
        store.verify(copy)


def test_a_late_stop_request_is_not_part_of_the_artifact(store: Store) -> None:
    directory = store.directory("toy", "f" * 32)
    partial_directory(directory, "1").mkdir(parents=True)
    (partial_directory(directory, "1") / STOP).touch()
    finished(store)
    done = store.manifest(directory)
    assert done is not None
    assert list(done.files) == ["result.txt"]
    assert not (directory / STOP).exists()


def test_a_file_that_changes_after_planning_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one")
    file = ExternalFile(path, store.digest(path))
    store.check_unchanged(file)
    path.write_text("another")
    with pytest.raises(DataError, match=r"text\.txt: expected the content that the run was planned with"):
        store.check_unchanged(file)


def test_the_error_for_a_full_disk_names_place_and_remedy(tmp_path: Path) -> None:
    from stages.errors import unwritable

    error = unwritable(tmp_path / "a" / "x.arrow", OSError(errno.ENOSPC, "No space left on device"))
    assert "x.arrow" in str(error)
    assert "free some space" in str(error)


def test_a_full_disk_during_an_atomic_write_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StageError, match=r"run\.json: could not be written: No space left"):
        write_atomically(tmp_path / "run.json", "{}")


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
        (lambda h: send(h, b"[]", Link='<http://[/a>; rel="next"'), "expected links to further pages of this server"),
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
        (lambda h: send(h, b"", 302, Location="http://[::1/x"), r"expected the URL of a web server, got 'http://\[::1/x'"),
        (lambda h: send(h, b"", 302, Location="http://h/\xff"), r"expected the URL of a web server, got 'http://h/\xff'"),
        (lambda h: send(h, b"", 302, Location=f"http://{'a' * 99}/x"), "expected the URL of a web server, got 'http://aaa"),
        (lambda h: send(h, b"", 503), "the server answered 503"),
    ],
)
def test_answers_that_lead_nowhere_are_named(answer: Answer, problem: str, serve: Callable[[Answer], str]) -> None:
    with pytest.raises(StageError, match=problem):
        read_json_pages(serve(answer))


def test_an_answer_that_takes_too_long_is_given_up(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_copy, "WAIT_SECONDS", -1.0)
    with pytest.raises(StageError, match="expected JSON within"):
        read_json_pages(serve(lambda handler: send(handler, b"[]")))


@pytest.mark.parametrize("sent", [b"HTTP/1.0 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n["])
def test_an_answer_that_drips_is_given_up(serve: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Each byte renews the time that a call waits for the next one, in the head of an answer as in its content."""
    monkeypatch.setattr(url_copy, "WAIT_SECONDS", 0.5)
    over = threading.Event()

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            handler.wfile.write(sent)
            while not over.wait(0.05):
                handler.wfile.write(b" ")

    try:
        with pytest.raises(StageError, match=r"/a: expected JSON within 0.5 s"):
            read_json_pages(serve(answer))
    finally:
        over.set()
