"""A web server on this machine for tests, archives in memory that it serves, and faults in the order of the requests."""

import hashlib
import http.server
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Site:
    """The files of a server by path, and the requests that it has answered."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Faults of the next requests: `cut` breaks off half way, a number is an answer without content; `` answers as usual."""
    etags: bool = True
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Path, range asked for, and number of bytes sent, of each request."""
    url: str = ""

    def put(self, path: str, data: bytes) -> str:
        """Serve a file and return its URL."""
        self.files[path] = data
        return self.url + path


def _handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fault = site.faults.pop(0) if site.faults else ""
            asked, data = self.headers.get("Range", ""), site.files.get(self.path)
            if fault.isdigit() or data is None:
                self._answer(int(fault or 404), b"", asked)
                return
            etag, start, headers = f'"{hashlib.md5(data).hexdigest()}"', 0, {}
            if site.etags:
                headers["ETag"] = etag
                found = re.fullmatch(r"bytes=(\d+)-", asked)
                if found and self.headers.get("If-Range") == etag:
                    start = int(found[1])
                    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            rest = data[start:]
            self._answer(206 if start else 200, rest, asked, headers, len(rest) // 2 if fault == "cut" else len(rest))

        def _answer(
            self, status: int, data: bytes, asked: str, headers: dict[str, str] | None = None, sent: int | None = None
        ) -> None:
            sent = len(data) if sent is None else sent
            site.requests.append((self.path, asked, sent))
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(data)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data[:sent])
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving() -> Iterator[Site]:
    """Serve a site on this machine."""
    site = Site()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def zipped(members: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return data.getvalue()


def tarred(members: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()
