"""Downloads, and the URLs and streams that they come from, whose credentials nothing shows."""

import functools
import hashlib
import http.server
import os
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

from fewstep import patience
from pipeline.__main__ import main
from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from pipeline.plan.wiring import build_plan
from pipeline.run.run_directory import Run
from pipeline.store import downloads, streams, url_copy
from pipeline.store.artifacts import Store
from pipeline.store.downloads import RemoteFile, download
from pipeline.store.partial_file import PartialFile
from pipeline.urls import MIRROR_SCHEMES, TEXT_SCHEMES, expected_url, masked
from stages.errors import DataError, StageError
from tests.pipeline.run_specs import plan_entry, run_spec

TEXT = b"Ein Satz.\n" * 5000
SHA = hashlib.sha256(TEXT).hexdigest()


class Web(http.server.BaseHTTPRequestHandler):
    """A web server with one file, `/a.txt`. Each request takes the next of `faults`; further requests succeed."""

    protocol_version = "HTTP/1.1"
    text = TEXT
    faults: ClassVar[list[str]] = []
    asked = 0
    sent = 0
    """Bytes of files that do not end."""
    over = threading.Event()
    """Whether nobody reads what is sent slowly."""

    def do_GET(self) -> None:
        Web.asked += 1
        fault = Web.faults.pop(0) if Web.faults else ""
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault in DRIPS:
            self._drip(*DRIPS[fault])
            return
        self.send_response(200)
        if fault in ("chunked", "endless"):
            self.send_header("Transfer-Encoding", "chunked")
        elif fault != "lengthless":
            self.send_header("Content-Length", str(1 << 60 if fault == "enormous" else len(Web.text)))
        self.send_header("Connection", "close")
        self.end_headers()
        if fault == "chunked":
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(Web.text), Web.text))
            return
        if fault in ("endless", "lengthless"):
            self._send_without_end(b"%x\r\n%s\r\n" if fault == "endless" else b"%x%s")
            return
        self.wfile.write(Web.text[: len(Web.text) // 2] if fault == "cut" else Web.text)
        self.close_connection = True

    def _send_without_end(self, form: bytes) -> None:
        with suppress(OSError):  # the client closes the connection
            while True:
                self.wfile.write(form % (len(Web.text), Web.text))
                Web.sent += len(Web.text)

    def _drip(self, begun: bytes, more: bytes) -> None:
        """Send one byte after the other. Each renews the time that a call waits for the next one."""
        with suppress(OSError):
            self.wfile.write(begun)
            while not Web.over.wait(0.02):
                self.wfile.write(more)

    def log_message(self, format: str, *args: object) -> None:
        pass


DRIPS = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "halt": (b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + TEXT[: len(TEXT) // 2], b""),
    "content": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "sizes": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
}
"""Beginnings of answers that go on slowly, and what follows again and again."""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    Web.text, Web.faults, Web.asked, Web.sent = TEXT, [], 0, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    Web.over.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}/a.txt"
    Web.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def left(store: Store) -> list[str]:
    files = [p for p in (store.root / "downloads").rglob("*") if p.is_file() and p.suffix != ".lock"]
    return sorted(str(p.relative_to(store.root)) for p in files)


def test_a_file_is_downloaded_once_and_kept_under_its_digest(web: str, store: Store) -> None:
    file = download(RemoteFile(url=web), store)
    assert (file.digest, file.path) == (SHA, store.root / "downloads" / SHA / "a.txt")
    assert file.path.read_bytes() == TEXT
    Web.text = b"another"
    assert download(RemoteFile(url=web), store) == file
    assert download(RemoteFile(url=web, sha256=SHA), store) == file
    assert download(RemoteFile(url=web + "?mirror=2", sha256=f"sha256:{SHA}"), Store(store.root)).digest == SHA
    assert Web.asked == 1


@pytest.mark.parametrize("faults", [["503"], ["cut", "429"], ["chunked"]])
def test_transient_faults_are_retried(web: str, store: Store, faults: list[str]) -> None:
    Web.faults = list(faults)
    assert download(RemoteFile(url=web), store).path.read_bytes() == TEXT
    assert Web.asked == len(faults) + (faults != ["chunked"])


@pytest.mark.parametrize(
    ("faults", "error", "message"),
    [
        (["404"], DataError, "expected a file, got the answer 404"),
        (["401"], DataError, "got the answer 401"),
        (["lengthless"], DataError, "expected a server that states the length of the file"),
        (["endless"], DataError, "expected at most 2,000,000 bytes from a server that states no length"),
        (["enormous"], StageError, "expected 1,152,921,504,606,846,976 bytes of free space"),
        (["cut"] * 3, StageError, "could not be downloaded: .*the incomplete file was discarded"),
        (["503"] * 3, StageError, "the server answered 503"),
    ],
)
def test_incomplete_downloads_are_discarded(
    web: str, store: Store, faults: list[str], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_copy, "MAX_UNSTATED_BYTES", 2_000_000)
    Web.faults = list(faults)
    with pytest.raises(error, match=message):
        download(RemoteFile(url=web), store)
    assert left(store) == []
    assert Web.sent < 50_000_000
    assert download(RemoteFile(url=web), store).digest == SHA


@pytest.mark.parametrize("slow", DRIPS)
def test_a_download_that_drips_is_given_up(web: str, store: Store, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: another try would take as long."""
    monkeypatch.setattr(url_copy, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(patience, "WAIT_SECONDS", 0.5)
    Web.faults = [slow]
    message = (
        "the head of an answer within 0.5 s" if slow == "head" else "at least 1,000 bytes a second, got [0-9,]+ bytes and then"
    )
    with pytest.raises(StageError, match=f"could not be downloaded: expected {message}.* was discarded"):
        download(RemoteFile(url=web), store)
    assert (left(store), Web.asked) == ([], 1)
    monkeypatch.undo()
    assert download(RemoteFile(url=web), store).digest == SHA


def test_a_download_that_comes_to_a_halt_after_a_mebibyte_goes_on(web: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_copy, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(patience, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(url_copy, "BLOCK_BYTES", len(TEXT) // 2)
    Web.faults = ["halt"]
    assert download(RemoteFile(url=web), store).digest == SHA
    assert Web.asked == 2


def test_each_block_of_a_download_gives_time_for_the_next() -> None:
    given = patience.Patience(1.0)
    seen = []
    for _ in patience.flowing(iter([b"x" * 500, b"x" * 100_000, b"x"]), given):
        seen.append(given.seconds)
        given.seconds = 0.25
    assert seen == [1.5, patience.WAIT_SECONDS, 0.251]


def test_what_another_thread_takes_arrives_in_order_with_its_error() -> None:
    def items() -> Generator[int, None, None]:
        yield from range(100)
        raise DataError("that is all")

    taken = patience.waited_for(items(), patience.Patience(60.0))
    assert [next(taken) for _ in range(100)] == list(range(100))
    with pytest.raises(DataError, match="that is all"):
        next(taken)


def test_a_file_with_another_digest_than_the_pinned_one_is_refused(web: str, store: Store) -> None:
    Web.text = TEXT + b"!"
    with pytest.raises(DataError, match=f"expected sha256 {SHA}, which is pinned, got .* the download was discarded"):
        download(RemoteFile(url=web, sha256=SHA), store)
    assert left(store) == []
    Web.text = TEXT
    assert download(RemoteFile(url=web, sha256=SHA), store).digest == SHA


def test_a_file_is_compared_with_its_id_in_git(web: str, store: Store, tmp_path: Path) -> None:
    """Also if an earlier download has not compared it; and a file that passed is not read again for it."""
    (tmp_path / "a.txt").write_bytes(TEXT)
    command = ["git", "hash-object", "--no-filters", "a.txt"]
    blob = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    Web.text = TEXT + b"!"
    with pytest.raises(DataError, match=f"expected git_blob {blob}, which is pinned, got [0-9a-f]{{40}} .* was discarded"):
        download(RemoteFile(url=web, git_blob=blob), store)
    assert left(store) == []
    download(RemoteFile(url=web), store)
    Web.text = TEXT
    assert download(RemoteFile(url=web, git_blob=blob), store).digest == SHA
    assert Web.asked == 3
    with mock.patch.object(downloads, "git_blob_id", side_effect=AssertionError):
        assert download(RemoteFile(url=web, git_blob=blob), store).digest == SHA
    with pytest.raises(DataError, match=f"expected git_blob {'0' * 40}"):
        download(RemoteFile(url=web, git_blob="0" * 40), store)
    other = f"{web}?mirror=2"
    assert download(RemoteFile(url=other), store).digest == download(RemoteFile(url=other, git_blob=blob), store).digest
    assert Web.asked == 5


def test_an_altered_download_is_downloaded_again(web: str, store: Store) -> None:
    path = download(RemoteFile(url=web), store).path
    path.write_bytes(TEXT[:100])
    assert download(RemoteFile(url=web), store).path.read_bytes() == TEXT
    assert Web.asked == 2


def test_a_full_disk_is_not_retried(web: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(partial: PartialFile, blocks: Iterator[bytes]) -> None:
        next(blocks)
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(PartialFile, "append", full)
    with pytest.raises(StageError, match="could not be written: No space left"):
        download(RemoteFile(url=web), store)
    assert Web.asked == 1
    assert left(store) == []


def test_an_unreachable_server_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.01)
    with pytest.raises(StageError, match="could not be downloaded"):
        download(RemoteFile(url="http://127.0.0.1:9/a.txt"), store)


def test_fingerprints_do_not_depend_on_where_text_comes_from(web: str, tmp_path: Path, store: Store) -> None:
    (tmp_path / "here.txt").write_bytes(TEXT)
    (tmp_path / "base.yaml").write_text("corpus: {validation: {embedded: 10}, test: {t: {embedded: 10}}}\n")

    def step(source: str) -> str:
        config = load_config(tmp_path / "base.yaml", [f"corpus.train={{source: {source}, target: {tmp_path}/here.txt}}"])
        return next(s.fingerprint for s in build_plan(config, store).steps if s.name == "corpus:train")

    here = step(str(tmp_path / "here.txt"))
    assert step(web) == step(f"[{web}]") == step(f"{{url: '{web}', sha256: {SHA}}}") == step(f"[{{url: '{web}'}}]") == here


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("https://me:hunter2@host/a", "without user, password, token or signature"),
        ("'https://host/a?X-Amz-Signature=hunter2'", "without user, password"),
        ("'https://host/a?access_token=hunter2'", "without user, password"),
        ("ftp://host/hunter2", "of the form https://..., http://..., s3://..., gs://..."),
        ("{url: 'https://host/a', sha256: 12ab}", "64 hex digits"),
        ("{url: 'https://host/a', git_blob: 12ab}", "40 hex digits"),
        ("{url: 'https://host/a', sha265: 12ab}", "did you mean 'sha256'"),
    ],
)
def test_configs_with_invalid_urls_or_digests_are_refused(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(f"corpus:\n  train:\n    target: b\n    source: {source}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "a.yaml")
    assert message in str(caught.value)
    assert "a.yaml:4: corpus.train.source" in str(caught.value)
    assert "hunter2" not in str(caught.value) or "ftp" in source


def test_names_of_downloads_keep_the_suffix_of_compression(store: Store) -> None:
    for url, name in (
        ("https://host/a.en.gz?download=1", "a.en.gz"),
        ("s3://bucket/x/y.zst", "y.zst"),
        ("https://host/%2e%2e/", "_2e_2e"),
        ("https://host/..", "text"),
    ):
        assert downloads._path(store, "0", url).name == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a/b", None), ("s3://bucket/a?region=eu-west-1&endpoint_override=localhost:9000&scheme=http", None),
        ("file:///mnt/mirror", None), ("gs://bucket", None), ("s3://user:secret@bucket/a", "without user, password"),
        ("s3://user@bucket/a", "without user, password"), ("s3://bucket/a?secret_key=abc", "without user, password"),
        ("https://host/a?X-Amz-Signature=abc", "of the form"), ("s3://bucket/a?anonymous=true", "no other options"),
        ("s3://bucket/a#b", "without #"), ("s3:///a", "of the form"), ("/mnt/mirror", "of the form"), ("http://[", "a URL"),
    ],
)  # fmt: skip
def test_urls_of_mirrors(text: str, expected: str | None) -> None:
    got = expected_url(text, MIRROR_SCHEMES)
    assert got is None if expected is None else got is not None and expected in got


def test_urls_of_texts() -> None:
    assert expected_url("https://host/records/1/files/a.gz?download=1", TEXT_SCHEMES) is None
    assert expected_url("s3://bucket/a.gz", TEXT_SCHEMES) is None


def test_errors_do_not_contain_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    assert "wJalrXUtnFEMI" not in streams.brief_reason(OSError("bad key wJalrXUtnFEMI at https://h/x?X-Amz-Credential=AKIA1"))
    assert "AKIA1" not in streams.brief_reason(OSError("bad key wJalrXUtnFEMI at https://h/x?X-Amz-Credential=AKIA1"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:p@ss@host:5000/x", "http://***@host:5000/x"),
        ("postgresql+psycopg2://u:p@db/m failed", "postgresql+psycopg2://***@db/m failed"),
        ("http://user:p/a@s/s@host:5000/x and http://u:p@h", "http://***@host:5000/x and http://***@h"),
        ("http://host/x?auth=AB&pwd=CD&access=EF&pass%77ord=G&n=1", "http://host/x?auth=***&pwd=***&access=***&pass%77ord=***&n=1"),
        ("http://host/x#access_token=AB", "http://host/x#access_token=***"),
        ("http://host/x?author=me&user=you&passage=3", "http://host/x?author=me&user=you&passage=3"),
        ("hf:org/name@main/a.parquet https://host/a@v1", "hf:org/name@main/a.parquet https://host/a@v1"),
        ("s3://bucket/a?access_key=AB&region=eu", "s3://bucket/a?access_key=***&region=eu"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("http://host:/a@b http://host:80?x=1@2 http://host:80#a@b", "http://host:/a@b http://host:80?x=1@2 http://host:80#a@b"),
        ("http://[::1]:5000/a@b and http://u:p@[::1]:5000/a", "http://[::1]:5000/a@b and http://***@[::1]:5000/a"),
        ("http://user:5000@host/a http://user:123456/a@host", "http://***@host/a http://***@host"),
        ("http://user:50x0/a@host http://token@host:5000/a@b", "http://***@host http://***@host:5000/a@b"),
        ("http://host/x mail me@there", "http://host/x mail me@there"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
        ("hf:u:p/x@host/a and hf:token@host", "hf:***@host/a and hf:***@host"),
    ],
)  # fmt: skip
def test_credentials_in_urls_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


URIS = ("http://user:PASSW0RD@host:5000", "https://u:PASSW0RD/x@host", "postgresql://u:PASSW0RD@db/m", "http://h?auth=PASSW0RD")


@pytest.mark.parametrize("uri", [*URIS, "http://h/?pwd=PASSW0RD", "http://PASSW0RD@host"])
def test_a_tracking_uri_with_credentials_is_refused_and_never_shown(
    uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(f"base: {Path('configs/demo.yaml').absolute()}\ntracking: {{uri: '{uri}'}}\n")
    for command in ("plan", "run"):
        for arguments in ([str(tmp_path / "c.yaml")], ["configs/demo.yaml", "--set", f"tracking.uri={uri}"]):
            assert main([command, *arguments, "--set", f"store.path={tmp_path / 'store'}"]) == 2
            shown = "".join(capsys.readouterr())
            assert "tracking.uri: expected a URI without user, password or token" in shown
            assert "PASSW0RD" not in shown
    for wrong in (f"tracking.url={uri}", f"corpus.train.source=[{uri}", f"name={uri}", f"tracking.enabled={uri}", uri):
        assert main(["plan", "configs/demo.yaml", "--set", wrong, "--set", f"store.path={tmp_path / 'store'}"]) == 2
        assert "PASSW0RD" not in "".join(capsys.readouterr())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("uri", ["http://host:5000", "sqlite:////data/a@b.db", "databricks://profile", "file:///tmp/x", "a/b.db"])
def test_a_tracking_uri_without_credentials_is_accepted(uri: str) -> None:
    assert load_config(Path("configs/demo.yaml"), [f"tracking.uri={uri}"]).tracking.uri == uri


def test_events_hold_no_credentials(tmp_path: Path) -> None:
    run = Run(tmp_path / "runs/a")
    run.create(run_spec(plan_entry("toy:a")))
    run.write_event("step_failed", step="toy:a", error=f"no answer from {URIS[0]}", command=["x", URIS[1]])
    assert "PASSW0RD" not in (run.path / "events.jsonl").read_text()
    assert run.state().steps["toy:a"].error == "no answer from http://***@host:5000"
