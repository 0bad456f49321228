"""Clients that are slow on purpose, or many, keep nobody else from an answer."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvicorn
from uvicorn.server import ServerState

from fewstep.serve import connections
from fewstep.serve.connections import Connection, max_connections
from tests.processes import FAST_SECONDS

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST /translate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


async def app(scope, receive, send):
    """Answer after the body, which takes a while on /slow."""
    size, more = 0, scope["method"] == "POST"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    if scope["path"] == "/slow":
        await scope["state"]["gate"].wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
    await send({"type": "http.response.body", "body": b"%07d" % size})


@asynccontextmanager
async def listening(gate=None):
    """A server of `app`; its port and its state."""
    config = uvicorn.Config(app, http=Connection, ws="none", log_level="critical")
    config.load()
    state = ServerState()
    make = partial(config.http_protocol_class, config=config, server_state=state, app_state={"gate": gate})
    async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], state


async def answer(reader):
    """Return the status and the body of an answer, or None if the connection ends."""
    try:
        async with asyncio.timeout(FAST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1]), await reader.read(7 if b"content-length: 7\r" in head else 1000)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def test_a_request_that_does_not_begin_in_time_ends_its_connection(monkeypatch):
    """The first one, and each later one on a kept connection, also while its head arrives slowly."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)

    async def trickle(writer):
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.05)

    async def main():
        async with listening() as (port, state):
            for begin in (b"", b"GET / HT", GET, GET + b"GET / HTTP/1.1\r\nx: "):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(begin)
                if begin.startswith(GET):
                    assert await answer(reader) == (200, b"0000000")
                dripping = asyncio.create_task(trickle(writer)) if begin != GET else None
                assert await answer(reader) is None, begin
                if dripping:
                    dripping.cancel()
                writer.close()
            while state.connections:
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_request_in_progress_may_take_longer(monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)

    async def main():
        gate = asyncio.Event()
        async with listening(gate) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET.replace(b"healthz", b"slow"))
            await asyncio.sleep(0.5)
            gate.set()
            assert await answer(reader) == (200, b"0000000")
            writer.close()

    asyncio.run(main())


def test_connections_beyond_the_limit_take_the_place_of_those_that_wait(monkeypatch):
    monkeypatch.setattr(Connection, "limit", 8)

    async def main():
        async with listening() as (port, state):
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
            for _, writer in held:
                writer.write(b"GET /healthz HTTP/1.1\r\nx: ")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET)
            assert await answer(reader) == (200, b"0000000")
            assert len(state.connections) <= 8
            for _, one in (*held, (reader, writer)):
                one.close()

    asyncio.run(main())


def test_the_probe_is_answered_while_all_connections_have_requests(monkeypatch):
    monkeypatch.setattr(Connection, "limit", 4)
    monkeypatch.setattr(connections, "SPARE", 3)

    async def main():
        gate = asyncio.Event()
        async with listening(gate) as (port, state):
            busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            for _, writer in busy:
                writer.write(GET.replace(b"healthz", b"slow"))
            while len(state.tasks) < 4:
                await asyncio.sleep(0.01)
            for path, status in ((b"healthz", 200), (b"translate", 503), (b"healthz", 200)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(GET.replace(b"healthz", path))
                assert (await answer(reader))[0] == status
                writer.close()
                while len(state.connections) > 4:
                    await asyncio.sleep(0.01)
            gate.set()
            assert [await answer(reader) for reader, _ in busy] == [(200, b"0000000")] * 4
            for _, writer in busy:
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(("size", "status"), [(1, 400), (64, 200)])
def test_bodies_in_small_parts_are_refused(size, status):
    chunk, count = b"%x\r\n%s\r\n" % (size, b"x" * size), 20_000

    async def main():
        async with listening() as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHUNKED + chunk * count + b"0\r\n\r\n")
            found = await answer(reader)
            writer.close()
            return found

    found = asyncio.run(main())
    assert found is None or found[0] == status
    if status == 200:
        assert found == (200, b"1280000")


@pytest.mark.parametrize(("length", "count", "status"), [(60_000, 20, 400), (100, 2000, 200)])
def test_parts_with_long_extensions_are_refused(length, count, status):
    async def main():
        async with listening() as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHUNKED)
            await writer.drain()
            for _ in range(count):
                writer.write(b"1;a=" + b"b" * length + b"\r\nx\r\n")
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
            found = await answer(reader)
            writer.close()
            return found

    found = asyncio.run(main())
    assert found == (200, b"0002000") if status == 200 else found is None or found[0] == status


def test_parts_after_an_answer_end_the_connection():
    """An application that answers without reading the body leaves the rest to the parser."""

    async def main():
        async with listening() as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(CHUNKED.replace(b"POST /translate", b"GET /healthz") + b"1\r\nx\r\n")
            assert await answer(reader) == (200, b"0000000")
            writer.write(b"1\r\nx\r\n" * 20_000)
            assert await answer(reader) is None
            while state.connections:
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(main())


def test_the_limit_leaves_files_to_the_process():
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert max_connections() + connections.BACKLOG + connections.SPARE < files


def test_a_client_that_reads_no_answers_loses_its_connection(monkeypatch):
    """Although its next request is in progress, which waits for the answers before to be taken."""
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.5)
    answers = 30_000

    async def run():
        async with listening() as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
            writer.write(GET * answers)
            async with asyncio.timeout(FAST_SECONDS):
                while state.connections:
                    await asyncio.sleep(0.05)
            writer.close()
            assert len(await reader.read(1 << 30)) < answers * 100

    asyncio.run(run())
