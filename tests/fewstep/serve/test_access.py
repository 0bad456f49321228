"""Tokens, rates, and connections without a request."""

import asyncio
from functools import partial

import pytest
import uvicorn
from uvicorn.server import ServerState

from fewstep.serve import access, server
from fewstep.serve.access import Access, Rates
from fewstep.serve.settings import Settings


async def welcome(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


class Client:
    """A client of an application, with a clock that it sets."""

    def __init__(self, **settings):
        self.now = 0.0
        self.application = Access(welcome, Settings(**settings), clock=lambda: self.now)

    def ask(self, path="/translate", authorization=None, address="10.0.0.1"):
        """Return the status and the headers of the answer."""
        headers = [] if authorization is None else [(b"authorization", authorization)]
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": path, "headers": headers, "client": (address, 1)}
        asyncio.run(self.application(scope, None, send))
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


def test_a_connection_without_a_request_is_closed(monkeypatch):
    monkeypatch.setattr(server, "FIRST_REQUEST_SECONDS", 0.2)

    async def app(scope, receive, send):
        await asyncio.sleep(0.5)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(port, request):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read(20)
        writer.close()
        return answer

    async def main():
        config = uvicorn.Config(app, http=server.Connection, ws="none", log_level="error")
        config.load()
        state = ServerState()
        make = partial(config.http_protocol_class, config=config, server_state=state, app_state={})
        requests = (b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            return await asyncio.gather(*(ask(port, request) for request in requests))

    assert asyncio.run(main()) == [b"", b"", b"HTTP/1.1 204 No Cont"]
