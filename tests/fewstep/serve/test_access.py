"""Names, tokens, rates and content types."""

import asyncio

import pytest

from fewstep.serve import access
from fewstep.serve.access import Access, Rates
from fewstep.serve.settings import Settings


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
    ],
)
def test_only_the_token_opens(authorization, status):
    found, headers = Client(token="secret").ask(authorization=authorization)
    assert found == status
    assert (headers.get(b"www-authenticate") == b"Bearer") == (status == 401)


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/healthz", 200), ("/metrics", 401), ("/systems", 401), ("/openapi.json", 401)]
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
        (b"application/x-www-form-urlencoded", 415),
        (b"multipart/form-data; x=application/json", 415),
        (b"application/json", 200),
        (b"Application/JSON; charset=utf-8", 200),
    ],
)
def test_requests_have_json(content_type, status):
    for settings in ({}, {"token": "secret"}):
        client = Client(**settings)
        assert client.ask(method="POST", authorization=b"Bearer secret", content_type=content_type)[0] == status
        assert (b"content-type" in client.detail.lower()) == (status == 415)


@pytest.mark.parametrize("headers", [{"transfer_encoding": b"chunked"}, {"content_length": b"1000000"}])
def test_a_body_is_not_read_without_the_token(headers):
    client = Client(token="secret")
    status, found = client.ask(method="POST", **headers)
    assert (status, found[b"connection"]) == (401, b"close")
    assert client.read <= 7, "a part of 64 KiB, so that the client sees the answer"
    status, found = client.ask(method="POST", content_length=b"1000")
    assert (status, b"connection" in found) == (401, False)
