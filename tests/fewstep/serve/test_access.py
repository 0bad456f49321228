"""Names, tokens, rates, content types, and pages of other sites."""

import asyncio
from pathlib import Path

import pytest

from fewstep.commands.serve import _token
from fewstep.serve import access
from fewstep.serve.access import Access, Rates
from fewstep.serve.settings import ServeError, Settings
from tests.fewstep.serve.conftest import running


async def welcome(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


class Client:
    """A client of an application, with a clock that it sets."""

    def __init__(self, **settings):
        self.now = 0.0
        self.application = Access(welcome, welcome, Settings(**settings), clock=lambda: self.now)

    def ask(self, path="/translate", authorization=None, address="10.0.0.1", method="GET", **headers):
        """Return the status and the headers of the answer."""
        given = {"authorization": authorization, **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.replace("_", "-").encode(), value) for name, value in given.items() if value is not None],
            "client": (address, 1),
        }
        sent, self.read = [], 0

        async def send(message):
            sent.append(message)

        async def receive():
            self.read += 1
            return {"type": "http.request", "body": b"x" * 10_000, "more_body": True}

        asyncio.run(self.application(scope, receive, send))
        self.detail = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        (b"", 401),
        (b"Bearer", 401),
        (b"Bearer secre", 401),
        (b"Bearer secrets", 401),
        (b"Basic secret", 401),
        (b"secret", 401),
        (b"Bearer \xff\xfe", 401),
        (b"Bearer secret", 200),
        (b"bearer secret", 200),
        (b"DeepL-Auth-Key secret", 200),
        (b"DeepL-Auth-Key secrets", 401),
    ],
)
def test_only_the_token_opens(authorization, status):
    found, headers = Client(token="secret").ask(authorization=authorization)
    assert found == status
    assert (headers.get(b"www-authenticate") == b"Bearer") == (status == 401)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/healthz", 200),
        ("/health", 200),
        ("/languages", 200),
        ("/metrics", 401),
        ("/systems", 401),
        ("/openapi.json", 401),
        ("/translate", 401),
        ("/detect", 401),
        ("/v2/translate", 403),
    ],
)
def test_the_page_and_the_probe_need_no_token(path, status):
    assert Client(token="secret").ask(path)[0] == status


def test_a_client_beyond_its_rate_learns_when_to_return():
    client = Client(requests_per_second=0.5, burst=3)
    assert [client.ask()[0] for _ in range(4)] == [200, 200, 200, 429]
    assert client.ask()[1][b"retry-after"] == b"2"
    assert client.ask(address="10.0.0.2")[0] == 200, "another address"
    assert client.ask("/healthz")[0] == 200
    client.now = 1.9
    assert client.ask()[0] == 429
    client.now = 2.0
    assert [client.ask()[0] for _ in range(2)] == [200, 429]
    client.now = 1000.0
    assert [client.ask()[0] for _ in range(4)] == [200, 200, 200, 429], "a pause saves up the burst and no more"


def test_guessing_tokens_is_limited_as_well():
    client = Client(requests_per_second=1, burst=2, token="secret")
    assert [client.ask(authorization=b"Bearer guess")[0] for _ in range(3)] == [401, 401, 429]
    assert client.ask(authorization=b"Bearer secret")[0] == 429


def test_addresses_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(access, "MAX_CLIENTS", 3)
    rates = Rates(1.0, 1, lambda: 0.0)
    assert not any(rates.wait(str(number)) for number in range(100))
    assert len(rates._buckets) == 3
    assert rates.wait("99") == 1.0


OWN = [b"localhost", b"localhost:8080", b"127.0.0.1:8080", b"127.1.2.3", b"[::1]:8080", b"LOCALHOST:1"]
FOREIGN = [
    b"evil.example",
    b"evil.example:8080",
    b"localhost.evil.example",
    b"127.0.0.1.evil.example",
    b"10.0.0.1",
    b"",
    b"\xff",
    b"[",
]


@pytest.mark.parametrize("path", ["/translate", "/healthz", "/"])
def test_a_loopback_server_has_no_other_name(path):
    """A page whose name leads to 127.0.0.1 (DNS rebinding) learns nothing, and neither does a page of another site."""
    client = Client()
    assert [client.ask(path, host=name)[0] for name in OWN] == [200] * len(OWN)
    assert [client.ask(path, host=name)[0] for name in FOREIGN] == [421] * len(FOREIGN)
    assert b"expected localhost or 127.0.0.1" in client.detail
    assert [client.ask(path, host=b"localhost", origin=b"http://" + name)[0] for name in OWN] == [200] * len(OWN)
    foreign = [b"null", *(b"https://" + name for name in FOREIGN)]
    assert [client.ask(path, host=b"localhost", origin=name)[0] for name in foreign] == [403] * len(foreign)


def test_names_are_free_where_a_token_guards_and_where_everyone_is_served():
    assert Client(token="secret").ask(host=b"translate.example", authorization=b"Bearer secret")[0] == 200
    assert Client(host="0.0.0.0", without_token=True).ask(host=b"translate.example")[0] == 200
    assert Client(host="127.0.0.2").ask(host=b"127.0.0.2:80")[0] == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (None, 415),
        (b"", 415),
        (b"text/plain", 415),
        (b"multipart/mixed; x=application/json", 415),
        (b"application/json", 200),
        (b"Application/JSON; charset=utf-8", 200),
    ],
)
def test_requests_have_json(content_type, status):
    for settings in ({}, {"token": "secret"}):
        for path in ("/translate", "/explain", "/v2/translate"):
            client = Client(**settings)
            assert client.ask(path, method="POST", authorization=b"Bearer secret", content_type=content_type)[0] == status
            assert (b"content-type" in client.detail.lower()) == (status == 415)


FORM = {"method": "POST", "content_type": b"application/x-www-form-urlencoded; charset=utf-8"}


def test_forms_are_taken_where_clients_send_them_and_from_no_other_site():
    """A page of any site can send a form: its browser names the site, and no client does."""
    for settings in ({"host": "0.0.0.0", "without_token": True}, {"token": "secret"}):
        client, own = Client(**settings), {**FORM, "authorization": b"Bearer secret", "host": b"translate.example:80"}
        assert [client.ask(path, **own)[0] for path in ("/translate", "/detect", "/v2/translate")] == [200] * 3
        assert client.ask("/explain", **own)[0] == 415
        assert client.ask(**own, origin=b"http://translate.example:80")[0] == 200
        for other in (b"null", b"", b"\xff", b"http://evil.example", b"http://translate.example:81", b"translate.example:80"):
            assert client.ask(**own, origin=other)[0] == 403
    named = Client(host="0.0.0.0", without_token=True, cors_origins=("https://front.example",))
    assert named.ask(**FORM, host=b"here", origin=b"https://front.example")[0] == 200
    assert named.ask(**FORM, host=b"here", origin=b"http://front.example")[0] == 403


def test_pages_of_named_sites_may_ask_a_loopback_server():
    client = Client(cors_origins=("https://front.example",))
    assert client.ask(host=b"localhost", origin=b"https://front.example")[0] == 200
    assert client.ask(host=b"localhost", origin=b"https://front.example.evil")[0] == 403
    assert client.ask(host=b"front.example", origin=b"https://front.example")[0] == 421


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"cors_origins": ("*",)}, "cors_origins: expected a bearer token"),
        ({"cors_origins": ("*",), "without_token": True, "host": "0.0.0.0"}, "cors_origins: expected a bearer token"),
        ({"cors_origins": ("*",), "token": "secret"}, None),
        ({"cors_origins": ("https://a.example", "http://localhost:3000", "http://[::1]:80")}, None),
        *(
            ({"cors_origins": (origin,)}, "cors_origins: expected sites")
            for origin in ("a.example", "https://a/", "null", "ftp://a")
        ),
    ],
)
def test_sites_are_named_by_scheme_and_host(settings, expected):
    problems = list(Settings(**settings).problems())
    assert problems == [] if expected is None else problems[0].startswith(expected)


@pytest.mark.parametrize("headers", [{"transfer_encoding": b"chunked"}, {"content_length": b"1000000"}])
def test_a_body_is_not_read_without_the_token(headers):
    client = Client(token="secret")
    for path, refused in (("/explain", 401), ("/translate", 401), ("/detect", 401), ("/v2/translate", 403)):
        status, found = client.ask(path, method="POST", **headers)
        assert (status, found[b"connection"]) == (refused, b"close")
        assert client.read <= 7, "a part of 64 KiB, so that the client sees the answer"
    for path, refused in (("/explain", 401), ("/v2/translate", 403)):
        status, found = client.ask(path, method="POST", content_length=b"1000")
        assert (status, b"connection" in found) == (refused, False)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/translate", {"content_length": b"65536"}, 200),
        ("/detect", {"content_length": b"1"}, 200),
        ("/translate", {"content_length": b"65537"}, 401),
        ("/translate", {"content_length": b"0"}, 401),
        ("/translate", {"content_length": b"1_0"}, 401),
        ("/translate", {"transfer_encoding": b"chunked"}, 401),
        ("/translate", {"transfer_encoding": b"chunked", "content_length": b"10"}, 401),
        ("/translate", {"content_length": b"10", "authorization": b"Bearer wrong"}, 401),
        ("/explain", {"content_length": b"10"}, 401),
        ("/v2/translate", {"content_length": b"10"}, 403),
    ],
)
def test_a_small_body_is_read_for_its_token(path, headers, status):
    """Clients of LibreTranslate have it there."""
    assert Client(token="secret").ask(path, method="POST", content_type=b"application/json", **headers)[0] == status


def test_a_token_file_that_does_not_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert _token(tmp_path / "token") == "secret"
    (tmp_path / "large").write_text("a" * (1 << 20))
    for path in (tmp_path / "large", Path("/dev/zero")):
        with pytest.raises(ServeError, match=rf"--token-file {path}: expected a token of at most 65,536 bytes"):
            _token(path)


FRONT = "https://front.example"
JSON = {"content-type": "application/json"}


def preflight(server, origin, **more):
    asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type", **more}
    return server.request("OPTIONS", "/translate", headers=asked)


def test_pages_of_named_sites_alone_can_read_answers(directories, server):
    with running(directories["small"], "--cors-origins", f"{FRONT}, http://localhost:3000", FEWSTEP_TOKEN="secret") as named:
        status, headers, _ = preflight(named, FRONT)
        assert (status, headers["access-control-allow-origin"]) == (200, FRONT)
        for origin in ("https://evil.example", "null", f"{FRONT}.evil"):
            status, headers, _ = preflight(named, origin)
            assert status == 400
            assert "access-control-allow-origin" not in headers
        for token, expected in (("secret", 200), ("wrong", 401)):
            asked = {**JSON, "origin": FRONT, "authorization": f"Bearer {token}"}
            status, headers, _ = named.request("POST", "/translate", b'{"sentences": ["ein"]}', asked)
            assert (status, headers["access-control-allow-origin"]) == (expected, FRONT), "a page sees why it is refused"
        _, headers, _ = named.request("GET", "/languages", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in headers
    for status, headers, _ in (preflight(server, FRONT), server.request("GET", "/healthz", headers={"origin": FRONT})):
        assert status == 403
        assert not any(name.startswith("access-control") for name in headers)
