"""Systems from elsewhere: a web server, a server with the paths of the Hub, object storage, and the Hub's folder of downloads."""

from __future__ import annotations

import http.client
import http.server
import io
import json
import shutil
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import Request

import pytest

import fewstep
from fewstep.__main__ import main
from fewstep.serve.settings import ServeError
from fewstep.serve.systems import find
from fewstep.system import remote
from fewstep.system.format import BundleError, read_json
from fewstep.system.integrity import seal
from tests.fewstep.systems import LINES, write_systems

REPOSITORY = "/somebody/small/resolve/main"


class EndlessContent(io.BytesIO):
    """The content of an answer, none of which may be read."""

    def read(self, size: int | None = -1) -> bytes:
        assert self.closed, "the content of a redirection is read into memory"
        return b""


@dataclass
class Server:
    """Files and faults (a status, `cut`, `long`, or an address to redirect to) by path, and the requests that were answered."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    drips: dict[str, bytes] = field(default_factory=dict)
    """Beginnings of answers by path, after which a byte follows now and then."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def publish(self, directory: Path, base: str) -> None:
        self.files |= {
            f"{base}/{path.relative_to(directory)}": path.read_bytes() for path in directory.rglob("*") if path.is_file()
        }

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


def handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append((self.path, self.headers.get("Authorization")))
            fault = server.faults[self.path].pop(0) if server.faults.get(self.path) else ""
            if begun := server.drips.get(self.path):
                self.drip(begun)
                return
            content = server.files.get(self.path)
            if "://" in fault:
                self.answer(302, b"", Location=fault)
            elif fault.isdigit() or content is None:
                self.answer(int(fault or 404), b"")
            elif fault == "long":
                self.answer(200, content + b"more")
            else:
                self.answer(200, content, cut=len(content) // 2 if fault == "cut" else 0)

        def answer(self, status: int, content: bytes, cut: int = 0, **headers: str) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[: len(content) - cut])

        def drip(self, begun: bytes) -> None:
            with suppress(OSError):
                self.wfile.write(begun)
                while not server.over.wait(0.05):
                    self.wfile.write(b" ")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setattr(remote, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    found = Server()
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    found.url = f"http://127.0.0.1:{running.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.over.set()
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_systems(tmp_path_factory.mktemp("systems"))["aggressive"]


def test_a_system_on_a_server_translates_as_its_directory_does(server: Server, system: Path) -> None:
    server.publish(system, "/models/small")
    server.files["/models/small/served_system.py"] = b"raise SystemExit"
    expected = fewstep.load(system).translate(LINES)
    assert fewstep.load(f"{server.url}/models/small/").translate(LINES) == expected
    parts = read_json(system / "system.json", "a system")["parts"]
    assert sorted(server.paths()) == sorted(f"/models/small/{name}" for name in (*parts, "system.json"))
    assert any("/" in name for name in parts), "files in folders as well"
    server.requests.clear()
    assert fewstep.load(f"{server.url}/models/small").translate(LINES) == expected
    assert server.paths() == ["/models/small/system.json"], "files are copied once"


def test_a_repository_of_the_hub_by_revision_and_folder(server: Server, system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.publish(system, REPOSITORY)
    server.publish(system, "/somebody/small/resolve/refs%2Fpr%2F3/best/one")
    for location in ("hf:somebody/small", "hf:somebody/small@refs/pr/3/best/one"):
        assert fewstep.load(location).name == fewstep.load(system).name
    assert {token for _, token in server.requests} == {"Bearer hf_secret"}
    for wrong in ("hf:small", "hf:somebody/small@main/../../other", "hf:somebody/..", "hf:"):
        with pytest.raises(BundleError, match="expected hf:ORG/NAME"):
            fewstep.load(wrong)


def test_a_token_stays_with_its_server(server: Server, system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files of the Hub lie on another server, to which it redirects."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.publish(system, REPOSITORY)
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    server.files["/blob"] = server.files[f"{REPOSITORY}/model.safetensors"]
    server.faults[f"{REPOSITORY}/model.safetensors"] = [f"{elsewhere}/blob"]
    fewstep.load("hf:somebody/small")
    assert ("/blob", None) in server.requests
    for address, message in (
        ("ftp://localhost/m", "expected a redirection to a web server"),
        ("file:///etc/passwd", "not allowed"),
    ):
        server.faults[f"{REPOSITORY}/system.json"] = [address]
        with pytest.raises(BundleError, match=message):
            fewstep.load("hf:somebody/small")


def test_the_content_of_a_redirection_is_not_read() -> None:
    headers = http.client.HTTPMessage()
    headers["Location"] = "http://[::1"
    for code in (301, 302, 303, 307, 308):
        found = getattr(remote._Redirections(), f"http_error_{code}")
        with pytest.raises(BundleError, match=r"http://h/m: expected a redirection to a URL, got one to 'http://\[::1'"):
            found(Request("http://h/m"), EndlessContent(), code, "", headers)
    headers.replace_header("Location", "/other")
    redirections = remote._Redirections()
    opened = list[str]()
    redirections.parent = cast(Any, SimpleNamespace(open=lambda request, timeout: opened.append(request.full_url)))
    request = Request("http://h/m")
    request.timeout = 1.0
    redirections.http_error_302(request, EndlessContent(), 302, "", headers)
    assert opened == ["http://h/other"]


def test_transient_faults_are_tried_again(server: Server, system: Path) -> None:
    server.publish(system, "/m")
    server.faults = {"/m/system.json": ["503", "cut"], "/m/model.safetensors": ["cut", "500"], "/m/source.spm": ["429"]}
    assert fewstep.load(f"{server.url}/m").translate(LINES[:1]) == fewstep.load(system).translate(LINES[:1])
    server.faults = {"/m/system.json": ["503"] * 3}
    with pytest.raises(OSError, match=r"could not be read: the server answered 503 .*; check the network"):
        fewstep.load(f"{server.url}/m")


@pytest.mark.parametrize("path", ["system.json", "model.safetensors"])
@pytest.mark.parametrize("sent", [b"HTTP/1.0 200 OK\r\nX: ", b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n{"])
def test_a_server_that_drips_is_given_up(
    server: Server, system: Path, monkeypatch: pytest.MonkeyPatch, path: str, sent: bytes
) -> None:
    """Each byte renews the time that a call waits for the next one. Another try would take as long."""
    monkeypatch.setattr(remote, "WAIT_SECONDS", 0.5)
    server.publish(system, "/models/small")
    server.drips[f"/models/small/{path}"] = sent
    with pytest.raises(OSError, match=r"expected at least [0-9,]+ bytes a second"):
        fewstep.load(f"{server.url}/models/small")
    assert server.paths().count(f"/models/small/{path}") == 1


def test_what_differs_from_its_description_is_refused_and_not_kept(server: Server, system: Path, tmp_path: Path) -> None:
    server.publish(system, "/m")
    weights = server.files["/m/model.safetensors"]
    server.files["/m/model.safetensors"] = weights[:-1] + bytes([weights[-1] ^ 1])
    with pytest.raises(BundleError, match=r"m/model\.safetensors: expected crc32 \w{8}, got \w{8}; .* discarded"):
        fewstep.load(f"{server.url}/m")
    server.files["/m/model.safetensors"] = weights
    server.faults["/m/model.safetensors"] = ["long"]
    with pytest.raises(BundleError, match=rf"expected at most {len(weights)} bytes, got more"):
        fewstep.load(f"{server.url}/m")
    kept = {str(path.relative_to(tmp_path / "cache/systems")).partition("/")[2] for path in (tmp_path / "cache").rglob("*")}
    assert "model.safetensors" not in kept
    assert not list((tmp_path / "cache").rglob(".new*"))
    fewstep.load(f"{server.url}/m")


def test_descriptions_that_lead_out_of_their_directory_are_refused(server: Server, system: Path, tmp_path: Path) -> None:
    server.publish(system, "/m")
    description = json.loads(server.files["/m/system.json"])
    for name in ("../outside", "/etc/outside", "a/../../outside"):
        parts = {**description["parts"], name: description["parts"]["source.spm"]}
        server.files["/m/system.json"] = json.dumps(seal({**description, "parts": parts})).encode()
        with pytest.raises(BundleError, match="expected the relative name of a file"):
            fewstep.load(f"{server.url}/m")
    server.files["/m/system.json"] = json.dumps({**description, "name": "another"}).encode()
    with pytest.raises(BundleError, match="expected content of sha256"):
        fewstep.load(f"{server.url}/m")
    assert not list(tmp_path.rglob("outside"))


def test_a_description_without_an_end_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/m/system.json"] = b" " * 3000
    monkeypatch.setattr(remote, "MAX_JSON_BYTES", 1000)
    with pytest.raises(BundleError, match="expected at most 1000 bytes, got more"):
        fewstep.load(f"{server.url}/m")


def test_the_disk_has_to_hold_it(server: Server, system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.publish(system, "/m")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(OSError, match=r"bytes of free space in .*, got 100"):
        fewstep.load(f"{server.url}/m")
    assert server.paths() == ["/m/system.json"]


def test_folders_of_the_hubs_own_downloads(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    snapshot, blobs = tmp_path / "models--somebody--small/snapshots/0a1b", tmp_path / "models--somebody--small/blobs"
    blobs.mkdir(parents=True)
    for number, path in enumerate(sorted(path for path in system.rglob("*") if path.is_file())):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.relative_to(system)).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path.relative_to(system)).symlink_to(blobs / str(number))
    assert fewstep.load(snapshot).translate(LINES) == fewstep.load(system).translate(LINES)
    shutil.rmtree(tmp_path / "cache")
    shutil.copyfile(system / "model.safetensors", tmp_path / "secret")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(BundleError, match="expected a link to a file in"):
        fewstep.load(snapshot)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("model.safetensors")
    with pytest.raises(BundleError, match="expected a link to a file in"):
        fewstep.load(snapshot)


def test_object_storage(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    shutil.copytree(system, tmp_path / "bucket/folder")
    opened: list[str] = []

    class Storage:
        def __init__(self, url: str) -> None:
            opened.append(url)

        def read(self, name: str) -> Generator[bytes, None, None]:
            yield (tmp_path / "bucket/folder" / name).read_bytes()

    monkeypatch.setattr(remote, "ObjectStorage", Storage)
    assert fewstep.load("s3://bucket/folder").translate(LINES) == fewstep.load(system).translate(LINES)
    assert opened == ["s3://bucket/folder"]
    (tmp_path / "bucket/folder/system.json").unlink()
    with pytest.raises(BundleError, match=r"s3://bucket/folder/system.json: expected a file of a system, got none"):
        fewstep.load("s3://bucket/folder")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BundleError, match="pip install pyarrow"):
        fewstep.load("s3://bucket/folder")


def test_commands_take_such_locations(server: Server, system: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.publish(system, REPOSITORY)
    places = find(["hf:somebody/small", f"best={server.url}{REPOSITORY}"])
    assert [place.name for place in places] == [None, "best"]
    assert places[0].directory == places[1].directory
    with pytest.raises(ServeError, match="got the answer 404"):
        find([f"{server.url}/nothing"])
    (tmp_path / "in").write_text("\n".join(LINES[:3]))
    assert main(["translate", "hf:somebody/small", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text().splitlines() == fewstep.load(system).translate(LINES[:3])
    assert main(["translate", f"{server.url}/nothing"]) == 2
    assert "expected a file of a system, got the answer 404" in capsys.readouterr().err


def test_urls_with_credentials_are_refused_and_not_shown(server: Server) -> None:
    for url in ("https://user:secret@127.0.0.1/m", "https://127.0.0.1/m?token=secret", "https://127.0.0.1/m#secret"):
        with pytest.raises(BundleError, match="expected the URL of a directory without user") as caught:
            fewstep.load(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[", "http://a..b/m", f"http://{'a' * 300}/m"])
def test_names_that_no_server_can_have_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    with pytest.raises(BundleError, match=r"expected the (URL of a directory|name of a web server), got"):
        fewstep.load(url)
